"""How well probes read a label from hidden states."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from needlepoint.plotting.style import COLOURS, panels, styled

_GREEN, _GREY = COLOURS[2], COLOURS[5]


@styled
def probe_bars(report: Any, published: dict[str, float] | None = None) -> Figure:
    """Return the bars of a probe, one group per set and one bar per way of pooling, with 95 % intervals; `published`
    values of another model are drawn as lines."""
    poolings = list(dict.fromkeys(r.pooling for r in report.rows))
    names = list(report.bars(poolings[0]))
    figure, axes = panels(1, 1, max(5.0, 1.25 * len(names)), 3.6)
    axis = axes[0][0]
    width = 0.8 / len(poolings)
    for i, pooling in enumerate(poolings):
        bars = report.bars(pooling)
        at = np.arange(len(names)) + (i - (len(poolings) - 1) / 2) * width
        share = np.array([bars[n].share for n in names])
        ends = np.array([[bars[n].share - bars[n].low, bars[n].high - bars[n].share] for n in names]).T
        axis.bar(at, share, width * 0.9, color=COLOURS[i], label=f"{pooling} state")
        axis.errorbar(at, share, yerr=np.maximum(ends, 0.0), fmt="none", ecolor=_GREY, elinewidth=1.0, capsize=2)
    for i, name in enumerate(names):
        if published is not None and name in published:
            label = "another model's first state: BERT, published" if i == 0 else None
            axis.plot([i - 0.42, i - 0.42 + width], [published[name]] * 2, color=_GREEN, linewidth=2.0, label=label)
    axis.axhline(0.5, color=_GREY, linewidth=0.8, linestyle=":")
    axis.set_axisbelow(True)
    axis.set_xticks(range(len(names)), [n.replace(" and ", "\nand ").replace(" embed", "\nembed") for n in names])
    axis.set(ylabel="accuracy of linear probes", ylim=(0.0, 1.05))
    axis.grid(axis="x", visible=False)
    figure.legend(loc="outside lower center", ncols=3)
    figure.suptitle(report.name, fontsize=10)
    return figure
