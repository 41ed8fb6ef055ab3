"""What theory and simulation share beyond the task: the action of an attention on its fields.

`proximal` is what one sequence does to its scores (`linear_attention`, `softmax_pair`, `any_activation`; words in
`replies`), `matrix_proximal` the same for a matrix of scores; `elementwise` are means, `branches` names of minima.
"""
