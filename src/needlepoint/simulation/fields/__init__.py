"""Tasks and models that say their fields, in d dimensions.

`training` minimises a `problem`, a data set with its objective, or passes messages (`amp`), and `gauges` fixes what the
output does not see; `risks` measures errors at given overlaps, on `fresh` sequences; `dynamics` follows training in
time; `accuracy` has the knobs.
"""
