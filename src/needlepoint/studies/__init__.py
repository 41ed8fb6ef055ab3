"""Studies: sweeps over any field of a question (task, model, learner), kept in one file, on one machine or many.

`study` is the object that users hold; `sweeps` plans its work over `axes` (with `refining`), `execution` does the work,
`storage` keeps the results; `points`, `pooling` and `tables` read them; `files` reads a study from a TOML or JSON
file; `contest` sets models side by side, and `verdicts` says which is best.
"""
