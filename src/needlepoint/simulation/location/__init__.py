"""Single-location regression in d dimensions.

`risks` by Monte Carlo; `ridge` trains on a `ridge_problem`, with `hessians` at its minimum; `ridge_amp` and `bayes_amp`
pass messages; `descent`, `sgd_on_spheres` and `free_norms` follow training in time; `vectors` are teachers and weights.
"""
