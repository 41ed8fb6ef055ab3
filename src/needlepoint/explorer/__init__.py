"""The explorer: a local page where curves move as sliders do, its widget for notebooks, and pages saved to a file.

`questions` says what can be asked and answers it, `workers` runs the answers in processes of their own, `server` puts
both behind a guarded address, `page` is what the browser gets. Nothing here computes: the verbs do.
"""
