"""Drawing of results; nothing is computed here but means and quantiles of what is given.

`results` draws one answer, `studies` a sweep, `contest` a contest; `metrics`, `curves`, `spectra`, `stability`,
`landscape` and `trajectories` are the kinds of panel, `style` their look.
"""
