"""Figures of theories on fields: `curves` against alpha, `heads` over time, `phases`; `records` reads what was found."""
