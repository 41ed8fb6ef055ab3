"""Answers in the limit, with a numerical error. Never imports simulation.

`predicting`, `curves` and `comparing` are the verbs. Formulas live by task: `location` has single-location regression,
`indexed` the attention-indexed model, and neither imports the other.
"""
