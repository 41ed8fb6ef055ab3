"""Two heads on two needles in the course of online SGD: how they part, in theory and at three sizes."""

from __future__ import annotations

from collections.abc import Sequence

from needlepoint.core.overlaps import FieldOverlaps
from needlepoint.core.results import Prediction
from needlepoint.learners import OnlineSGD
from needlepoint.models.activations import Softmax, SoftmaxOne
from needlepoint.models.heads import MultiHead
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register
from needlepoint.tasks.needles import Needles

PAPER = "2603.03993"
TASK = Needles(tokens=3, snr=4.0)
HEADS = {"softmax": MultiHead(2, Softmax()), "softmax-1": MultiHead(2, SoftmaxOne())}
SIZES = {50: 64, 100: 48, 200: 32}
"""d and runs."""

TIME, RATE, RECORDS = 24, 0.5, 24
"""Time (steps over d), learning rate eta (lr is eta / 2 d), and how many records there are."""

START = FieldOverlaps(
    {
        **{f"{column}{h}_sq": 0.1 for column in ("key", "value") for h in (1, 2)},
        "key1_on_key": 0.1,
        "key1_on_key2": 0.05,
        "key2_on_key2": 0.1,
        "key2_on_key": 0.05,
        "value1_on_value": 0.1,
        "value1_on_value2": 0.05,
        "value2_on_value2": 0.1,
        "value2_on_value": 0.05,
    }
)
"""Both heads begin with something of both needles, and with a little more of their own."""


def learner(d: int) -> OnlineSGD:
    return OnlineSGD(RATE / (2 * d), TIME * d, 1, START, d=d, record_every=TIME * d // RECORDS)


def points(size: Size) -> list[Point]:
    found = []
    for d, runs in SIZES.items():
        if size == "quick" and d > 100:
            continue
        for name, model in HEADS.items():
            found.append(Point("predict", TASK, model, learner(d), label=name, x=float(d)))
            options = {"d": d, "repeats": runs, "samples": 1000, "seed": 1}
            found.append(Point("simulate", TASK, model, learner(d), options, name, float(d)))
    return found


NAMES = {
    "keys": (("key1_on_key", "own needle"), ("key1_on_key2", "the other's")),
    "values": (("value1_on_value", "own needle"), ("value1_on_value2", "the other's")),
    "excess risk": (("excess_risk", "excess risk"),),
}


def draw(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.fields.paths import PathPanel, mean_and_error, path_panels, values_of

    shown, rows = [], []
    d_of_theory = int(max(r.point.x or 0 for r in records))
    for name in HEADS:
        mine = [r for r in records if r.point.label == name]
        trained = [r for r in mine if not isinstance(r.result, Prediction)]
        training = {int(r.point.x or 0): r.result.trajectory for r in trained if r.result.trajectory is not None}
        (theory,) = (r.result.trajectory for r in mine if isinstance(r.result, Prediction) and r.point.x == d_of_theory)
        assert theory is not None  # online SGD always has one
        shown.append(
            [
                PathPanel(
                    f"{name}: {what}",
                    "excess risk" if what == "excess risk" else f"overlap of head 1's {what[:-1]}",
                    names,
                    theory,
                    training,
                )
                for what, names in NAMES.items()
            ]
        )
        for quantity in (n for names in NAMES.values() for n, _ in names):
            line = values_of(theory, quantity)[0]
            rows += [
                [name, "theory", "", t / d_of_theory, quantity, float(v), 0.0, 1]
                for t, v in zip(theory.steps, line, strict=True)
            ]
            for d, path in training.items():
                mean, error = mean_and_error(path, quantity)
                rows += [
                    [name, "training", d, t / d, quantity, float(m), float(e), path.runs]
                    for t, m, e in zip(path.steps, mean, error, strict=True)
                ]
    columns = ["heads", "source", "d", "time", "quantity", "mean", "stderr", "runs"]
    return Drawing(path_panels(shown, d_of_theory), {"paths": (columns, rows)})


register(
    Figure(
        "heads-sgd",
        "Two heads part in the course of SGD",
        PAPER,
        "Online SGD of two heads on three tokens, of which two are needles with keys and values of their own: each "
        "head turns to its own needle and away from the other's. Lines: the limit of large d. Points: means over "
        "training runs at growing d, which approach it.",
        points,
        draw,
    )
)
