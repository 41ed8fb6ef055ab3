"""Where training has many minima: one step of replica symmetry breaking, which answers for the lowest of them.

`minima` and `inner` take means over the states of a sequence, `equations` is the map of the order parameters at one
breaking parameter, `branch` follows it to the ground state, `prediction` is what `predict(..., ansatz="1rsb")` returns.
"""
