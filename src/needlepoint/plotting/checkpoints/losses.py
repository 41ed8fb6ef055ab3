"""What heads lose when their rank is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from needlepoint.plotting.style import COLOURS, panels, styled

_BLUE, _ORANGE, _GREY = COLOURS[0], COLOURS[1], COLOURS[5]


@styled
def loss_panels(cut: Any, effect: Any, ranks: Any) -> Figure:
    """Return what heads lose: predicted and calibration loss against the held-out loss at the chosen ranks, and the
    measured loss of every head against its rank. `cut` is what `truncation` returns."""
    figure, axes = panels(1, 2, 9.4, 4.0)
    there = np.array([effect.attention[h.layer, h.head] for h in cut.heads])
    guessed = np.array([h.predicted[ranks[h.layer, h.head]] for h in cut.heads])
    seen = np.array([h.measured_at(ranks[h.layer, h.head]) for h in cut.heads])
    positive = (there > 0) & (guessed > 0) & (seen > 0)
    left, right = axes[0]
    if positive.any():
        left.loglog(
            there[positive], guessed[positive], "o", color=_ORANGE, markersize=3.5, label="predicted", alpha=0.8
        )
        left.loglog(
            there[positive], seen[positive], "s", color=_BLUE, markersize=3, label="measured on calibration text"
        )
        ends = np.array([there[positive].min(), there[positive].max()])
        left.loglog(ends, ends, color=_GREY, linewidth=0.8)
        left.legend(loc="upper left")
        left.xaxis.set_minor_formatter(NullFormatter())  # labels between powers of ten would run into each other
    left.set(xlabel="attention loss on held-out text", ylabel="attention loss", title="each head on its own")
    for h in cut.heads:
        short = slice(None, -1) if h.ranks[-1] == len(h.values) else slice(None)  # nothing is lost at full rank
        right.plot(h.ranks[short], np.maximum(h.attention[short], 1e-7), color=_BLUE, linewidth=0.6, alpha=0.35)
    middle = np.median([h.attention for h in cut.heads], axis=0)
    kept = middle > 1e-7
    right.plot(cut.heads[0].ranks[kept], middle[kept], color=_ORANGE, linewidth=2.0, label="median head")
    right.set(yscale="log", ylim=(1e-6, None), xlabel="rank", ylabel="attention loss, measured", title="every head")
    right.legend(loc="upper right")
    mean = np.mean(list(ranks.values()))
    told = f"cosine {effect.after:.3f}" if effect.kind == "cosine" else f"+{effect.after - effect.before:.3f} nats"
    figure.suptitle(f"{cut.checkpoint.name}: mean rank {mean:.3g}, all heads cut: {told}", fontsize=10)
    return figure
