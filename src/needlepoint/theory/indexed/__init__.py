"""The attention-indexed model in the limit.

`prediction` answers for ridge training, `bayes` for the best estimate; `closed_form` and `quadratic_loss` where the
equations close, else `solutions` of `equations` over `fields` by `quadrature`. `spectrum`, `thresholds`, `power_laws`;
`doubt` is how far off a flagged answer may be.
"""
