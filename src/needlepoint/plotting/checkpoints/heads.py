"""Spectra of a checkpoint's heads beside their null, and maps over layers and heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from needlepoint.plotting.style import COLOURS, panels, styled

_BLUE, _ORANGE, _GREY = COLOURS[0], COLOURS[1], COLOURS[5]
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
