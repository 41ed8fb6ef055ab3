"""The trajectory of a descent or a flow: four panels with limits that fit the run, or its risk alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from needlepoint.core.results import Measurement, Result, Trajectory
from needlepoint.plotting.style import COLOURS, THEORY, TRAINING
from needlepoint.plotting.trajectories import four_panels


def draw_descent(result: Result, tests: tuple[Measurement, ...]) -> Figure:
    """Return the four panels of a trajectory, with limits and legends that fit this run."""
    path, training = _paths(result, tests)
    every = [path] if training is None else [path, training]
    top = _top(every)
    figure = four_panels(_ended(path), training, oracle=None, risk_limits=(-0.03 * top, 1.05 * top))
    if not path.branches:
        _rename(figure, "ends other", "each run, to its dot", whole=True)
    if isinstance(result, Measurement):
        _rename(figure, THEORY, f"{TRAINING} (d = {result.d}, {path.runs} runs)")
    risk, alignment, paths, distance = figure.axes
    if not np.issubdtype(path.steps.dtype, np.integer):
        for axis in (risk, alignment, distance):
            axis.set_xlabel("time")
    # where the norms are free an overlap may leave [-1, 1], for which the panels are made
    reach = max([1.0, *(_reach(t, name) for t in every for name in ("key", "value"))])
    if reach > 1.0:
        alignment.set_ylim(-0.03 * reach, 1.05 * reach)
        paths.set(xlim=(-1.08 * reach, 1.08 * reach), ylim=(-1.08 * reach, 1.08 * reach))
    return figure


def draw_risk(axis: Any, result: Result, tests: tuple[Measurement, ...]) -> None:
    """Draw the excess risk against step or time on one panel: mean over runs, and the interval that holds 95 % of
    them."""
    path, training = _paths(result, tests)
    first = f"{TRAINING}, $d$ = {result.d}" if isinstance(result, Measurement) else THEORY
    second = next((f"{TRAINING}, $d$ = {m.d}" for m in reversed(tests) if m.trajectory is not None), "")
    for shown, colour, label in ((path, COLOURS[0], first), (training, COLOURS[1], second)):
        if shown is None:
            continue
        low, high = np.quantile(shown.excess_risk, [0.025, 0.975], axis=0)
        axis.fill_between(shown.steps, low, high, color=colour, alpha=0.18, linewidth=0)
        line = "-" if shown is path else "--"
        axis.plot(shown.steps, shown.excess_risk.mean(axis=0), line, color=colour, label=label)
    whole = np.issubdtype(path.steps.dtype, np.integer)
    axis.set(xlabel="step" if whole else "time", ylabel="excess risk")
    axis.legend()


def _paths(result: Result, tests: tuple[Measurement, ...]) -> tuple[Trajectory, Trajectory | None]:
    assert result.trajectory is not None
    return result.trajectory, next((m.trajectory for m in reversed(tests) if m.trajectory is not None), None)


def _top(every: list[Trajectory]) -> float:
    risks = np.concatenate([t.excess_risk.ravel() for t in every])
    return float(np.max(risks[np.isfinite(risks)], initial=0.0)) or 1.0


def _ended(path: Trajectory) -> Trajectory:
    return path if path.branches else dataclasses.replace(path, branches=("other",) * path.runs)


def _reach(path: Trajectory, name: str) -> float:
    found = np.abs(path.overlaps[name])
    return float(np.max(found[np.isfinite(found)], initial=0.0))


def _rename(figure: Figure, old: str, new: str, whole: bool = False) -> None:
    """Replace `old` in the legend texts that start with it, or with `whole` the whole text."""
    for axis in figure.axes:
        legend = axis.get_legend()
        for text in legend.get_texts() if legend is not None else ():
            if text.get_text().startswith(old):
                text.set_text(new if whole else text.get_text().replace(old, new))
