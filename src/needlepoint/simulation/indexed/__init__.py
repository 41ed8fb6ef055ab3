"""The attention-indexed model in d dimensions.

`training` measures what the `minimisers` of a `problem` find; `amp` minimises it and `bayes` finds the best estimate by
message passing; `one_sequence` has the loss, `accuracy` the knobs.
"""
