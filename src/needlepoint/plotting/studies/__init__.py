"""Pictures of a study: `pictures` chooses between `curves` over one parameter and `maps` over two.

`data` is what they need to know of the study, `scales` the axes, legends and signs that they share.
"""
