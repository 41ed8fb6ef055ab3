"""Means of attention weights over the scores of a sequence: all that a risk needs.

`weight_moments` says which and turns them into a risk; `elementwise`, `kernels` and `sampled` compute them;
`score_nodes` are nodes of integration, `place_race` is the law of the relevant place on the max task,
`accuracy` has the knobs.
"""
