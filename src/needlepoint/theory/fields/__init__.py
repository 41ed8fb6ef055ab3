"""From a field law and an output to everything else: the rules that serve every SequenceTask and FieldModel.

`law` draws the fields, `envelope` is the proximal map of one sequence, `order` has the unknowns, `symmetry` which of
them vanish, `declared` checks what a task and a model say. `ridge` answers for training on finitely many samples;
`population`, `optimum`, `rates` and `flow` for infinite data.
"""
