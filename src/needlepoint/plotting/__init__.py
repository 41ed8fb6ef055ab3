"""Drawing of results; nothing is computed here but means, quantiles, and the curve around a ridge prediction.

`results` draws one answer (`around` its curve, `single_descent` its path, `tables` its numbers), `alone` parts of it,
`studies` a sweep, `contest` a contest; `metrics`, `curves`, `descents`, `spectra`, `stability`, `landscape` and
`trajectories` are panels, `style` their look.
"""
