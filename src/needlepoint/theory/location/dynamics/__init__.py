"""Training in time, as a few overlaps that move.

`descent` and `sgd_on_spheres` keep unit norms; `flow` is gradient flow and SGD with free norms, whose `rates` are means
over the scores (`elementwise_rates` for element-wise activations); `starts` are initial overlaps,
`accuracy` has the knobs.
"""
