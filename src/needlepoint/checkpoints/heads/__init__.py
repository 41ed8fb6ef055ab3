"""What weights alone say of a head: its spectrum beside that of independent random queries and keys.

null (the product law in closed form), tracy_widom (its top value), tied (the law of tied attention), measures
(ranks and shares), rotary (what positions do), report (`heads`).
"""
