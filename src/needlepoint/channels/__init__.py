"""What theory and simulation share beyond the task: how an attention acts on its fields.

`proximal` is what one sequence does to its scores (by `linear_attention`, `softmax_pair` or `any_activation`, with the
types of `replies`), `matrix_proximal` the same for a matrix of scores. `elementwise` has Gaussian means of element-wise
attention, `branches` the names of minima.
"""
