"""Figures of arXiv 2410.01537: training of erf attention, its landscape, and its risk against d."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Measurement, Prediction
from needlepoint.learners import BayesOptimal, OnlineSGD, Population, ProjectedDescent
from needlepoint.models.activations import Erf
from needlepoint.models.attention import KeyValueAttention, LinearRegression
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register
from needlepoint.tasks.single_location import SpikedSLR

PAPER = "2410.01537"
TOKENS, RELEVANT_STD = 10, math.sqrt(0.5)
RUNS = 30


@dataclass(frozen=True)
class Experiment:
    """One training experiment.

    The fields from `steps` to `noise` are those of the task, model and learner; `all_runs` draws every run instead of
    medians; `runs` is how many runs the theory takes, `training_runs` how many are trained with real vectors.
    """

    id: str
    title: str
    caption: str
    steps: int
    record_every: int
    d: int = 400
    scale: float = 0.1
    lr: float = 4e-3
    start: str = "sphere"
    schedule: float = 0.0
    batch: int | None = None
    noise: float = 0.1
    all_runs: bool = False
    runs: int = RUNS
    training_runs: int = RUNS

    def specs(self, starts: tuple[Overlaps, ...] = ()) -> tuple[SpikedSLR, KeyValueAttention, Any]:
        """Return task, model and learner; with `starts` the learner begins there instead of at random."""
        task = SpikedSLR(TOKENS, snr=self.d / 2, relevant_std=RELEVANT_STD, noise=self.noise)
        model = KeyValueAttention(Erf(scale=self.scale), unit_norm=True)
        shared: dict[str, Any] = {
            "lr": self.lr,
            "steps": self.steps,
            "start": starts or self.start,
            "schedule": self.schedule,
            "record_every": self.record_every,
            "d": None if starts else self.d,
            "runs": None if starts else self.runs,
        }
        learner = ProjectedDescent(**shared) if self.batch is None else OnlineSGD(batch=self.batch, **shared)
        return task, model, learner


def drawn_starts(kind: str, d: int, runs: int, seed: int = 3) -> tuple[Overlaps, ...]:
    """Return the overlaps of `runs` random starts in R^d, on the sphere or the manifold (eq:starts).

    Given to theory and training alike, they make both follow the same path, until chaos parts them.
    """
    import numpy as np

    rng = np.random.default_rng(seed)

    def uniform(dimension: int) -> Any:
        x = rng.standard_normal((runs, dimension))
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    if kind == "manifold":
        return tuple(
            Overlaps(float(k), float(v)) for k, v in zip(uniform(d - 1)[:, 0], uniform(d - 2)[:, 0], strict=True)
        )
    k, v = uniform(d), uniform(d)
    five = np.stack([k[:, 0], v[:, 1], v[:, 0], k[:, 1], np.sum(k * v, axis=1)], axis=1)
    return tuple(Overlaps(*map(float, row)) for row in five)


def _experiments() -> list[tuple[Experiment, dict[str, Any]]]:
    """Return the five experiments at full size, each with the fields that the quick size changes."""
    return [
        (
            Experiment(
                "erf-schedule",
                "Descent from the sphere with a decreasing scale",
                "Projected gradient descent from random starts on the sphere with a decreasing scale: most runs end at "
                "the oracle (about 96 % at full size), the others at the swapped minimum.",
                scale=1.0,
                steps=120_000,
                record_every=300,
                schedule=1e-4,
            ),
            {"runs": 128, "training_runs": 8},
        ),
        (
            Experiment(
                "erf-manifold",
                "Descent from the invariant manifold",
                "Projected gradient descent at constant scale 0.1, started on the manifold: it never leaves it and "
                "reaches the oracle. The distance of the theory is zero, that of training is rounding.",
                steps=20_000,
                record_every=200,
                start="manifold",
            ),
            {"steps": 8_000, "record_every": 80, "training_runs": 8},
        ),
        (
            Experiment(
                "erf-sgd",
                "Online SGD from the sphere with a decreasing scale",
                "Stochastic gradient descent with batches of 5 fresh sequences and a decreasing scale; the theory is "
                "exact in law at this dimension. With the slow schedule of the paper (full size) all runs end at the "
                "oracle; the quick size falls four times as fast, and a few of them end at the swapped minimum.",
                d=80,
                scale=2.0,
                lr=1e-3,
                steps=200_000,
                record_every=500,
                schedule=1e-4,
                batch=5,
                training_runs=16,
            ),
            {"steps": 50_000, "schedule": 4e-4, "lr": 2e-3, "record_every": 250, "runs": 48, "training_runs": 4},
        ),
        (
            Experiment(
                "erf-large-scale",
                "A constant large scale freezes the key",
                "Projected gradient descent at constant scale 0.9: the gradient of the key dies and the oracle is a "
                "saddle; no run reaches it at d = 400.",
                scale=0.9,
                lr=1e-3,
                steps=120_000,
                record_every=300,
            ),
            {"steps": 40_000, "runs": 128, "training_runs": 8},
        ),
        (
            Experiment(
                "erf-small-scale",
                "A constant small scale has two ends",
                "Projected gradient descent at constant scale 0.1 from the sphere, every run drawn: about half end "
                "at the oracle, half at the swapped minimum.",
                steps=20_000,
                record_every=200,
                all_runs=True,
            ),
            {"steps": 8_000, "record_every": 80},
        ),
    ]


def _training_points(full: Experiment, quick: dict[str, Any], size: Size) -> list[Point]:
    experiment = replace(full, **quick) if size == "quick" else full
    given = drawn_starts(experiment.start, experiment.d, experiment.training_runs)
    # descent is deterministic, so that theory can follow the very runs that are trained; where every run is drawn, the
    # theory has no others
    specs = experiment.specs(given if experiment.all_runs else ())
    last_scale = experiment.scale / (1 + experiment.schedule * (experiment.steps - 1))
    at_end = KeyValueAttention(Erf(scale=last_scale), unit_norm=True)
    points = [
        Point("predict", *specs, label=full.id),
        Point("predict", specs[0], at_end, Population(), label=f"{full.id} oracle"),
    ]
    options = {"d": experiment.d, "repeats": experiment.training_runs, "seed": 1}
    if experiment.batch is None and not experiment.all_runs:
        specs = experiment.specs(given)
        points.append(Point("predict", *specs, label=f"{full.id}, given starts"))
    if experiment.batch is None:
        options["repeats"] = 1  # of every start
    return [*points, Point("simulate", *specs, options=options, label=f"{full.id} with vectors")]


def _draw_training(all_runs: bool, records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.descents import descent_panels
    from needlepoint.plotting.trajectories import run_table, trajectory_table

    theory, oracle, *between, training = (r.result for r in records)
    followed = between[0].trajectory if between else None
    figure = descent_panels(
        theory.trajectory,
        training.trajectory,
        oracle=float(oracle.excess_risk),
        followed=followed,
        all_runs=all_runs,
    )
    tables = {"means": trajectory_table(theory.trajectory, training.trajectory), "runs": run_table(theory.trajectory)}
    if followed is not None:
        tables["followed"] = run_table(followed)
    return Drawing(figure, tables)


for _full, _quick in _experiments():
    register(
        Figure(
            _full.id,
            _full.title,
            PAPER,
            _full.caption,
            functools.partial(_training_points, _full, _quick),
            functools.partial(_draw_training, _full.all_runs),
        )
    )


# --- the flow on the manifold -------------------------------------------------------------------

_FLOW_SCALES = (0.1, 0.3, 0.9)


def _flow_points(size: Size) -> list[Point]:
    import numpy as np

    grid = np.linspace(-1, 1, 21 if size == "quick" else 25)
    key, value = np.meshgrid(grid, grid)
    task = SpikedSLR(TOKENS, snr=200, relevant_std=RELEVANT_STD)
    points = []
    for scale in _FLOW_SCALES:
        model = KeyValueAttention(Erf(scale=scale), unit_norm=True)
        points.append(Point("vector_field", task, model, options={"key": key, "value": value}, label=f"scale {scale}"))
        points.append(Point("fixed_points", task, model, label=f"scale {scale}"))
        points.append(Point("nullcline", task, model, options={"key": np.linspace(-1, 1, 401)}, label=f"scale {scale}"))
    return points


def _draw_flow(records: Sequence[Record]) -> Drawing:
    import numpy as np

    from needlepoint.plotting.landscape import FlowPanel, flow_panels

    shown, field_rows, point_rows = [], [], []
    for scale, field, fixed, line in zip(_FLOW_SCALES, records[0::3], records[1::3], records[2::3], strict=True):
        key, value = field.point.options["key"], field.point.options["value"]
        key_dot, value_dot = field.result
        points = [(p.overlaps.key, p.overlaps.value, p.kind) for p in fixed.result]
        curve = (line.point.options["key"], line.result)
        shown.append(FlowPanel(rf"$\lambda={scale}$", key[0], key_dot, value_dot, points, curve))
        cells = (np.ravel(a).tolist() for a in (key, value, key_dot, value_dot))
        field_rows += [[scale, *row] for row in zip(*cells, strict=True)]
        point_rows += [[scale, p.overlaps.key, p.overlaps.value, p.kind, p.excess_risk, *p.rates] for p in fixed.result]
    tables = {
        "field": (["scale", "key", "value", "key_dot", "value_dot"], field_rows),
        "points": (["scale", "key", "value", "kind", "excess_risk", "rate_1", "rate_2"], point_rows),
    }
    return Drawing(flow_panels(shown), tables)


register(
    Figure(
        "erf-flow",
        "Fixed points and flow on the manifold",
        PAPER,
        "d = 400: two minima (the oracle and its mirror image), two maxima, one saddle, for every scale; at large "
        "scale the flow of the key dies away from the middle.",
        _flow_points,
        _draw_flow,
    )
)


# --- risk against dimension ---------------------------------------------------------------------

_LENGTHS: dict[str, Any] = {
    "L = 10": lambda d: 10,
    "L = sqrt(d)": lambda d: max(2, round(math.sqrt(d))),
    "L = d": lambda d: d,
}
_PREDICTORS = {
    "oracle at its best scale": (KeyValueAttention(Erf(scale=None), unit_norm=True), Population()),
    "Bayes": (None, None),
    "best linear": (LinearRegression(), Population()),
}


def _dimension_points(size: Size) -> list[Point]:
    fine = [round(2 ** (i / 4)) for i in range(12, 35)]
    dimensions = fine + [2**i for i in range(9, 18 if size == "quick" else 21)]
    # squares, so that the root is a whole number and the curve has no steps
    squares = sorted({round(math.sqrt(d)) ** 2 for d in dimensions})
    largest = 2048 if size == "quick" else 8192  # most coordinates of a sequence (tokens x d) that are simulated
    points = []
    for family, length in _LENGTHS.items():
        for d in squares if "sqrt" in family else dimensions:
            task = SpikedSLR(length(d), snr=d / 2, relevant_std=RELEVANT_STD)
            for name, (model, learner) in _PREDICTORS.items():
                learner = learner or BayesOptimal(d=d)
                label = f"{family}, {name}"
                points.append(Point("predict", task, model, learner, label=label, x=d))
                most = {"best linear": 100, "Bayes": 400}.get(name, largest)
                if d in (8, 9, 32, 36, 128, 121, 512) and length(d) * d <= most:
                    # the Bayes risk is small, so that only many sequences hold a mistake
                    samples = 10_000 if name == "Bayes" else 2_500 if length(d) * d < 500 else 1_000
                    options = {"d": d, "repeats": 16, "samples": samples, "seed": 1}
                    points.append(
                        Point("simulate", task, model, learner, options, label, d, follow=name.startswith("oracle"))
                    )
    return points


def _draw_dimension(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.curves import Curve, CurvePanel, curve_panels

    shown, rows = [], []
    for family in _LENGTHS:
        curves = []
        for name in _PREDICTORS:
            mine = [r for r in records if r.point.label == f"{family}, {name}"]
            lines = [(r.point.x, r.result.excess_risk) for r in mine if isinstance(r.result, Prediction)]
            points = [(r.point.x, r.result.excess_risk) for r in mine if isinstance(r.result, Measurement)]
            curves.append(
                Curve(
                    name,
                    [float(x or 0) for x, _ in lines],
                    [e.value for _, e in lines],
                    [(float(x or 0), e.value, e.error) for x, e in points],
                )
            )
            for source, values in (("theory", lines), ("simulation", points)):
                rows += [[family, name, source, int(x or 0), e.value, e.error, e.kind] for x, e in values]
        shown.append(CurvePanel(family.replace("sqrt(d)", "√d"), "d", curves))
    measured = "Monte Carlo with vectors, 16 repeats, ± standard error"
    figure = curve_panels(shown, "excess risk", (1e-12, 2.0), measured=measured)
    columns = ["lengths", "predictor", "source", "d", "excess_risk", "error", "error_kind"]
    return Drawing(figure, {"curves": (columns, rows)})


register(
    Figure(
        "erf-dimension",
        "Excess risk against dimension",
        PAPER,
        "snr = d/2: the oracle with its best scale vanishes as long as L = o(d), the Bayes risk vanishes "
        "exponentially, the best linear predictor stays near the risk of predicting nothing. Circles: Monte Carlo "
        "with real vectors at these predictors, where it can resolve the risk.",
        _dimension_points,
        _draw_dimension,
    )
)
