"""Single-location regression in d dimensions.

`risks` measures errors by Monte Carlo; `ridge` trains on a `ridge_problem`, with `hessians` at its minimum; `ridge_amp`
and `bayes_amp` pass messages; `descent`, `sgd_on_spheres` and `free_norms` follow training in time; `vectors` draws
teachers and weights, `signs` fixes what predictions do not see, `accuracy` has the knobs.
"""
