"""Figures of arXiv 2509.24914, with the Bayes-optimal lines of arXiv 2506.01582: what attention learns from labels that
are made by the attention matrix of a target."""

from __future__ import annotations

from collections.abc import Sequence

from needlepoint.core.results import Measurement, Prediction
from needlepoint.learners import BayesOptimal
from needlepoint.papers.attention_indexed_points import (
    ALPHA,
    BAYES_PAPER,
    COLUMNS,
    DIRECT,
    ERROR,
    NOISE,
    PAPER,
    PENALTY,
    TIED,
    TWO,
    asked,
    dimensions,
    labelled,
    line,
    sizes,
    training,
)
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register, spread
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.tasks.targets import Wishart

# --- errors across interpolation -----------------------------------------------------------------

_PENALTIES = (0.001, 0.02, 0.1)
_ERRORS = {"risk": "risk", "estimation_error": ERROR, "train_loss": "loss on the training sequences"}
_EDGE = "interpolation threshold"


def _penalty(lam: float) -> str:
    return rf"$\lambda$ = {lam:g}"


def _error_points(size: Size) -> list[Point]:
    points = [Point("thresholds", TWO, TIED, label=_EDGE)]
    if size == "quick":
        alphas = spread(0.02, 3.0, 24, 0.06, 0.1, 0.2, 0.25, 0.3, 0.6, 1.0)
        # at the weakest penalty the theory does not hold on the peak of the error, as training there shows (0.2)
        measured = {0.001: (0.2, 0.6), 0.02: (0.1, 0.3, 1.0), 0.1: (0.1, 0.6)}
    else:
        alphas = spread(0.02, 3.0, 31, 0.1, 0.2, 0.25, 0.3, 1.0)
        measured = dict.fromkeys(_PENALTIES, (0.1, 0.2, 0.3, 1.0))
    for lam in _PENALTIES:
        for alpha in alphas:
            where = dimensions(size) if alpha in measured[lam] else []
            points += asked(TWO, TIED, alpha, lam, f"errors, {_penalty(lam)}", alpha, size, where)
    return points


