"""Four panels of descent from many starts, coloured by where runs end, with training from the very same starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from needlepoint.core.results import Trajectory
from needlepoint.plotting.style import COLOURS, GREY, THEORY, TRAINING, legend_above, panels, styled
from needlepoint.plotting.trajectories import FLOOR, quantities

ENDS = {"oracle": COLOURS[2], "swapped": COLOURS[1], "other": COLOURS[3], "diverged": COLOURS[5]}
"""The colour of each end of a run."""

_PATHS = 40  # most paths that are drawn of one end; more would hide one another
_RECORDS = 13  # records at which a training run is marked
_ALPHA = 0.16  # opacity of the 95 % interval


@styled
def descent_panels(
    theory: Trajectory,
    training: Trajectory | None,
    *,
    oracle: float | None,
    followed: Trajectory | None = None,
    all_runs: bool = False,
    most_risk: float = 6.0,
) -> Figure:
    """Return four panels of the theory's runs as median and 95 % interval, one for each end.

    training   runs with real vectors, drawn as circles, each in the colour of its end
    followed   the theory's runs from the same starts as `training`, drawn as thin lines under the circles
    all_runs   draws every run of `theory` as a thin line instead of medians and intervals
    oracle     excess risk of the best weights at the last scale, drawn as a line
    most_risk  where the axis of the risk ends at most
    """
    figure, axes = panels(1, 4, 13.2, 4.1)
    risk_axis, alignment_axis, path_axis, distance_axis = axes[0]
    places = ((risk_axis, "excess_risk", "-"), (alignment_axis, "abs_key", "-"), (alignment_axis, "abs_value", "--"))
    for axis, name, style in (*places, (distance_axis, "distance", "-")):
        floor = FLOOR if name == "distance" else -np.inf
        shown = np.maximum(quantities(theory)[name], floor)
        _theory(axis, theory, shown, style, all_runs)
        if followed is not None:
            _each(axis, followed, np.maximum(quantities(followed)[name], floor), style)
        if training is not None:
            _circles(axis, training, np.maximum(quantities(training)[name], floor))
    if oracle is not None:
        risk_axis.axhline(oracle, color="#999999", linestyle=":", linewidth=1.2)
    risk_axis.set(xlabel="step", ylabel="excess risk", title="Excess risk")
    risk_axis.set_ylim(*_risks([t for t in (theory, training) if t is not None], oracle, most_risk))
    alignment_axis.set(ylim=(-0.03, 1.05), xlabel="step", ylabel="overlap with the teacher", title="Alignment")
    _paths(path_axis, theory)
    distance_axis.set(yscale="log", xlabel="step", title="Distance to the manifold", ylim=(_lowest(theory), 2.0))
    distance_axis.set_ylabel(r"$\sqrt{\theta^2+\eta^2+\rho^2}$")
    if np.nanmax(theory.distance_to_manifold) < FLOOR:
        distance_axis.text(0.5, 0.5, "zero, up to rounding", ha="center", transform=distance_axis.transAxes, color=GREY)
    for axis in (risk_axis, alignment_axis, distance_axis):
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(FuncFormatter(_thousands))
    named = _key(theory, training, followed, oracle, all_runs)
    legend_above(figure, named)
    return figure


def _key(
    theory: Trajectory, training: Trajectory | None, followed: Trajectory | None, oracle: float | None, all_runs: bool
) -> dict[str, Any]:
    """Return the legend: every colour, line and marker of the four panels."""
    named: dict[str, Any] = {}
    for end in _ends(theory):
        count = theory.branches.count(end)
        named[f"ends {_article(end)} ({count} of {theory.runs} {THEORY} runs)"] = Line2D([], [], color=ENDS[end])
    width, what = (0.8, "each run") if all_runs else (1.6, "median over runs and 95 % of them")
    named[f"{THEORY}: {what}"] = Line2D([], [], color=GREY, linewidth=width)
    named[r"alignment of the value $|\nu|$ (of the key $|\kappa|$: full lines)"] = Line2D(
        [], [], color=GREY, linestyle="--"
    )
    if training is not None:
        start = "; thin lines: theory from the same starts" if followed is not None else ""
        named[f"{TRAINING} with vectors, {training.runs} runs{start}"] = Line2D(
            [], [], color=GREY, linestyle="", marker="o", markersize=4, markerfacecolor="white"
        )
    if oracle is not None:
        named["oracle at the last scale"] = Line2D([], [], color="#999999", linestyle=":", linewidth=1.2)
    named["paths: pale early, full late; dot: end"] = Line2D([], [], color=GREY, marker="o", markersize=3.5, alpha=0.7)
    return named


def _article(end: str) -> str:
    return {"oracle": "at the oracle", "swapped": "at the swapped minimum", "other": "elsewhere"}.get(end, end)


def _ends(trajectory: Trajectory) -> list[str]:
    """Return the ends of the runs, the most frequent first."""
    return sorted(set(trajectory.branches), key=lambda end: (-trajectory.branches.count(end), end))


def _of(trajectory: Trajectory, end: str) -> np.ndarray:
    return np.array([branch == end for branch in trajectory.branches])


def _risks(shown: list[Trajectory], oracle: float | None, most: float) -> tuple[float, float]:
    """Return the ends of the axis of the risk: around all that is drawn, but not above `most`.

    It begins at zero, unless all risks are large.
    """
    highest = [float(np.nanmax(np.nanquantile(t.excess_risk, 0.975, axis=0))) for t in shown]
    lowest = [float(np.nanmin(t.excess_risk)) for t in shown] + ([] if oracle is None else [oracle])
    top = min(most, 1.06 * max([h for h in highest if np.isfinite(h)], default=most)) or most
    low = min([x for x in lowest if np.isfinite(x)], default=0.0)
    return (0.93 * low if low > 0.4 * top else -0.02 * top), top


def _lowest(theory: Trajectory) -> float:
    """Return where the axis of the distance begins: a decade below what is drawn, but not below `FLOOR`."""
    drawn = np.nanmin(np.nanquantile(theory.distance_to_manifold, 0.025, axis=0))
    return float(np.clip(10 ** np.floor(np.log10(max(drawn, FLOOR))), FLOOR, 0.1))


def _thousands(step: float, _: Any) -> str:
    return f"{step / 1000:g}k" if step >= 1000 else f"{step:g}"


def _theory(axis: Any, theory: Trajectory, runs: np.ndarray, style: str, all_runs: bool) -> None:
    if all_runs:
        _each(axis, theory, runs, style, alpha=0.6)
        return
    for end in _ends(theory):
        mine = runs[_of(theory, end)]
        low, middle, high = np.quantile(mine, [0.025, 0.5, 0.975], axis=0)
        axis.fill_between(theory.steps, low, high, color=ENDS[end], alpha=_ALPHA, linewidth=0)
        axis.plot(theory.steps, middle, color=ENDS[end], linestyle=style)


def _each(axis: Any, theory: Trajectory, runs: np.ndarray, style: str, alpha: float = 0.9) -> None:
    for run, end in zip(runs, theory.branches, strict=True):
        axis.plot(theory.steps, run, color=ENDS[end], linestyle=style, linewidth=0.7, alpha=alpha)


def _circles(axis: Any, training: Trajectory, runs: np.ndarray) -> None:
    """Draw each training run as circles at about a dozen records."""
    picked = np.unique(np.linspace(0, len(training.steps) - 1, _RECORDS).astype(int))
    for end in _ends(training):
        mine = runs[_of(training, end)][:, picked]
        at = np.broadcast_to(training.steps[picked], mine.shape)
        look = {"markersize": 3.4, "markerfacecolor": "white", "markeredgewidth": 0.8, "linestyle": ""}
        axis.plot(at.ravel(), mine.ravel(), "o", color=ENDS[end], zorder=5, **look)


def _paths(axis: Any, theory: Trajectory) -> None:
    """Draw paths in the plane of both alignments, pale where it is early: time is the logarithm of the step."""
    time = np.log1p(theory.steps[1:]) / max(float(np.log1p(theory.steps[-1])), 1e-9)
    for end in _ends(theory):  # the rarest on top
        for run in np.flatnonzero(_of(theory, end))[:_PATHS]:
            at = np.column_stack([theory.overlaps["key"][run], theory.overlaps["value"][run]])
            pieces = np.stack([at[:-1], at[1:]], axis=1)
            inks = [to_rgba(ENDS[end], 0.15 + 0.85 * t**4) for t in time]
            axis.add_collection(LineCollection(list(pieces), colors=inks, linewidths=0.9))
            axis.plot(*at[-1], "o", color=ENDS[end], markersize=3.5)
    axis.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), title="Paths", aspect="equal")
    axis.set_xlabel(r"$\kappa$ (key)")
    axis.set_ylabel(r"$\nu$ (value)")
