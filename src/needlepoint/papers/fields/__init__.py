"""Figures of theories on fields: `curves` against alpha, `heads` over time, `crossing` of one and two heads, `phases`;
`records` has what they share."""
