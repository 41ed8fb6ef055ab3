"""Figures of arXiv 2509.21936: the least risk of softmax and other attentions on single-location regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from needlepoint.core.results import Measurement, Prediction
from needlepoint.learners import BayesOptimal, Population
from needlepoint.models.activations import Erf, Linear, Softmax, Softplus
from needlepoint.models.attention import KeyValueAttention
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR

PAPER = "2509.21936"
ATTENTIONS = {
    "softmax (= Bayes)": KeyValueAttention(Softmax()),
    "softplus": KeyValueAttention(Softplus()),
    "erf, best shift": KeyValueAttention(Erf(scale=1.0, shift=None, offset=1.0)),
    "linear": KeyValueAttention(Linear()),
}
BOUND = "element-wise bound"
DIMENSION = 30
"""Of the vectors with which optima are measured."""

COLUMNS = ["panel", "curve", "source", "x", "excess_risk", "error", "error_kind"]


def _optimum(task: SingleLocation, name: str, panel: str, x: float, size: Size, *, measured: bool) -> list[Point]:
    """Return the points of one attention's least risk and, if `measured`, of that risk by Monte Carlo with vectors."""
    model, label = ATTENTIONS[name], f"{panel}, {name}"
    points = [Point("predict", task, model, Population(), label=label, x=x)]
    if measured:
        points.append(Point("simulate", task, model, Population(), _sampling(task, size), label, x, follow=True))
    return points


MEASURED = f"Monte Carlo at the optimum, d = {DIMENSION}, ± standard error"
"""What the circles of these figures are: nothing is trained in them."""


def _sampling(task: SingleLocation, size: Size) -> dict[str, Any]:
    """Return the options of a Monte Carlo; sequences of over ten tokens are dear, and fewer of them do."""
    samples = (3_000 if size == "quick" else 8_000) * 10 // max(10, task.longest)
    return {"d": DIMENSION, "repeats": 16, "samples": samples, "seed": 1}


def _curve(records: Sequence[Record], panel: str, name: str, **style: Any) -> tuple[Any, list[list[Any]]]:
    """Return one curve with its measured points, and the rows of its table (`COLUMNS`)."""
    from needlepoint.plotting.curves import Curve

    mine = [r for r in records if r.point.label == f"{panel}, {name}"]
    lines = [(float(r.point.x or 0), _excess(r)) for r in mine if not isinstance(r.result, Measurement)]
    dots = [(float(r.point.x or 0), _excess(r)) for r in mine if isinstance(r.result, Measurement)]
    curve = Curve(
        name, [x for x, _ in lines], [e.value for _, e in lines], [(x, e.value, e.error) for x, e in dots], **style
    )
    rows = [
        [panel, name, source, x, e.value, e.error, e.kind]
        for source, values in (("theory", lines), ("simulation", dots))
        for x, e in values
    ]
    return curve, rows


def _excess(record: Record) -> Any:
    """Return the excess risk of a record, whose verb returned a result with metrics, an estimate, or a number."""
    from needlepoint.core.estimates import Estimate

    if isinstance(record.result, (Prediction, Measurement)):
        return record.result.excess_risk
    return record.result if isinstance(record.result, Estimate) else Estimate(float(record.result))


# --- risk against snr ----------------------------------------------------------------------------

_SNR_TASKS = {"spiked": SpikedSLR, "max": MaxSLR}


