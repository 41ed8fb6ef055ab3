"""Ridge training for any field law and output, in the limit, by replica-symmetric equations.

`equations` is their map, `solutions` its fixed points with errors, `stability` whether to trust them, `prediction` what
`predict` returns, `branches` the phases one by one.
"""
