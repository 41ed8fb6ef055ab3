"""Studies: sweeps over any field of a question, kept in one file, on one machine or many.

`study` is the object; `sweeps` plans its work over `axes` (with `refining`), `execution` does it, `storage` keeps it;
`points`, `pooling` and `tables` read it, `files` is a study that a user wrote down.
"""
