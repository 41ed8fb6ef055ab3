"""The sqlite file that keeps a study: `store` reads and writes the tables of `schema`, `file` opens and closes it,
`codec` turns results into JSON and arrays and back.

`seals` are checksums that reveal damage, `owners` records which processes work on the file, `troubles` has the
messages for a file that is full, locked, damaged or removed.
"""
