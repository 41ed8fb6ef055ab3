"""Drawing of results; nothing is computed here but means, quantiles, and the curve around a ridge prediction.

`results` draws one answer (`around` its curve, `descents` its trajectory, `tables` its numbers), `studies` a sweep;
`metrics`, `curves`, `spectra`, `stability`, `landscape` and `trajectories` are the kinds of panel, `style` their look.
"""
