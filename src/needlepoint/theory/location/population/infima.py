"""Infima that no key attains: limits of the risk as the norm of the key goes to 0 or to infinity."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from needlepoint.core.estimates import Estimate
from needlepoint.core.routes import GENERIC, route, the
from needlepoint.models.activations import Erf, KernelActivation
from needlepoint.tasks.single_location import MaxSLR, SpikedSLR
from needlepoint.theory.location.moments import place_race
from needlepoint.theory.location.population.accuracy import ACCURACY
from needlepoint.theory.location.population.first_keys import Scanned, count_of, least_risks
from needlepoint.theory.location.population.first_keys import turns as turning
from needlepoint.theory.location.population.risk_at_a_key import SEARCH, Point, Question
from needlepoint.theory.location.population.statements import linear_optimum

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Limit:
    """The limit of the risk, a point on the way to it, and in words where the norm (or scale) goes."""

    excess: Estimate
    point: Point
    note: str


def limits(question: Question, lowest: Scanned, largest: float) -> list[Limit]:
    """Return the limits that are known; `largest` is the largest norm scanned.

    On unit spheres a free scale plays the role of the norm.
    """
    return the("limits of the risk", activation=question.activation)(question, lowest, largest)


@route("limits of the risk", name="none", cost=GENERIC)
def _no_limits(question: Question, lowest: Scanned, largest: float) -> list[Limit]:
    return []


@route("limits of the risk", name="erf", activation=Erf)
def _erf_limits(question: Question, lowest: Scanned, largest: float) -> list[Limit]:
    sphere, free = question.model.unit_norm, "scale" in question.free
    small = _constant(question) if sphere else _linear(question, lowest)
    found = [small, *(_step(question, sign, largest) for sign in (1.0, -1.0))] if free or not sphere else []
    return [limit for limit in found if limit is not None]


@route("limits of the risk", name="kernel", activation=KernelActivation)
def _kernel_limits(question: Question, lowest: Scanned, largest: float) -> list[Limit]:
    limit = None if question.model.unit_norm else _steepest(question, lowest)
    return [] if limit is None else [limit]


def _constant(question: Question) -> Limit:
    """Return the limit as the scale goes to 0: constant weights o + erf(b), the best that the free constants allow."""
    c, count = question.constants, count_of(question)
    best = count.G / count.B
    weights = [best, -best]
    if "offset" not in question.free:
        low, high = (c["offset"] + (special.erf(c["shift"]) if "shift" in c else s) for s in (-1.0, 1.0))
        weights = [float(np.clip(w, low, high)) for w in weights]
    value = min(count.G - 2 * abs(w) * count.G + w * w * count.B for w in weights)
    constants = {n: {"scale": 1e-6}.get(n, 0.0) for n in question.free}
    return Limit(Estimate(value, 64 * EPS * count.B), Point(0, 1.0, 1.0, constants), "0: constant weights")


def _linear(question: Question, lowest: Scanned) -> Limit | None:
    r"""eq:erf-linear. Return the limit $k\to0$ with growing value, where erf attention is linear, or None.

    $o + \mathrm{erf}(\lambda\chi + b)\propto c + \chi$ as $k\to0$ where $o$ cancels erf(b): with any $c$ if one of the
    two is free, with $c = 0$ otherwise.
    """
    free, c, task = question.free, question.constants, question.task
    if "offset" in free or ("shift" in free and abs(c["offset"]) < 1):
        excess = linear_optimum(task)[0]
    elif "shift" not in free and abs(c["offset"] + special.erf(c["shift"])) <= 2 * EPS * abs(c["offset"]):
        excess = the("risk of plain scores", task=task)(task)
    else:
        return None
    points = [p for _, p in lowest if p.index == 0]
    if not points:
        return None
    return Limit(excess, points[0], "0, with the value growing: erf is linear there")


@route("risk of plain scores", name="shifted", task=SpikedSLR)
def _plain_shifted(task: SpikedSLR) -> Estimate:
    r"""eq:erf-linear. Return the least risk of weights that are proportional to the score."""
    G, n = task.label_var, task.length_moments()["task.others"]
    value = G * (G * G + n) / (G * (task.snr + G) + n)
    return Estimate(value, 16 * EPS * value)


@route("risk of plain scores", name="tilted", task=MaxSLR)
def _plain_tilted(task: MaxSLR) -> Estimate:
    x, w = place_race.winner_rule(task)
    n = task.length_moments()["task.others"]
    return Estimate(1 - float(w @ x) ** 2 / (n + 1), 64 * EPS + place_race.TAIL * task.longest)


def _step(question: Question, sign: float, largest: float) -> Limit:
    r"""eq:erf-step. Return the limit $o + \mathrm{sgn}(\chi - \tau)$, $|k|\to\infty$; $\tau = 0$ for a given shift."""
    c, scaled = question.constants, "scale" in question.free
    unit = 1.0 if scaled else 1 / c["scale"]
    far = ACCURACY.far * unit * (1.0 if "shift" in question.free else max(1.0, abs(c["shift"])))

    def at(norm: float, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        scale = np.full(len(turns), 1.0 if scaled else norm)
        free = {"shift": -turns * norm / unit} if "shift" in question.free else {}
        free |= {"scale": np.full(len(turns), norm)} if scaled else {}
        return least_risks(
            count_of(question), lambda more: question.many_forms(scale, sign * scale, {**free, **more}, SEARCH)
        )

    turns, width = np.zeros(1), 0.0
    if "shift" in question.free:
        width = 2 * float(np.max(turning(question)))
        turns = np.linspace(-width, width, ACCURACY.turns)
    for _ in range(ACCURACY.zooms if width else 0):
        best, width = float(turns[np.argmin(at(far, turns)[0])]), 2 * width / (ACCURACY.turns - 1)
        turns = np.linspace(best - width, best + width, ACCURACY.turns)
    values, offsets = at(far, turns)
    i = int(np.argmin(values))
    nearer = at(far / 10, turns[i : i + 1])[0][0]
    # the distance to the limit shrinks as 1 / norm, so at `far` it is below this change over a factor of 10
    error = abs(float(values[i] - nearer)) + 64 * EPS * question.task.label_var
    constants = {}
    largest, norm = (1e4, 1.0) if scaled else (largest, largest)
    if scaled:
        constants["scale"] = largest
    if "shift" in question.free:
        constants["shift"] = -float(turns[i]) * largest / unit
    if offsets is not None:
        constants["offset"] = float(offsets[i])
    return Limit(Estimate(float(values[i]), error), Point(-1, norm, sign, constants), "infinity: erf is a step there")


def _steepest(question: Question, lowest: Scanned) -> Limit | None:
    """Return a kernel's risk extrapolated in 1 / |k|, if the scan was lowest at its last norm, or None. Its error is
    the change made by the last order of the extrapolation.
    """
    point = min(lowest, key=lambda pair: pair[0])[1]
    if point.index < max(p.index for _, p in lowest) or point.index == 0:
        return None
    at = [question.value(replace(point, scale=point.scale / 2**i), SEARCH) for i in range(4)]
    if not np.all(np.isfinite(at)):
        return None
    first = [2 * a - b for a, b in itertools.pairwise(at)]
    second = [(4 * a - b) / 3 for a, b in itertools.pairwise(first)]
    error = abs(second[0] - second[1]) + abs(second[0] - first[0])
    return Limit(Estimate(second[0], error), point, "infinity")
