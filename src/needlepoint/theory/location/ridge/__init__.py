"""Ridge training on finitely many samples: the replica-symmetric equations.

`prediction` and `curves` answer the user; `solving` finds `branches` of the `equations` and refines them (`refining`)
into `solutions`; `fields` has the means over a sequence, `stability` the replicon, `doubt` how far off an unstable
answer may be, `penalty` the best penalties along their `sensitivity`; `accuracy` has the knobs of all.
"""
