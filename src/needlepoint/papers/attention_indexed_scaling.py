"""Figures of arXiv 2509.24914 about how errors scale with temperature, number of tokens and number of sequences (power
laws), and whether they depend on what is read out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from needlepoint.core.results import Measurement, Prediction
from needlepoint.models.attention import TiedAttention
from needlepoint.papers.attention_indexed_points import (
    ALPHA,
    COLUMNS,
    ERROR,
    NOISE,
    PAPER,
    PENALTY,
    TIED,
    TWO,
    asked,
    dimensions,
    labelled,
    learner,
    line,
    sizes,
)
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register, spread
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.tasks.targets import PowerLaw


def _value(record: Record) -> tuple[float, float]:
    found = record.result.estimation_error
    return found.value, found.error


# --- temperature and tokens ----------------------------------------------------------------------

_BETAS = (0.5, 1.0, 2.0)
_HEAT, _TOKENS = "temperature", "tokens"
_SCALED = r"$(T^2 + T - 2)\,\alpha$  (one token: $2\,\alpha$)"


def _beta(beta: float) -> str:
    return rf"$\beta = \beta^*$ = {beta:g}"


def _count(tokens: int) -> str:
    return "one token, linear" if tokens == 1 else f"{tokens} tokens"


def _matched(tokens: int, beta: float = 1.0) -> float:
    """Return a penalty of the same strength relative to the loss for every number of tokens T and every beta.

    Softmax over T tokens has slopes of order beta / T, and the loss is of the order of their squares.
    """
    return 4 * PENALTY * (beta / tokens) ** 2


def _temperature_points(size: Size) -> list[Point]:
    quick = size == "quick"
    alphas = spread(0.03, 2.0, 21, 0.1) if quick else spread(0.02, 3.0, 31, 0.1, 0.3, 1.0)
    trained = (0.1,) if quick else (0.1, 0.3, 1.0)
    points = []
    for beta in _BETAS:
        task, model = TWO.replace(beta_star=beta), TiedAttention(beta=beta)
        for alpha in sorted({*alphas, *trained}):
            where = dimensions(size) if alpha in trained else []
            points += asked(task, model, alpha, _matched(2, beta), f"{_HEAT}, {_beta(beta)}", alpha, size, where)
    every, few = spread(0.1, 4.0, 21) if quick else spread(0.1, 8.0, 31), (0.2, 0.4, 0.6, 0.8, 1.1, 1.5, 2.5, 4.0)
    for tokens in (1, 2, 3) if quick else (1, 2, 3, 4):
        task = TWO.replace(tokens=tokens)
        trained = (0.4, 4.0) if tokens == 1 or (not quick and tokens < 4) else (4.0,) if tokens == 2 else ()
        for x in sorted({*few, *(every if tokens < 4 else ())}):
            where = dimensions(size, tokens) if x in trained else []
            alpha = x / (2 * task.components)
            points += asked(task, TIED, alpha, _matched(tokens), f"{_TOKENS}, {_count(tokens)}", x, size, where)
    return points


def _draw_temperature(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.metrics import MetricPanel, metric_panels

    heat = [line(records, _HEAT, _beta(beta), "estimation_error", colour=i) for i, beta in enumerate(_BETAS)]
    tokens = [line(records, _TOKENS, _count(n), "estimation_error", colour=i) for i, n in enumerate((1, 2, 3, 4))]
    shown = [
        MetricPanel("two tokens", ALPHA, ERROR, [one for one, _ in heat]),
        MetricPanel("one temperature", _SCALED, ERROR, [one for one, _ in tokens if len(one.x)]),
    ]
    rows = [row for _, mine in (*heat, *tokens) for row in mine]
    figure = metric_panels([shown], **sizes(records), legends="own", width=3.9, height=3.6, columns=2)
    return Drawing(figure, {"curves": (COLUMNS, rows)})


register(
    Figure(
        "indexed-temperature",
        "Temperature and tokens",
        PAPER,
        "Left: two tokens, labels and model at the same inverse temperature; cold labels saturate and show less of the "
        "matrix. Right: as long as fewer numbers are shown than the matrix has, errors for any number of tokens nearly "
        "fall on one curve; later the linear label is worth more. Penalty 0.08 (beta / T)^2, the unit of the loss; "
        "noise 0.5, target of rank d/2.",
        _temperature_points,
        _draw_temperature,
    )
)


# --- power laws ----------------------------------------------------------------------------------

_GAMMAS = (0.75, 1.0, 1.5)
_WEAK = 0.01
"""The penalty of training without label noise, where the best penalty is zero, which no training reaches."""

_LARGE = "large"
_SHOWN = {"noisy": NOISE, "noiseless": 0.0}
_SEEN = "recovered"


def _gamma(gamma: float) -> str:
    return rf"$\gamma$ = {gamma:g}"


def _power(gamma: float, d: int, noise: float) -> AttentionIndexed:
    return AttentionIndexed(1, PowerLaw(gamma, d), noise_var=noise)


def _power_points(size: Size) -> list[Point]:
    quick = size == "quick"
    d = 4_000 if quick else 1_000_000
    ratios = spread(3.0, 300.0, 7) if quick else spread(3.0, 3.0 * 10 ** (13 / 3), 14)
    # training without label noise takes long, because its penalty is weak; the quick size leaves it out
    small, trained = ({NOISE: 60}, (8.0, 20.0)) if quick else ({NOISE: 100, 0.0: 60}, (8.0, 32.0))
    points = []
    for gamma in _GAMMAS[1:] if quick else _GAMMAS:
        for panel, noise in _SHOWN.items():
            task, label = _power(gamma, d, noise), f"{panel}, {_gamma(gamma)}"
            points.append(Point("learning_exponents", task, label=label))
            for ratio in ratios:
                points += asked(task, TIED, ratio / d, "optimal", f"{label}, {_LARGE}", ratio, size)
            if noise not in small:
                continue
            own, lam = small[noise], "optimal" if noise else _WEAK
            for ratio in spread(3.0, max(trained), 7, *trained):
                for d_own in (
                    [own, own // 2] if ratio in trained else [own]
                ):  # the half tells a finite size by its trend
                    where, task = [d_own] if ratio in trained else [], _power(gamma, d_own, noise)
                    points += asked(task, TIED, ratio / d_own, lam, label, ratio, size, where)
        for ratio in ratios:
            question = _power(gamma, d, NOISE), TIED, learner(ratio / d, "optimal", _power(gamma, d, NOISE))
            points.append(Point("recovered_directions", *question, label=f"{_SEEN}, {_gamma(gamma)}", x=ratio))
    return points


def _dimension(record: Record) -> int:
    return record.point.task.target.d


def _slopes(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Return the slope of log y against log x between neighbouring points; the last is repeated so that each point
    has one."""
    found = [math.log(b / a) / math.log(v / u) for u, v, a, b in zip(x, x[1:], y, y[1:], strict=False)]
    return [*found, *found[-1:]]