def _draw_errors(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.metrics import MetricPanel, metric_panels

    (edge,) = (float(r.result.interpolation) for r in records if r.point.verb == "thresholds")
    shown, rows = [], []
    for metric, title in _ERRORS.items():
        found = [line(records, "errors", _penalty(lam), metric, colour=i) for i, lam in enumerate(_PENALTIES)]
        scale = "log" if metric == "train_loss" else "linear"
        low = None if scale == "log" else (0.0, 1.05 * max(max(one.y, default=1.0) for one, _ in found))
        shown.append(
            MetricPanel("", ALPHA, title, [one for one, _ in found], yscale=scale, limits=low, marks={_EDGE: edge})
        )
        rows += [row for _, mine in found for row in mine]
    tables = {"curves": (COLUMNS, rows), "thresholds": (["threshold", "alpha"], [[_EDGE, edge]])}
    return Drawing(metric_panels([shown], **sizes(records)), tables)


register(
    Figure(
        "indexed-errors",
        "Errors across the interpolation threshold",
        PAPER,
        "Tied attention on two tokens, target of rank d/2, noise 0.5. Beyond the dotted line not all labels can be "
        "fitted any more; a weak penalty leaves a peak in the errors there, a stronger one does not. Broken lines: the "
        "theory says that it is not to be trusted.",
        _error_points,
        _draw_errors,
    )
)


# --- spectra -------------------------------------------------------------------------------------


def _spectrum_points(size: Size) -> list[Point]:
    alphas = (0.03, 0.1, 0.3, 1.0) if size == "quick" else (0.1, 0.3, 1.0, 3.0)
    return [p for a in alphas for p in asked(TWO, TIED, a, PENALTY, "spectra", a, size, dimensions(size))]


def _draw_spectra(records: Sequence[Record]) -> Drawing:
    import numpy as np

    from needlepoint.plotting.spectra import SpectrumPanel, spectrum_panels

    shown, density, sorted_rows, zeros = [], [], [], []
    for alpha in sorted({r.result.learner.alpha for r in records}):
        mine = [r.result for r in records if r.result.learner.alpha == alpha]
        (law,) = (r.spectrum for r in mine if isinstance(r, Prediction))
        run = max((r for r in mine if isinstance(r, Measurement)), key=lambda r: r.d)
        assert law is not None
        assert run.spectrum is not None
        eigenvalues, rank = run.spectrum.eigenvalues, run.rank_fraction
        shown.append(SpectrumPanel(rf"$\alpha$ = {alpha:g}", law, eigenvalues, 1 - rank.value))
        density += [[alpha, x, y] for x, y in zip(law.x, law.density, strict=True)]
        mean, se = eigenvalues.mean(axis=0), eigenvalues.std(axis=0, ddof=1) / np.sqrt(run.repeats)
        predicted = law.quantiles(run.d)
        sorted_rows += [[alpha, i + 1, *values] for i, values in enumerate(zip(predicted, mean, se, strict=True))]
        zeros.append([alpha, law.atom, 1 - rank.value, rank.error, run.d, run.repeats])
    tables = {
        "density": (["alpha", "eigenvalue", "density"], density),
        "eigenvalues": (["alpha", "order", "predicted", "trained", "error"], sorted_rows),
        "zeros": (["alpha", "predicted", "trained", "error", "d", "repeats"], zeros),
    }
    shown_d = max(r.result.d for r in records if isinstance(r.result, Measurement))
    largest = [r for r in records if not isinstance(r.result, Measurement) or r.result.d == shown_d]
    trained = sizes(largest)["measured"].removesuffix(", ± standard error")
    return Drawing(spectrum_panels(shown, columns=2, width=3.9, height=2.5, trained=trained), tables)


register(
    Figure(
        "indexed-spectra",
        "Spectra of the learned matrix",
        PAPER,
        "Eigenvalues of the trained query-key matrix (bars) and the predicted law (line), with the share of them "
        "that is exactly zero. From few sequences most of the spectrum is noise that the penalty cuts; with more of "
        "them the target's own appears. Two tokens, target of rank d/2, noise 0.5, penalty 0.02.",
        _spectrum_points,
        _draw_spectra,
    )
)


# --- best penalties and Bayes --------------------------------------------------------------------

_RANKS = (0.1, 0.5, 1.0)
_MODELS = {"tied, best penalty": TIED, "direct, best penalty": DIRECT}
_BAYES = "Bayes-optimal"


def _best_case(tokens: int, rank: float) -> str:
    return f"{'one token' if tokens == 1 else 'two tokens'}, $k_0$ = {rank:g}"


def _best_points(size: Size) -> list[Point]:
    points = []
    for tokens in (1,) if size == "quick" else (1, 2):
        # a label of two tokens carries twice as many numbers as one of a single token; hence alpha / tokens below
        measured = (0.1, 0.6) if size == "quick" else (0.1, 0.3, 1.0)
        alphas = spread(0.05, 1.5, 17, *measured)
        for rank in _RANKS:
            task = AttentionIndexed(tokens, Wishart(rank), noise_var=NOISE)
            for each in alphas:
                alpha, where = each / tokens, dimensions(size, tokens) if each in measured else []
                for name, model in _MODELS.items():
                    label = f"{_best_case(tokens, rank)}, {name}"
                    points += asked(task, model, alpha, "optimal", label, alpha, size, where)
                question = task, None, BayesOptimal(alpha)
                label = f"{_best_case(tokens, rank)}, {_BAYES}"
                points.append(Point("predict", *question, label=label, x=alpha))
                points += [Point("simulate", *question, training(size, tokens, d), label, alpha) for d in where]
    return points


def _draw_best(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.metrics import MetricPanel, metric_panels

    shown, rows = [], []
    names = {**dict(zip(_MODELS, (0, 1), strict=True)), _BAYES: 5}
    for tokens in sorted({r.result.task.tokens for r in records}):
        panels = []
        for rank in _RANKS:
            case = _best_case(tokens, rank)
            found = [line(records, case, name, "estimation_error", colour=c) for name, c in names.items()]
            if any(len(one.x) for one, _ in found):
                panels.append(MetricPanel(case, ALPHA, "" if panels else ERROR, [one for one, _ in found]))
            rows += [row for _, mine in found for row in mine]
        shown.append(panels)
    said = sizes(records, "training (Bayes: message passing)")
    return Drawing(metric_panels(shown, columns=2, **said), {"curves": (COLUMNS, rows)})


register(
    Figure(
        "indexed-best",
        "The best penalties, and the best possible",
        BAYES_PAPER,
        "Label noise 0.5, penalties chosen to make the predicted risk least. Attention with a factorised matrix finds "
        "targets of low rank from fewer sequences than one trained entry by entry, and comes much closer to the "
        "Bayes-optimal error, which needs the law of the target.",
        _best_points,
        _draw_best,
    )
)


# --- thresholds ----------------------------------------------------------------------------------

_CURVES = {
    f"labels can be fitted, noise {NOISE:g}": (NOISE, TIED, "interpolation", 1),
    "labels can be fitted, no noise": (0.0, TIED, "interpolation", 2),
    "target found, vanishing penalty": (0.0, TIED, "recovery", 0),
    "target found, Bayes-optimal": (0.0, TIED, "bayes_recovery", 5),
    "direct attention: both": (0.0, DIRECT, "recovery", 3),
}
_OTHERS = {1: "o", 3: "s", 5: "^"}
"""Numbers of tokens that are drawn as markers over the lines of two tokens, and these markers."""


def _threshold_points(size: Size) -> list[Point]:
    steps = 31 if size == "quick" else 76
    ranks = {2: [0.002 + 1.498 * (i / (steps - 1)) ** 2 for i in range(steps)]}
    ranks |= {tokens: [at + 0.03 * i for at in (0.1, 0.4, 0.8, 1.2)] for i, tokens in enumerate(_OTHERS)}
    return [
        Point("thresholds", AttentionIndexed(tokens, Wishart(k), noise_var=noise), model, label=f"{tokens} tokens", x=k)
        for tokens in ranks
        for k in ranks[tokens]
        for noise, model in ((NOISE, TIED), (0.0, TIED), (0.0, DIRECT))
    ]


def _draw_thresholds(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.metrics import Line, MetricPanel, metric_panels

    lines, rows = [], []
    for name, (noise, model, which, colour) in _CURVES.items():
        mine = [r for r in records if r.point.model == model and r.point.task.noise_var == noise]
        for tokens in (2, *_OTHERS):
            found = [
                (float(r.point.x or 0), float(getattr(r.result, which)), 2 * r.point.task.components)
                for r in labelled(mine, f"{tokens} tokens")
            ]
            at, scaled = [k for k, _, _ in found], [directions * alpha for _, alpha, directions in found]
            rows += [[name, tokens, k, alpha, alpha * directions] for k, alpha, directions in found]
            if tokens == 2:
                lines.append(Line(name, at, scaled, colour=colour))
            else:
                dots = [(k, y, 0.0) for k, y in zip(at, scaled, strict=True)]
                lines.append(Line("", at, scaled, points=dots, colour=colour, style="", mark=_OTHERS[tokens]))
    panel = MetricPanel(
        "",
        "rank of the target over dimension $k_0$",
        r"$(T^2 + T - 2)\,\alpha$  (one token: $2\,\alpha$)",
        lines,
        xscale="linear",
        yscale="linear",
        limits=(0.0, 1.05),
    )
    marks = {mark: "one token" if tokens == 1 else f"{tokens} tokens" for tokens, mark in _OTHERS.items()}
    figure = metric_panels([[panel]], measured=marks, lines="two tokens", columns=2, width=6.4, height=3.9)
    return Drawing(figure, {"thresholds": (["curve", "tokens", "rank_ratio", "alpha", "scaled"], rows)})


register(
    Figure(
        "indexed-thresholds",
        "Where labels stop being fitted and the target is found",
        PAPER,
        "Up to how many sequences all labels can be fitted, and from how many the target is known. Tokens only set the "
        "unit: times T^2 + T - 2, one curve holds for all (lines: two tokens; markers: others). A vanishing penalty on "
        "the factors finds a low rank from few sequences, as the Bayes-optimal estimate does; direct attention needs "
        "as many numbers as its matrix has, whatever the rank.",
        _threshold_points,
        _draw_thresholds,
    )
)
