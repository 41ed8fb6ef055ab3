"""Who computes what: `jobs` are the pieces, `work` computes one, `executors` and `on_dask` spread them.

`running` hands out what is missing and stores what comes back.
"""
