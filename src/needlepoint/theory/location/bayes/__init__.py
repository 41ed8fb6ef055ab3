"""The Bayes-optimal predictor.

`given_teachers` knows key and value (`spiked_teachers` for spiked tokens); `samples` learns them from data by state
evolution, through `spiked_posterior` and `max_posterior`; `transition` follows both of its branches along alpha;
`accuracy` has the knobs.
"""
