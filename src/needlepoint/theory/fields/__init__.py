"""From a field law and an output to everything else: the rules that serve every SequenceTask and FieldModel.

`law` draws the fields, `envelope` is the proximal map of one sequence, `order` the unknowns and their zero patterns,
`equations` the replica-symmetric map, `solutions` its fixed points with errors, `stability` whether to trust them.
`prediction` answers for ridge training; `population`, `optimum`, `flow` for infinite data.
"""
