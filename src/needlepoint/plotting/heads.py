"""Pictures of real checkpoints: spectra of heads, maps over layers and heads, losses of cuts, bars of probes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from needlepoint.plotting.style import COLOURS, panels, styled

_BLUE, _ORANGE, _GREEN, _, _, _GREY = COLOURS
_TALL = 12
"""Layers up to which strips stand in one column; deeper models have two."""


@styled
def spectra_grid(report: Any) -> Figure:
    """Return a strip for every layer: the singular values of its heads side by side over their fitted scale, the bulk
    of the null shaded, outliers marked. `report` is what `heads` returns."""
    layers = sorted({h.layer for h in report.heads})
    columns = 1 if len(layers) <= _TALL else 2
    rows = math.ceil(len(layers) / columns)
    figure, axes = panels(rows, columns, 8.2, 1.5 + 1.15 * rows, sharex=True, sharey=True)
    low, high = report.null.edges
    floor = 0.3 * max(low, 0.05)
    for number, layer in enumerate(layers):
        axis = axes[number % rows][number // rows]
        axis.axhspan(max(low, floor), high, color=_GREY, alpha=0.15, linewidth=0, label="bulk of the null")
        axis.axhline(report.null.level, color=_GREY, linewidth=0.8, linestyle="--", label="level of its top value")
        for h in (h for h in report.heads if h.layer == layer):
            if h.scale <= 0:
                continue
            over = h.values / (h.scale * report.null.d)
            out = over > report.null.level
            at = np.full(len(over), float(h.head))
            axis.plot(at[~out], np.maximum(over[~out], floor), "_", color=_BLUE, markersize=7, markeredgewidth=0.8)
            axis.plot(at[out], over[out], "o", color=_ORANGE, markersize=3)
        axis.set_yscale("log")
        axis.set_ylabel(f"layer {layer}", rotation=0, ha="right", va="center", fontsize=8)
        axis.grid(axis="x", visible=False)
    for spare in range(len(layers), rows * columns):
        axes[spare % rows][spare // rows].set_visible(False)
    for axis in axes[rows - 1]:
        axis.set_xlabel("head")
    axes[0][0].plot([], [], "_", color=_BLUE, markersize=7, label="singular value / scale")
    axes[0][0].plot([], [], "o", color=_ORANGE, markersize=3, label="outlier")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    figure.suptitle(f"{report.name}: query-key spectra beside independent weights", fontsize=10)
    return figure


@styled
def head_maps(report: Any) -> Figure:
    """Return two maps over layers and heads: the effective rank over the null's, and the number of outliers."""
    layers, heads = sorted({h.layer for h in report.heads}), 1 + max(h.head for h in report.heads)
    rank, outliers = (np.full((len(layers), heads), np.nan) for _ in range(2))
    for h in report.heads:
        at = layers.index(h.layer), h.head
        rank[at], outliers[at] = h.ranks.effective / report.null.ranks.effective, len(h.outliers)
    figure, axes = panels(1, 2, 9.0, max(3.0, 1.2 + 0.2 * len(layers)), sharey=True)
    shown = ((rank, "effective rank / that of the null", "viridis"), (outliers, "outliers", "magma_r"))
    for axis, (values, title, colours) in zip(axes[0], shown, strict=True):
        picture = axis.imshow(values, aspect="auto", cmap=colours, interpolation="nearest")
        axis.set(title=title, xlabel="head")
        axis.grid(visible=False)
        figure.colorbar(picture, ax=axis, shrink=0.85)
    axes[0][0].set_ylabel("layer")
    axes[0][0].set_yticks(range(len(layers)), [str(layer) for layer in layers], fontsize=7 if len(layers) > 12 else 9)
    figure.suptitle(report.name, fontsize=10)
    return figure


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
    figure.suptitle(f"{cut.checkpoint.path.name}: mean rank {mean:.3g}, all heads cut: {told}", fontsize=10)
    return figure


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
    axis.set_xticks(range(len(names)), [n.replace(" and ", "\nand ").replace(" embed", "\nembed") for n in names])
    axis.set(ylabel="accuracy of linear probes", ylim=(0.0, 1.05))
    axis.grid(axis="x", visible=False)
    figure.legend(loc="outside lower center", ncols=3)
    figure.suptitle(report.name, fontsize=10)
    return figure
