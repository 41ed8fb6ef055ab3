"""The attention-indexed model in d dimensions.

`training` measures what the `minimisers` of a `problem` find; `amp` and `bayes` pass messages, through the loss of
`one_sequence`.
"""
