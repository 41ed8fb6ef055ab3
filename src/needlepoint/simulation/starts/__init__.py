"""Training from many starts at once, and which minima they find.

`lbfgs` descends from all starts with one product a step, which its `memory` directs; `products` multiplies data by the
weights of all; `distinct` says which minima are one, `measures` what a repeat says of its starts.
"""
