"""Single-location regression in the limit.

`population` is the optimum at infinite data, made of means over the weights in `moments`; `erf` has closed forms;
`ridge` is penalised training on finitely many samples, `bayes` the best there is, `dynamics` descent, flow and SGD.
"""
