"""Four panels of a training run: risk, alignments, paths, distance to the manifold."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from needlepoint.core.results import Trajectory
from needlepoint.plotting.style import COLOURS, THEORY, TRAINING, panels, styled

Series = dict[str, np.ndarray]
FLOOR = 1e-8  # the distance panel starts here; smaller distances are drawn on its lower edge


def quantities(trajectory: Trajectory) -> Series:
    """Return what the panels show by name, arrays (runs, records)."""
    return {
        "excess_risk": trajectory.excess_risk,
        "abs_key": np.abs(trajectory.overlaps["key"]),
        "abs_value": np.abs(trajectory.overlaps["value"]),
        "distance": trajectory.distance_to_manifold,
    }


@styled
def four_panels(
    theory: Trajectory,
    training: Trajectory | None,
    *,
    oracle: float | None,
    all_runs: bool = False,
    risk_limits: tuple[float, float] = (-0.1, 6.0),
) -> Figure:
    """Return four panels: the theory as mean and 95 % interval over runs, training as means with standard errors.

    With `all_runs` every run is drawn instead of the means. `oracle` is the excess risk of the best weights at the last
    scale, drawn as a line.
    """
    figure, axes = panels(1, 4, 13.2, 3.7)
    (risk_axis, alignment_axis, path_axis, distance_axis) = axes[0]
    shown = quantities(theory)
    _lines(risk_axis, theory.steps, shown["excess_risk"], COLOURS[0], THEORY, all_runs)
    if oracle is not None:
        risk_axis.axhline(oracle, color="#999999", linestyle=":", linewidth=1.2, label="oracle at the last scale")
    risk_axis.set(ylim=risk_limits, xlabel="step", ylabel="excess risk", title="Excess risk")
    for name, label, colour in (
        ("abs_key", r"$|\kappa|$ key", COLOURS[0]),
        ("abs_value", r"$|\nu|$ value", COLOURS[1]),
    ):
        _lines(alignment_axis, theory.steps, shown[name], colour, label, all_runs)
    alignment_axis.set(ylim=(-0.03, 1.05), xlabel="step", ylabel="overlap with the teacher", title="Alignment")
    _paths(path_axis, theory)
    floored = np.maximum(shown["distance"], FLOOR)
    _lines(distance_axis, theory.steps, floored, COLOURS[0], THEORY, all_runs)
    distance_axis.set_ylim(FLOOR, 2.0)
    distance_axis.set(yscale="log", xlabel="step", title="Distance to the manifold")
    distance_axis.set_ylabel(r"$\sqrt{\theta^2+\eta^2+\rho^2}$")
    if training is not None:
        measured = quantities(training)
        for axis, name, colour in (
            (risk_axis, "excess_risk", COLOURS[0]),
            (alignment_axis, "abs_key", COLOURS[0]),
            (alignment_axis, "abs_value", COLOURS[1]),
            (distance_axis, "distance", COLOURS[0]),
        ):
            _points(axis, training.steps, measured[name], colour, all_runs)
    for axis in (risk_axis, alignment_axis, distance_axis):
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(FuncFormatter(_thousands))
    for axis in axes[0]:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def _thousands(step: float, _: Any) -> str:
    return f"{step / 1000:g}k" if step >= 1000 else f"{step:g}"


def _lines(axis: Any, steps: np.ndarray, runs: np.ndarray, colour: str, label: str, all_runs: bool) -> None:
    if all_runs:
        for i, run in enumerate(runs):
            axis.plot(
                steps, run, color=colour, alpha=0.45, linewidth=0.8, label=f"{label}, each run" if i == 0 else None
            )
        return
    low, high = np.quantile(runs, [0.025, 0.975], axis=0)
    axis.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    axis.plot(steps, runs.mean(axis=0), color=colour, label=label)


def _points(axis: Any, steps: np.ndarray, runs: np.ndarray, colour: str, all_runs: bool) -> None:
    """Draw means over training runs at about a dozen records, with one standard error; or every run as dots."""
    picked = np.unique(np.linspace(0, len(steps) - 1, 13).astype(int))
    floor = FLOOR if axis.get_yscale() == "log" else -np.inf
    if all_runs:
        for i, run in enumerate(runs):
            label = f"{TRAINING} (d-dim., {len(runs)} runs)" if i == 0 and colour == COLOURS[0] else None
            axis.plot(steps[picked], np.maximum(run[picked], floor), ".", color=colour, markersize=4, label=label)
        return
    mean = runs[:, picked].mean(axis=0)
    error = runs[:, picked].std(axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else None
    old = axis.get_legend_handles_labels()[1]
    label = f"{TRAINING} (d-dim., {len(runs)} runs)" if not any(TRAINING in o for o in old) else None
    axis.errorbar(
        steps[picked],
        np.maximum(mean, floor),
        yerr=error,
        fmt="o",
        markersize=4,
        color=colour,
        markerfacecolor="white",
        linewidth=1.0,
        label=label,
        zorder=5,
    )


def _paths(axis: Any, theory: Trajectory) -> None:
    colours = {"oracle": COLOURS[2], "swapped": COLOURS[1], "other": COLOURS[3], "diverged": COLOURS[5]}
    seen: set[str] = set()
    for run in range(theory.runs):
        branch = theory.branches[run]
        key, value = theory.overlaps["key"][run], theory.overlaps["value"][run]
        label = None if branch in seen else f"ends {branch} ({theory.branches.count(branch)} of {theory.runs})"
        seen.add(branch)
        axis.plot(key, value, color=colours[branch], linewidth=0.9, alpha=0.7, label=label)
        axis.plot(key[-1], value[-1], "o", color=colours[branch], markersize=3.5)
    axis.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), title="Paths", aspect="equal")
    axis.set_xlabel(r"$\kappa$ (key)")
    axis.set_ylabel(r"$\nu$ (value)")


def trajectory_table(theory: Trajectory, training: Trajectory | None) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows of the drawn numbers: mean, 95 % interval over runs, and standard error of the mean."""
    columns = ["source", "step", "scale"]
    for name in quantities(theory):
        columns += [f"{name}_mean", f"{name}_low", f"{name}_high", f"{name}_stderr"]
    rows: list[list[Any]] = []
    for source, t in ((THEORY, theory), (TRAINING, training)):
        if t is None:
            continue
        parts = []
        for runs in quantities(t).values():
            low, high = np.quantile(runs, [0.025, 0.975], axis=0)
            error = runs.std(axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else np.full(runs.shape[1], np.inf)
            parts += [runs.mean(axis=0), low, high, error]
        rows += [
            [source, s.item(), float(l), *map(float, p)] for s, l, *p in zip(t.steps, t.scale, *parts, strict=True)
        ]
    return columns, rows


def run_table(theory: Trajectory) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows of the path panel: the overlaps of every run at every record."""
    names = list(theory.overlaps)
    rows = [
        [run, theory.branches[run], step.item(), *(float(theory.overlaps[n][run, i]) for n in names)]
        for run in range(theory.runs)
        for i, step in enumerate(theory.steps)
    ]
    return ["run", "branch", "step", *names], rows