def _law(gamma: float, x: Sequence[float], y: Sequence[float], power: float, colour: int) -> list[Any]:
    """Return two lines: the curve, named by its last slope and (in brackets) the predicted power, and a guide of that
    power above its end."""
    from needlepoint.plotting.metrics import Line

    slope = f"{_slopes(x, y)[-1]:.2f}" if len(x) > 1 else "?"
    start = 1.6 * y[-3] if len(y) > 2 else math.nan
    guide = [start * (v / x[-3]) ** power for v in (x[-3], x[-1])] if len(x) > 2 else []
    return [
        Line(f"{_gamma(gamma)}: {slope} ({power:.2f})", x, y, colour=colour),
        Line("", [x[-3], x[-1]] if guide else [], guide, colour=None, style="--", faint=True),
    ]


def _power_curve(records: Sequence[Record], panel: str, gamma: float, colour: int) -> tuple[list[Any], list[list[Any]]]:
    """Return the lines and table rows of one gamma: errors in a large dimension with their power, and in the small
    dimension of the training."""
    from needlepoint.plotting.metrics import Line

    label = f"{panel}, {_gamma(gamma)}"
    large, mine = labelled(records, f"{label}, {_LARGE}"), labelled(records, label)
    own = max((_dimension(r) for r in mine if isinstance(r.result, Prediction)), default=0)
    small = [r for r in mine if isinstance(r.result, Prediction) and _dimension(r) == own]
    dots = [r for r in mine if isinstance(r.result, Measurement) and _dimension(r) == own]
    (power,) = (r.result.estimation_error for r in mine if r.point.verb == "learning_exponents")
    x, y = _ratios(large), [_value(r)[0] for r in large]
    measured = [(at, *_value(r)) for at, r in zip(_ratios(dots), dots, strict=True)]
    below = Line("", _ratios(small), [_value(r)[0] for r in small], points=measured, colour=colour, style=":")
    slopes = [(slope, power) for slope in _slopes(x, y)]
    rows = [
        [panel, gamma, source, _dimension(r), r.point.x, *_value(r), r.result.status.name, *slope]
        for source, found in (("theory", large), ("theory", small), ("training", dots))
        for r, slope in zip(found, slopes if found is large else [("", "")] * len(found), strict=True)
    ]
    return [*_law(gamma, x, y, power, colour), below], rows


