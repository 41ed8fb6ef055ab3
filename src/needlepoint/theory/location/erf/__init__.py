"""Erf attention, where nearly everything has a closed form.

`closed_form` is the risk; `landscape` its stationary points on the spheres; `on_spheres`, `newton` and `many_optima`
find its best keys, one at a time or as arrays; `accuracy` has the knobs.
"""
