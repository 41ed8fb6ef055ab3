"""One head and two heads on two needles, each at its own best penalties: from how many samples on two are better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Measurement, Prediction
from needlepoint.learners import Ridge
from needlepoint.models.activations import Softmax
from needlepoint.models.heads import MultiHead
from needlepoint.papers.fields.records import COLUMNS, curve, said
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register, spread
from needlepoint.tasks.needles import Needles

PAPER = "2603.03993"
TASK = Needles(tokens=2, snr=4.0, noise=0.1)
HEADS = {"one head": MultiHead(1, Softmax()), "two heads": MultiHead(2, Softmax())}
TRAINED = {"quick": (0.4, 1.0), "full": (0.4, 0.55, 0.7, 0.85, 1.0, 1.4)}
TOLERANCE = {"quick": 0.02, "full": 0.005}


def learner(alpha: float) -> Ridge:
    """Return the learner with best penalties; heads are sought from their own needles, and where nothing holds them
    there, they end up equal."""
    return Ridge(alpha, "optimal", start="informed")


def points(size: Size) -> list[Point]:
    found = []
    sizes = [(100, 32, 1)] if size == "quick" else [(200, 64, 1), (100, 128, 2)]
    for alpha in spread(0.35, 1.5, 20, *TRAINED[size]):
        for name, model in HEADS.items():
            question = TASK, model, learner(alpha)
            found.append(Point("predict", *question, {"tol": TOLERANCE[size]}, name, alpha))
            for d, repeats, seed in sizes if alpha in TRAINED[size] else ():
                options = {"d": d, "repeats": repeats, "samples": 10_000, "seed": seed}
                found.append(Point("simulate", *question, options, name, alpha, follow=True))
    return found


def gaps(records: Sequence[Record], kind: type, d: int = 0) -> dict[float, Estimate]:
    """Return how far the excess risk of one head is above that of two, by alpha: predicted, or measured at d."""
    risks = {
        (r.point.label, float(r.point.x or 0)): r.result.excess_risk
        for r in records
        if isinstance(r.result, kind) and (not d or r.result.d == d)
    }
    one, two = HEADS
    return {a: risks[one, a] - risks[two, a] for name, a in sorted(risks) if name == one and (two, a) in risks}


def crossing(found: dict[float, Estimate]) -> Estimate | None:
    """Return where the predicted gap begins: the last alpha up to which it is within its error, and the gaps beyond,
    continued to zero. None if two heads are not better at the largest alpha, or are at all."""
    from needlepoint.studies.crossing import continued
    from needlepoint.studies.verdicts import is_apart

    alphas = sorted(found)
    within = [a for a in alphas if not is_apart(found[a])]
    if not within or within[-1] == alphas[-1]:
        return None
    return continued({a: found[a] for a in alphas if a > within[-1]}, within[-1])


def draw(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.fields.transitions import Mark, Sheet, transition_panels
    from needlepoint.plotting.stability import DoubtCurve

    pairs = [curve(records, name, "excess_risk", i) for i, name in enumerate(HEADS)]
    table: list[list[Any]] = [row for _, rows in pairs for row in rows]
    sizes = sorted({r.result.d for r in records if isinstance(r.result, Measurement)}, reverse=True)
    measured = {d: gaps(records, Measurement, d) for d in sizes}
    predicted = {a: g for a, g in gaps(records, Prediction).items() if g.finite}
    ok = {
        a: all(r.result.ok for r in records if isinstance(r.result, Prediction) and r.point.x == a) for a in predicted
    }
    dots = [[(a, g.value, g.error) for a, g in measured[d].items()] for d in sizes] or [[]]
    line = DoubtCurve(
        "one head less two heads",
        list(predicted),
        [g.value for g in predicted.values()],
        [ok[a] for a in predicted],
        dots[0],
        2,
        smaller=dots[1] if len(dots) > 1 else (),
    )
    table += [
        [line.label, source, a, "excess_risk", g.value, g.error, g.kind, "", d]
        for source, d, found in [("theory", "", predicted), *(("training", d, measured[d]) for d in sizes)]
        for a, g in found.items()
    ]
    at = crossing(predicted)
    marks = [] if at is None else [Mark(f"two heads are better from {at}", at.value, at.error)]
    shown = [
        Sheet("at the best penalties", "excess risk", [one for one, _ in pairs]),
        Sheet("what the second head gains", "difference of excess risks", [line]),
    ]
    big, small = said(records)
    figure = transition_panels(shown, r"samples over dimension $\alpha$", measured=big, smaller=small, marks=marks)
    place = [["two heads are better from", at.value, at.error]] if at else []
    return Drawing(figure, {"curves": (COLUMNS, table), "crossing": (["what", "alpha", "error"], place)})


register(
    Figure(
        "heads-crossing",
        "From how many samples on a second head helps",
        PAPER,
        "One and two softmax heads on two tokens that are both needles, each with its own best penalties. With few "
        "samples the best penalties make the two heads equal, which is one head; from the vertical line on (its error "
        "as a band) it is better that each serves a needle. Broken lines: the theory says that it is not to be "
        "trusted, because the proximal map jumps.",
        points,
        draw,
        aside=True,
    )
)