def _ratios(records: Sequence[Record]) -> list[float]:
    return [float(r.point.x or 0) for r in records]


_LINES = "theory; in legends: slope at the end (predicted exponent)"
_STYLES = {"--": "guide with the predicted exponent", ":": "theory in the small dimension of the training"}


def _draw_power(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.metrics import MetricPanel, metric_panels

    columns = ["panel", "gamma", "source", "d", "ratio", "value", "error", "status", "local_slope", "predicted_slope"]
    gammas = [g for g in _GAMMAS if any(f"{_gamma(g)}, {_LARGE}" in r.point.label for r in records)]
    shown, rows = [], []
    for panel, noise in _SHOWN.items():
        found = [_power_curve(records, panel, gamma, i) for i, gamma in enumerate(gammas)]
        title = f"noise {noise:g}" if noise else "no noise"
        shown.append(MetricPanel(title, "$n/d$", ERROR, [one for lines, _ in found for one in lines]))
        rows += [row for _, mine in found for row in mine]
    seen = []
    for i, gamma in enumerate(gammas):
        mine = [r for r in labelled(records, f"{_SEEN}, {_gamma(gamma)}") if len(r.result.target)]
        (power,) = (
            r.result.recovered
            for r in labelled(records, f"noisy, {_gamma(gamma)}")
            if r.point.verb == "learning_exponents"
        )
        x, y = _ratios(mine), [float(len(r.result.target)) for r in mine]
        seen += _law(gamma, x, y, power, i)
        rows += [
            [_SEEN, gamma, "theory", _dimension(r), at, count, 0.0, "", slope, power]
            for r, at, count, slope in zip(mine, x, y, _slopes(x, y), strict=True)
        ]
    shown.append(MetricPanel(f"noise {NOISE:g}", "$n/d$", "directions that are found", seen))
    figure = metric_panels(
        [shown], **sizes(records), legends="own", lines=_LINES, styles=_STYLES, columns=2, height=3.6
    )
    return Drawing(figure, {"curves": (columns, rows)})


register(
    Figure(
        "indexed-power-law",
        "Power laws and sequential recovery",
        PAPER,
        "Targets with eigenvalues that fall like i^-gamma, one token, best penalties: directions are found one after "
        "the other, and the estimation error falls like a power of n/d. In the legends local slopes and, in brackets, "
        "the predicted exponents, which the dashed guides have; with noise and slow spectra they are not reached yet. "
        "Dotted: theory in the small dimension of the training (without noise at a penalty of 0.01).",
        _power_points,
        _draw_power,
    )
)


# --- what is read out ----------------------------------------------------------------------------

_READOUTS = {"seq2lab": ("attention matrix", "o"), "seq2seq": ("mixed tokens", "s")}
"""Readout -> its name in the figure and its marker."""

_READ = "readout"


def _readout_points(size: Size) -> list[Point]:
    quick = size == "quick"
    alphas = spread(0.05, 0.5, 15) if quick else spread(0.03, 1.8, 31)
    trained, dims = ((0.1, 0.3), (20, 40)) if quick else ((0.1, 0.3, 1.0), (35, 50, 70))
    points = []
    for readout in _READOUTS:
        task = TWO.replace(readout=readout)
        for alpha in sorted({*alphas, *trained}) if readout == "seq2lab" else trained:
            where = dims if alpha in trained else ()
            points += asked(task, TIED, alpha, PENALTY, f"{_READ}, {readout}", alpha, size, where)
    return points


def _draw_readout(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.metrics import Line, MetricPanel, metric_panels

    limit, rows = line(records, _READ, "seq2lab", "estimation_error")
    rows += line(records, _READ, "seq2seq", "estimation_error")[1]
    runs = [r for r in records if isinstance(r.result, Measurement)]
    dims, alphas = sorted({r.result.d for r in runs}), sorted({float(r.point.x or 0) for r in runs})
    along: list[Any] = [Line("", limit.x, limit.y, limit.trusted, colour=5)]
    for i, d in enumerate(dims):
        for j, (readout, (_, mark)) in enumerate(_READOUTS.items()):
            # markers at the same alpha are moved sideways, because they would cover one another
            moved = 1.03 ** (2 * i + j - len(dims) + 0.5)
            mine = [r for r in labelled(runs, f"{_READ}, {readout}") if r.result.d == d]
            dots = [(moved * float(r.point.x or 0), *_value(r)) for r in mine]
            label = "" if j else f"d = {d}, {max(r.result.repeats for r in mine)} repeats"
            along.append(Line(label, [], [], points=dots, colour=i, style="", mark=mark))
    apart, differences = [], []
    for i, alpha in enumerate(alphas):
        found = [(d, *_apart([r for r in runs if r.point.x == alpha and r.result.d == d])) for d in dims]
        differences += [[alpha, *each] for each in found]
        dots = [(1 / d, mean, se) for d, mean, se in found]
        x, y = [x for x, _, _ in dots], [y for _, y, _ in dots]
        apart.append(Line(rf"$\alpha$ = {alpha:g}", x, y, points=dots, colour=i + 3, mark="D", style="", faint=True))
    linear: dict[str, Any] = {"xscale": "linear", "yscale": "linear"}
    panels = [
        MetricPanel("two tokens, penalty 0.02", ALPHA, ERROR, along),
        MetricPanel("mixed tokens against matrices", "$1/d$", "relative difference of the errors", apart, **linear),
    ]
    marks = {mark: f"trained on the {name}, ± standard error" for name, mark in _READOUTS.values()}
    figure = metric_panels([panels], measured=marks, lines="limit", legends="own", width=4.0, height=3.5)
    figure.axes[1].axhline(0.0, color="#777777", linewidth=1.0)
    figure.axes[1].set_xlim(0.0, 1.08 / dims[0])
    tables = {"curves": (COLUMNS, rows), "differences": (["alpha", "d", "difference", "error"], differences)}
    return Drawing(figure, tables)


def _apart(runs: Sequence[Record]) -> tuple[float, float]:
    """Return mean and standard error of the relative difference between the errors of the two readouts.

    It is taken repeat by repeat, because a repeat has the same data for both.
    """
    import numpy as np

    matrix, tokens = (
        next(r.result.values["estimation_error"] for r in runs if r.point.task.readout == readout)
        for readout in _READOUTS
    )
    gaps = (tokens - matrix) / matrix.mean()
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))


register(
    Figure(
        "indexed-readout",
        "Labels that are attention matrices, or the tokens that they mix",
        PAPER,
        "Training on the tokens that attention mixes (seq2seq) and on the attention matrix itself (seq2lab) has one "
        "limit. Left: both are near it (markers are moved sideways). Right: how far their errors are apart on the same "
        "data, which vanishes as the dimension grows.",
        _readout_points,
        _draw_readout,
    )
)
