"""The attention-indexed model in the limit.

`prediction` answers for ridge training, `bayes` for the best estimate. Where the equations close it uses `closed_form`
and `quadratic_loss`, otherwise `solutions` of the `equations`, whose means over `fields` are sums by `quadrature`.
`spectrum` has the learned eigenvalues, `thresholds` the interpolation and recovery, `power_laws` the targets with a few
large eigenvalues; `doubt` says how far off a flagged answer may be, `accuracy` has the knobs.
"""
