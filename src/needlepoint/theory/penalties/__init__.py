"""The penalties that make a predicted risk least: one search for every theory that can say its risk with a gradient.

`risk` is what a theory says of itself, `sensitivity` has derivatives of its fixed points, `search` is the way to the
minimum, `checking` what is known of it, `answers` what comes back, `accuracy` the numbers that steer it.
"""
