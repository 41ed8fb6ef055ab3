"""The best a model can do at infinite data.

`optimum` is the prediction; `risk` the risk at given overlaps; `best_key` searches from `first_keys`, asking
`risk_at_a_key`; `infima` are risks that no key attains, `off_manifold` drops the symmetry, `statements` are theorems,
`accuracy` has the knobs.
"""