def _snr_points(size: Size) -> list[Point]:
    steps, every = (25, 8) if size == "quick" else (40, 8)
    points = []
    for panel, task in _SNR_TASKS.items():
        for i in range(steps):
            snr = 0.1 * 100.0 ** (i / (steps - 1))
            for name in ATTENTIONS:
                points += _optimum(task(2, snr=snr), name, panel, snr, size, measured=i % every == every // 2)
            points.append(Point("elementwise_bound", task(2, snr=snr), label=f"{panel}, {BOUND}", x=snr))
    return points


def _draw_snr(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.curves import CurvePanel, curve_panels

    shown, rows = [], []
    for panel in _SNR_TASKS:
        curves = []
        for i, name in enumerate([*ATTENTIONS, BOUND]):
            style = {"colour": i} if name != BOUND else {"colour": 5, "line": ":"}
            curve, mine = _curve(records, panel, name, **style)
            curves.append(curve)
            rows += mine
        shown.append(CurvePanel(f"{panel}, 2 tokens", r"snr $\mu$", curves, yscale="linear"))
    return Drawing(curve_panels(shown, "excess risk", (0.0, 0.52), MEASURED), {"curves": (COLUMNS, rows)})


register(
    Figure(
        "softmax-snr",
        "Excess risk against snr",
        PAPER,
        "Two tokens: softmax attention reaches the Bayes risk at every snr on both tasks; linear and element-wise erf "
        "do not, and on the max task they do not vanish.",
        _snr_points,
        _draw_snr,
    )
)


# --- risk against length -------------------------------------------------------------------------

_LONG = ("linear", "erf, best shift")
_BAYES = "softmax (infimum)"


def _length_points(size: Size) -> list[Point]:
    full = [*range(2, 11), *range(12, 31, 2), *range(35, 101, 5)]
    lengths = [2, 3, 4, 5, 6, 8, 10, 14, 20, 30, 50, 70, 100] if size == "quick" else full
    points = []
    for length in lengths:
        task = MaxSLR(length, snr=math.inf)
        for name in _LONG:
            points += _optimum(task, name, "max", length, size, measured=length in (2, 5, 20, 50))
        points.append(Point("elementwise_bound", task, label=f"max, {BOUND}", x=length))
        points.append(Point("predict", task, None, BayesOptimal(), label=f"max, {_BAYES}", x=length))
    return points


def _draw_length(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.curves import CurvePanel, curve_panels

    styles = {
        _BAYES: {"colour": 0},
        "erf, best shift": {"colour": 2},
        "linear": {"colour": 3},
        BOUND: {"colour": 5, "line": ":"},
    }
    found = [_curve(records, "max", name, **style) for name, style in styles.items()]
    panel = CurvePanel("max, infinite snr", "tokens $L$", [curve for curve, _ in found], yscale="linear")
    rows = [row for _, mine in found for row in mine]
    return Drawing(curve_panels([panel], "excess risk", (-0.03, 1.0), MEASURED), {"curves": (COLUMNS, rows)})


register(
    Figure(
        "softmax-length",
        "Excess risk against length",
        PAPER,
        "The relevant token is the argmax: linear attention loses all as the sequence grows, element-wise attention "
        "keeps half, softmax loses nothing.",
        _length_points,
        _draw_length,
    )
)


# --- fixed against random lengths ----------------------------------------------------------------

_RANDOM = {1: 1 / 3, 2: 1 / 3, 3: 1 / 3}
_MIXED = ("softmax (= Bayes)", "erf, best shift", "linear")
_SEPARATE = " for each length"


def _mixed_points(size: Size) -> list[Point]:
    steps, every = (15, 7) if size == "quick" else (21, 5)
    points = []
    for panel, task in _SNR_TASKS.items():
        for i in range(steps):
            snr = 0.3 * 30.0 ** (i / (steps - 1))
            mixed = task(_RANDOM, snr=snr)
            for name in _MIXED:
                points += _optimum(mixed, name, panel, snr, size, measured=i % every == every // 2)
                points.append(Point("length_cost", mixed, ATTENTIONS[name], label=f"{panel}, {name}{_SEPARATE}", x=snr))
    return points


def _draw_mixed(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.curves import CurvePanel, curve_panels

    separate = [Record(r.point, r.result.separate) if r.point.verb == "length_cost" else r for r in records]
    shown, rows = [], []
    for panel in _SNR_TASKS:
        curves = []
        for name, colour in zip(_MIXED, (0, 2, 3), strict=True):
            for suffix, line in (("", "-"), (_SEPARATE, "--")):
                curve, mine = _curve(separate, panel, name + suffix, colour=colour, line=line)
                curves.append(curve)
                rows += mine
        shown.append(CurvePanel(f"{panel}, 1 to 3 tokens", r"snr $\mu$", curves, yscale="linear"))
    return Drawing(curve_panels(shown, "excess risk", (0.0, 0.56), MEASURED), {"curves": (COLUMNS, rows)})


register(
    Figure(
        "softmax-random-lengths",
        "Fixed against random lengths",
        PAPER,
        "Lengths 1, 2 and 3 with probability 1/3 each. Solid: one key and value for all lengths; dashed: the mean of "
        "each length's own best. Random lengths cost linear and erf attention, and softmax nothing.",
        _mixed_points,
        _draw_mixed,
    )
)


# --- decay rates ---------------------------------------------------------------------------------

_DECAY_LENGTHS = (2, 10)
_LEADING = ", leading order"


def _decay_points(size: Size) -> list[Point]:
    steps = 34 if size == "quick" else 51
    points = []
    for length in _DECAY_LENGTHS:
        panel = f"L = {length}"
        for i in range(steps):
            snr = 2.0 + 198.0 * i / (steps - 1)
            task = SpikedSLR(length, snr=snr)
            for name, leading in (("softmax (= Bayes)", "bayes_asymptote"), ("linear", "linear_asymptote")):
                points += _optimum(task, name, panel, snr, size, measured=False)
                points.append(Point(leading, task, label=f"{panel}, {name}{_LEADING}", x=snr))
        for snr in (2.0, 8.0, 14.0):
            for name in ("softmax (= Bayes)", "linear"):
                points += _optimum(SpikedSLR(length, snr=snr), name, panel, snr, size, measured=True)
    return points


def _draw_decay(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.curves import CurvePanel, curve_panels

    ordered = sorted(records, key=lambda r: float(r.point.x or 0))
    shown, rows = [], []
    for length in _DECAY_LENGTHS:
        curves = []
        for name, colour in (("softmax (= Bayes)", 0), ("linear", 3)):
            for suffix, line in (("", "-"), (_LEADING, "--")):
                curve, mine = _curve(ordered, f"L = {length}", name + suffix, colour=colour, line=line)
                curves.append(curve)
                rows += mine
        shown.append(CurvePanel(f"spiked, {length} tokens", r"snr $\mu$", curves, xscale="linear"))
    return Drawing(curve_panels(shown, "excess risk", (1e-24, 20.0), MEASURED), {"curves": (COLUMNS, rows)})


register(
    Figure(
        "softmax-decay",
        "Exponential against algebraic decay",
        PAPER,
        "Spiked tokens: softmax attention decays as exp(-snr / 4), linear attention as L / snr. Dashed: the leading "
        "orders. Circles are drawn where sampling can resolve the risk.",
        _decay_points,
        _draw_decay,
    )
)


# --- landscape -----------------------------------------------------------------------------------

_LANDSCAPE = SpikedSLR(3, snr=4.0)
_SURFACES = {
    "softmax": KeyValueAttention(Softmax()),
    "softplus": KeyValueAttention(Softplus()),
    "1 + erf": KeyValueAttention(Erf(scale=1.0, offset=1.0)),
    "linear": KeyValueAttention(Linear()),
}


def _landscape_points(size: Size) -> list[Point]:
    import numpy as np

    cells = 25 if size == "quick" else 61
    grid = {"alignment": np.linspace(-1.0, 1.0, cells), "scale": np.linspace(0.0, 5.5, cells)}
    points = []
    for name, model in _SURFACES.items():
        points.append(Point("key_landscape", _LANDSCAPE, model, options=grid, label=name))
        points.append(Point("predict", _LANDSCAPE, model, Population(), label=name))
        options = {"d": 30, "repeats": 16, "samples": 4_000, "seed": 1}
        points.append(Point("simulate", _LANDSCAPE, model, Population(), options, name, follow=True))
    return points


def _draw_landscape(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.landscape import HeatPanel, heat_panels

    shown, rows, best_rows = [], [], []
    for name in _SURFACES:
        surface, best, _ = (r for r in records if r.point.label == name)
        alignment, scale = (surface.point.options[n] for n in ("alignment", "scale"))
        overlaps = best.result.overlaps
        norm = math.sqrt(overlaps.key_sq)
        star = (overlaps.key / norm, norm) if norm > 0 else (0.0, 0.0)
        shown.append(HeatPanel(name, alignment, scale, surface.result, star))
        rows += [
            [name, float(a), float(s), float(surface.result[i, j])]
            for i, s in enumerate(scale)
            for j, a in enumerate(alignment)
        ]
        excess = best.result.excess_risk
        best_rows.append([name, *star, excess.value, excess.error])
    tables = {
        "surface": (["attention", "alignment", "scale", "excess_risk"], rows),
        "best": (["attention", "alignment", "scale", "excess_risk", "error"], best_rows),
    }
    return Drawing(heat_panels(shown, "excess risk at the best value", "the optimum of this attention"), tables)


register(
    Figure(
        "softmax-landscape",
        "The landscape of the key",
        PAPER,
        "Spiked tokens, L = 3, snr = 4: the excess risk with the best value, over the norm of the key and its cosine "
        "with k*. Stars: the optimum of each attention.",
        _landscape_points,
        _draw_landscape,
    )
)
