"""Figures as data: which points (computations) a figure needs, and how their records (results) are drawn."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from needlepoint.core.errors import UnknownName
from needlepoint.core.specs import Spec

Size = Literal["quick", "full"]


@dataclass(frozen=True)
class Point:
    """One computation of a figure: a public function of the package (`verb`), called with the specs and options.

    label, x  which curve the result belongs to, and where on it
    follow    makes a simulation take the specs and overlaps that the prediction of the same specs chose
    """

    verb: str
    task: Any
    model: Any = None
    learner: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    x: float | None = None
    follow: bool = False

    @property
    def question(self) -> tuple[Spec, Spec | None, Spec | None]:
        return (self.task, self.model, self.learner)


@dataclass(frozen=True)
class Record:
    """A point and what came out of it."""

    point: Point
    result: Any


@dataclass(frozen=True)
class Drawing:
    """A matplotlib figure and the numbers it shows: tables (columns, rows) by name."""

    figure: Any
    tables: dict[str, tuple[list[str], list[list[Any]]]]


@dataclass(frozen=True)
class Figure:
    """A published figure: `points` gives what to compute at a size, `draw` draws it; `paper` is an arXiv number.

    `aside` is a figure outside the three bodies of work, which the quick run draws only where it is named.
    """

    id: str
    title: str
    paper: str
    caption: str
    points: Callable[[Size], Sequence[Point]]
    draw: Callable[[Sequence[Record]], Drawing]
    aside: bool = False

    @property
    def cost(self) -> float:
        """Return how many seconds of one core the quick size takes, roughly; only the estimate of the time left uses
        it."""
        return _COSTS.get(self.id, 5.0)


_COSTS = {
    "erf-dimension": 35.0,
    "erf-flow": 2.0,
    "erf-large-scale": 4.0,
    "erf-manifold": 3.0,
    "erf-schedule": 12.0,
    "erf-sgd": 30.0,
    "erf-small-scale": 4.0,
    "heads-crossing": 700.0,
    "heads-sgd": 47.0,
    "indexed-best": 40.0,
    "indexed-errors": 20.0,
    "indexed-power-law": 30.0,
    "indexed-readout": 6.0,
    "indexed-spectra": 20.0,
    "indexed-temperature": 30.0,
    "indexed-thresholds": 1.0,
    "ridge-optimal": 25.0,
    "ridge-penalty": 37.0,
    "ridge-samples": 75.0,
    "ridge-stability": 25.0,
    "semantic-transition": 150.0,
    "several-relevant": 55.0,
    "sign-labels": 35.0,
    "softmax-decay": 12.0,
    "softmax-landscape": 8.0,
    "softmax-length": 25.0,
    "softmax-random-lengths": 55.0,
    "softmax-snr": 40.0,
}


def spread(low: float, high: float, count: int, *others: float) -> list[float]:
    """Return `count` numbers from `low` to `high` with equal ratios, and the `others`, sorted.

    They have four digits, so that curves with common ends share points.
    """
    each = (float(f"{low * (high / low) ** (i / (count - 1)):.4g}") for i in range(count))
    return sorted({*each, *others})


_FIGURES: dict[str, Figure] = {}


def register(figure: Figure) -> Figure:
    if figure.id in _FIGURES:
        raise ValueError(f"two figures are named {figure.id}")
    _FIGURES[figure.id] = figure
    return figure


def figures() -> dict[str, Figure]:
    """Return all figures by id; importing the modules of `needlepoint.papers` registers them."""
    import needlepoint.papers as here

    for module in pkgutil.walk_packages(here.__path__, "needlepoint.papers."):
        importlib.import_module(module.name)
    return dict(_FIGURES)


HEADLINES = ("erf-small-scale", "ridge-penalty", "indexed-spectra")
"""One figure of each body of work that is drawn before all others, so that the first minute shows all three."""


def headlines_first(known: dict[str, Figure]) -> list[str]:
    """Return the ids with the headlines first; the others follow, the costliest first, so that no core ends alone."""
    others = sorted((name for name in known if name not in HEADLINES), key=lambda name: -known[name].cost)
    return [*(name for name in HEADLINES if name in known), *others]


def figure(name: str) -> Figure:
    known = figures()
    if name not in known:
        raise UnknownName("figure", name, known)
    return known[name]
