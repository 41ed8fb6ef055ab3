"""Figures of theories on fields: `curves` against alpha, `heads` over time, `phases`; `records` has what they share."""
