"""Ridge training on finitely many samples: the replica-symmetric equations.

`prediction` and `curves` answer; `solving` finds `branches` of the `equations` and refines (`refining`) them into
`solutions`; `fields` are means over a sequence, `stability` has the replicon, `doubt` how far off, `penalty` the best.
"""
