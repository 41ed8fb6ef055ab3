"""From how many samples on is one of two models better? Where their risks part, each at its own best penalties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Progress, silent
from needlepoint.core.specs import Spec
from needlepoint.learners import Ridge
from needlepoint.studies.contest import contest
from needlepoint.studies.verdicts import Contest, Entry, is_apart

WIDTH = 0.1
"""How closely the crossing is bracketed, as a share of the bounds, before the risks are continued by straight lines."""


@dataclass(frozen=True)
class Crossing:
    """The `alpha` on one side of which the model called `better` has the lower risk, with its numerical error, and the
    `contest` at every alpha that was asked.

    >>> Crossing = ndl.studies.crossing.Crossing
    >>> Crossing("two heads", ndl.Estimate(0.62, 0.05), ndl.Contest(ndl.Needles(2, snr=4.0), ())).trusted
    True
    """

    better: str
    alpha: Estimate
    contest: Contest

    @property
    def trusted(self) -> bool:
        """Return whether all predictions that were compared are to be trusted."""
        return all(entry.trusted for entry in self.contest.entries)


def risk_crossing(
    task: Spec,
    models: Sequence[Spec] | Mapping[str, Spec],
    learner: Ridge,
    between: tuple[float, float],
    *,
    width: float | None = None,
    seed: int = 0,
    tol: float | None = None,
    progress: Progress = silent,
) -> Crossing:
    r"""eq:risk-crossing. Return the alpha between two bounds at which the risks of two models part or cross.

    At one of the bounds one of the models must be better by more than the errors of both risks, and at the other bound
    it must not. With `Ridge(alpha, "optimal")` each has its own best penalties; `learner.alpha` is not used. Bisection
    leads to the alphas at which it is only just better, down to a bracket of `width` (a tenth of what is between the
    bounds, if nothing is said); the line through the two nearest gaps is continued to zero. Below, the gap may be zero
    (a model that contains the other one and makes no use of it) or negative.

    >>> models = {"softmax": ndl.KeyValueAttention(ndl.Softmax()), "linear": ndl.KeyValueAttention(ndl.Linear())}
    >>> found = ndl.risk_crossing(ndl.SpikedSLR(2, snr=2.0), models, ndl.Ridge(1.0, "optimal"), (0.5, 4.0), tol=0.02)
    >>> found.better, 0.5 < found.alpha.value < 4.0
    ('softmax', True)
    """
    low, high = _checked(models, learner, between)
    width = WIDTH * (high - low) if width is None else width
    asked: dict[float, Contest] = {}

    def at(alpha: float) -> Contest:
        if alpha not in asked:
            asked[alpha] = contest(task, models, learner.replace(alpha=alpha), seed=seed, tol=tol)
        return asked[alpha]

    better, near, far = _sides(at(low), at(high), low, high)
    progress(0.3)
    gaps = {far: _gap(at(far), better)}
    while abs(far - near) > width:
        middle = (near + far) / 2
        gap = _gap(at(middle), better)
        if is_apart(gap):
            far, gaps[middle] = middle, gap
        else:
            near = middle
        progress(min(1.0, max(0.3, 1 - abs(far - near) / (high - low))))
    entries = [entry for alpha in sorted(asked) for entry in asked[alpha].entries]
    return Crossing(better, continued(gaps, near), Contest(task, tuple(entries)))


def continued(gaps: Mapping[float, Estimate], near: float) -> Estimate:
    r"""eq:risk-crossing. Return where the line through the gap closest to `near` and another one is zero.

    The error has the errors of both gaps added up and, with a third gap, how much the curvature through all three
    changes; the other gap is the one that makes it least. From one gap, or gaps that do not grow, the answer is the
    middle between the closest and `near`.

    >>> crossing = ndl.studies.crossing.continued({2.0: ndl.Estimate(0.1, 0.01), 3.0: ndl.Estimate(0.3, 0.01)}, 1.0)
    >>> f"{crossing.value:.2f} {crossing.error:.3f}"
    '1.50 0.100'
    """
    a, *others = sorted(gaps, key=lambda alpha: abs(alpha - near))
    found = []
    for i, b in enumerate(others):
        third = others[i + 1] if i + 1 < len(others) else others[i - 1] if i else None
        if gaps[b].value > gaps[a].value:
            found.append(_line(gaps, a, b, third))
    return min(found, key=lambda each: each.error, default=Estimate((a + near) / 2, abs(a - near) / 2))


def _line(gaps: Mapping[float, Estimate], a: float, b: float, third: float | None) -> Estimate:
    g, h = gaps[a], gaps[b]
    rise = h.value - g.value
    found = (a * h.value - b * g.value) / rise
    error = abs(b - a) * (abs(h.value) * g.error + abs(g.value) * h.error) / rise**2
    if third is not None:
        slope, next_slope = rise / (b - a), (gaps[third].value - h.value) / (third - b)
        bend = (next_slope - slope) / (third - a)
        there = max(abs(slope + bend * (2 * found - a - b)), abs(slope) / 4)  # the slope of the parabola at the answer
        error += abs(bend * (found - a) * (found - b)) / there
    return Estimate(found, error)


def _gap(found: Contest, better: str) -> Estimate:
    """Return how far the other model's risk is above that of the one called `better`."""
    ours, theirs = sorted(found.entries, key=lambda entry: entry.name != better)
    return _risk(theirs, found) - _risk(ours, found)


def _risk(entry: Entry, found: Contest) -> Estimate:
    return entry.risk(found.metric)


def _sides(low: Contest, high: Contest, first: float, last: float) -> tuple[str, float, float]:
    """Return the name of the model that is better at one of the bounds only, the other bound, and this one."""
    for here, there, far, near in ((high, low, last, first), (low, high, first, last)):
        better = here.best.name
        if is_apart(_gap(here, better)) and not is_apart(_gap(there, better)):
            return better, near, far
    raise InvalidParameter(
        f"risk_crossing(between=({first:g}, {last:g})): {low.verdict.rstrip('.')} at the lower bound, and "
        f"{high.verdict.rstrip('.')} at the upper; give bounds of which one model is better at one only."
    )


def _checked(
    models: Sequence[Spec] | Mapping[str, Spec], learner: Ridge, between: tuple[float, float]
) -> tuple[float, float]:
    if not isinstance(learner, Ridge):
        raise InvalidParameter(f"risk_crossing({learner!r}): give Ridge(alpha, 'optimal'), which has an alpha to vary.")
    if isinstance(models, Spec) or len(models) != 2:
        raise InvalidParameter("risk_crossing(models=...): give two models, in a list or in a dict by name.")
    low, high = between
    if not 0 < low < high:
        raise InvalidParameter(f"risk_crossing(between={between}): give a lower and a higher alpha, both above 0.")
    return low, high
