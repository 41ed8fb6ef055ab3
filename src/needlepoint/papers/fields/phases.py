"""Positional against semantic attention: both phases over the number of samples, and where their order changes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from needlepoint.core.results import Measurement, Prediction
from needlepoint.learners import Ridge
from needlepoint.losses import Square
from needlepoint.models.tied_columns import LowRankTied
from needlepoint.papers.fields.records import COLUMNS, curve, said
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register
from needlepoint.tasks.positional_semantic import PositionalSemantic

PAPER = "2402.03902"
SIGMA, PENALTY = 0.5, 0.01
"""The spread of the tokens and the penalty, as the paper counts them."""

TASK, MODEL = PositionalSemantic(omega=0.3, sigma=SIGMA), LowRankTied()
PHASES = ("positional", "semantic")
ALPHAS = tuple(round(0.6 + 0.08 * i, 2) for i in range(24))
TOLERANCE = {"quick": 1e-3, "full": 2e-4}
TRAINED = {"quick": (0.68, 1.48, 1.96), "full": (0.6, 0.76, 0.92, 1.08, 1.4, 1.8, 2.2)}


def learner(alpha: float) -> Ridge:
    """Return the learner with the paper's loss and penalty in units of the library: penalties are over sigma^2."""
    return Ridge(alpha, PENALTY / SIGMA**2, loss=Square(weight=SIGMA**2))


def points(size: Size) -> list[Point]:
    found = [Point("field_branches", TASK, MODEL, learner(a), {"tol": TOLERANCE[size]}, "phases", a) for a in ALPHAS]
    sizes = [(400, 16, 1)] if size == "quick" else [(400, 32, 1), (200, 64, 2)]
    for alpha in TRAINED[size]:
        found.append(Point("predict", TASK, MODEL, learner(alpha), {"tol": TOLERANCE[size]}, "lower", alpha))
        for d, repeats, seed in sizes:
            options = {"d": d, "repeats": repeats, "samples": 10_000, "seed": seed}
            found.append(Point("simulate", TASK, MODEL, learner(alpha), options, "lower", alpha))
    return found


def crossing(phases: Sequence[tuple[float, dict[str, Prediction]]]) -> tuple[float, float] | None:
    """Return the alpha at which the energies of two phases cross between neighbours on a grid, and its error: that of
    the difference of the energies over its slope. None if they do not cross."""
    gaps = [(alpha, *(found[name].energy for name in PHASES)) for alpha, found in sorted(phases, key=lambda p: p[0])]
    for (low, p, s), (high, p2, s2) in itertools.pairwise(gaps):
        before, after = s.value - p.value, s2.value - p2.value
        if before > 0 >= after:
            slope = (before - after) / (high - low)
            error = max(p.error + s.error, p2.error + s2.error)
            return low + before / slope, error / slope
    return None


def draw(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.fields.transitions import Mark, Sheet, transition_panels

    phases = [(float(r.point.x or 0), r.result) for r in records if r.point.verb == "field_branches"]
    lower = {r.point.x: r.result.branch for r in records if isinstance(r.result, Prediction)}
    every = [
        Record(replace(r.point, label=name), r.result[name])
        for r in records
        if r.point.verb == "field_branches"
        for name in PHASES
    ]
    # what is trained is the lower minimum, and belongs to the phase that is predicted to be lower
    every += [
        Record(replace(r.point, label=lower[r.point.x]), r.result) for r in records if isinstance(r.result, Measurement)
    ]
    shown: list[Any] = []
    table: list[list[Any]] = []
    panels = (
        ("energy", "energy", "energy"),
        ("risk", "risk", "mean squared error"),
        ("overlap", "", "overlap of the query with its teacher"),
    )
    for title, quantity, ylabel in panels:
        curves = []
        for colour, name in enumerate(PHASES):
            one, rows = curve(every, name, quantity or f"query_on_{name}", colour, f"{name} phase")
            curves.append(one)
            table += rows
        shown.append(Sheet(title, ylabel, curves))
    found = crossing(phases)
    marks = [] if found is None else [Mark(f"energies cross at {found[0]:.3f} ± {found[1]:.3f}", *found)]
    measured, smaller = said(records)
    figure = transition_panels(
        shown, r"samples over dimension $\alpha$", measured=measured, smaller=smaller, marks=marks
    )
    place = [["energies cross", *found]] if found else []
    return Drawing(figure, {"curves": (COLUMNS, table), "transition": (["what", "alpha", "error"], place)})


register(
    Figure(
        "semantic-transition",
        "Positional and semantic attention exchange their order",
        PAPER,
        "Tied attention of rank one learns from where tokens stand or from what they say. With few samples the "
        "positional phase has the lower energy, with many the semantic one. Overlaps are with the direction that the "
        "phase has learned, in units of the library. Broken lines: the theory says of this phase that it is not to be "
        "trusted there. Training keeps the lower of two minima, which near the transition is the other phase in some "
        "of the repeats.",
        points,
        draw,
    )
)
