"""The computing of a study: `jobs` and units of them are the pieces, `work` computes a unit in a worker process,
`executors` and `on_dask` spread units over workers, `machine` tells what this computer has.

`running` is the coordinator: it hands out what is missing and stores what comes back.
"""
