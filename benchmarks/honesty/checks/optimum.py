"""The best at infinite data: the risk at the point that is reported, and what a step of Newton's method from there
still gains. Whether another minimum is lower is another question, which a search at random asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from benchmarks.honesty import questions as ask
from benchmarks.honesty import references
from benchmarks.honesty.record import Check, Question, Row, metric_rows
from benchmarks.honesty.references import max_elementwise
from benchmarks.honesty.references.mellin import max_bayes, spiked_bayes
from benchmarks.honesty.references.panels import line, normal_density
from scipy import optimize

import needlepoint as ndl

LONGEST = 8.0  # key of a sink on the max task that the reference is asked about
STRIDE = 0.7  # of the logarithm of a key's norm
STEP = 1e-4


def draw(index: int) -> Question:
    draw = ask.Draw(3, index)
    spiked, unit = index % 2 == 0, draw.chance(0.3)
    kind = draw.one_of("erf", "erf", "erf free", "linear", "softmax", "softplus", "sigmoid_gate", "sink_softmax")
    if kind in ("erf", "erf free"):
        activation = ask.erf(draw, 0.1, 10.0) if unit else ask.erf(draw, 0.5, 2.0)
        if kind == "erf free":
            activation = activation.replace(**{draw.one_of("shift", "offset", *(["scale"] if unit else [])): None})
    elif kind in ("sigmoid_gate", "sink_softmax"):
        activation = ask.user(kind)
    else:
        activation = {"linear": ndl.Linear(), "softmax": ndl.Softmax(), "softplus": ndl.Softplus()}[kind]
    most = 4 if kind == "sink_softmax" else 30 if kind in ("softmax", "softplus") and not spiked else 1000
    task = ask.spiked(draw, most) if spiked else ask.maximal(draw, most, top=10.0)
    everywhere = kind == "erf" and unit and spiked and draw.chance(0.5)
    learner = ndl.Population(within="all") if everywhere else ndl.Population()
    return Question("predict", (task, ndl.KeyValueAttention(activation, unit), learner))


def compare(question: Question, found: Any) -> Iterable[Row]:
    task, model, _ = question.parts
    activation = model.activation
    softmax = isinstance(activation, ndl.Softmax) and not model.unit_norm and task.label_var == 1
    if softmax:
        best = max_bayes(task) if isinstance(task, ndl.MaxSLR) else spiked_bayes(task, 2)
    elif found.overlaps is None or _too_steep(task, activation, found.overlaps):
        return []
    elif isinstance(activation, ndl.Linear) and not model.unit_norm:
        best = linear(task)
    else:
        resolved = found.resolved[1]
        on_manifold = found.overlaps.distance_to_manifold == 0
        settled = found.status is ndl.Status.CONVERGED and on_manifold
        if found.status is ndl.Status.UNBOUNDED and found.ok and on_manifold and not model.unit_norm:
            if found.overlaps.key_sq > 1 or not {*model.free_constants()} <= {"offset"}:
                return []  # a key too long for the reference, or a shift that vanishes with the key
            best = limit(task, model, resolved, found.overlaps)
        else:
            best = polished(task, model, resolved, found.overlaps) if settled else at(task, resolved, found.overlaps)
    name = "excess_risk" if found.status is ndl.Status.CONVERGED else f"excess_risk, {found.status.name}"
    e = found.excess_risk
    return [Row(name, e.value, e.error, *best, e.kind)]


def _too_steep(task: Any, activation: Any, o: ndl.Overlaps) -> bool:
    """Whether the reference of a sink on the max task would take panels by the million."""
    return isinstance(task, ndl.MaxSLR) and activation.form == "general" and o.key_sq > LONGEST**2


def at(task: Any, model: Any, overlaps: ndl.Overlaps) -> tuple[float, float]:
    return references.excess_risk(task, model.activation, overlaps)


def polished(task: Any, asked: Any, model: Any, o: ndl.Overlaps) -> tuple[float, float]:
    """The risk at the point, less what a Newton step in the key's norm and each free constant gains."""
    here, error = at(task, model, o)
    lowest = here
    tilted = o.replace(key=o.key * math.cos(0.1)) if o.key_sq > 0 else o
    lowest = min(lowest, best_value(task, asked, model, tilted, o))
    for move in moves(asked, o):
        up, middle, down = (best_value(task, asked, *move(model, o, h)) for h in (STEP, 0.0, -STEP))
        slope, curve = (up - down) / (2 * STEP), (up - 2 * middle + down) / STEP**2
        step = -slope / curve if curve > 0 else -math.copysign(0.1, slope)
        step = math.copysign(min(abs(step), 0.5), step)
        lowest = min(lowest, up, down, best_value(task, asked, *move(model, o, step)))
    return lowest, error


Move = Callable[[Any, ndl.Overlaps, float], tuple[Any, ndl.Overlaps, ndl.Overlaps]]


def limit(task: Any, asked: Any, model: Any, o: ndl.Overlaps) -> tuple[float, float]:
    """Where the risk goes as the key's norm leaves, from the point on, and a free offset with it: by what is left of a
    geometric approach."""

    def risk(h: float) -> float:
        there = model
        if "offset" in asked.free_constants():
            offset = model.activation.offset * math.exp(h)
            there = model.replace(activation=model.activation.replace(offset=offset))
        key = o.replace(key=o.key * math.exp(h), key_sq=o.key_sq * math.exp(2 * h))
        return best_value(task, asked, there, key, o)

    a, b, c = min(([risk(0.0), risk(h), risk(2 * h)] for h in (-STRIDE, STRIDE)), key=lambda way: way[1])
    bend = (c - b) - (b - a)
    gain = (c - b) ** 2 / bend if bend > 0 else 0.0
    return c - gain, 0.05 * gain + 1e-14 * abs(c)


def moves(asked: Any, o: ndl.Overlaps) -> list[Move]:
    found: list[Move] = []
    if not asked.unit_norm and o.key_sq > 0:

        def longer(model: Any, o: ndl.Overlaps, h: float) -> tuple[Any, ndl.Overlaps, ndl.Overlaps]:
            return model, o.replace(key=o.key * math.exp(h), key_sq=o.key_sq * math.exp(2 * h)), o

        found.append(longer)
    for name in asked.free_constants():

        def changed(model: Any, o: ndl.Overlaps, h: float, name: str = name) -> tuple[Any, ndl.Overlaps, ndl.Overlaps]:
            old = getattr(model.activation, name)
            new = old * math.exp(h) if name == "scale" else old + h * min(1.0, abs(old) or 1.0)
            return model.replace(activation=model.activation.replace(**{name: new})), o, o

        found.append(changed)
    return found


def best_value(task: Any, asked: Any, model: Any, o: ndl.Overlaps, value: ndl.Overlaps) -> float:
    """The risk on the manifold with this key and the best value, from R = G - 2 A v + B v^2 at two values."""
    if asked.unit_norm:
        return min(at(task, model, o.replace(value=x, value_sq=1.0))[0] for x in (value.value, -value.value))
    size = abs(value.value) or 1.0
    plus, minus = (at(task, model, o.replace(value=x, value_sq=size**2))[0] for x in (size, -size))
    A, B = (minus - plus) / (4 * size), ((plus + minus) / 2 - task.label_var) / size**2
    return task.label_var - A * A / B if B > 0 else task.label_var


def linear(task: Any) -> tuple[float, float]:
    """1 + score with the key along its teacher, minimised over its length: A and B are moments of Gaussian numbers."""
    n = sum(p * (length - 1) for length, p in task.length_law)
    if isinstance(task, ndl.SpikedSLR):
        G, m = task.relevant_std**2, math.sqrt(task.snr)

        def risk(k: float) -> float:
            A, B = G * (1 + m * k), G * ((1 + m * k) ** 2 + G * k * k) + n * (1 + k * k)
            return G * (B - G * (1 + m * k) ** 2) / B if n else G * G * G * k * k / B + 0 * A
    else:
        x, w = line(-9.5, 9.5, 0.5)
        W = max_elementwise.winner(task, 0.8)(np.clip(x, -10, 10))
        mean = float((w * normal_density(x)) @ (x * W))

        def risk(k: float) -> float:
            return 1 - (1 + k * mean) ** 2 / ((n + 1) * (1 + k * k))

    best: Any = optimize.minimize_scalar(risk, bounds=(-1e-3, 20.0), method="bounded", options={"xatol": 1e-12})
    around = min(float(best.fun), *(risk(float(k)) for k in np.linspace(0, 20, 2001)))
    return around, 1e-13 * (1 + abs(around))


def draw_regression(index: int) -> Question:
    draw = ask.Draw(4, index)
    n = round(draw.between(2, 40))
    task = ask.spiked(draw, 2) if index % 2 else ask.maximal(draw, 2)
    return Question("predict", (task.replace(tokens=n), ndl.LinearRegression(), ndl.Population()))


def regression(question: Question, found: Any) -> Iterable[Row]:
    """Normal equations of all coordinates of all positions, with an intercept, from moments of X and y at d = 3."""
    task = question.parts[0]
    L = task.fixed_length
    if isinstance(task, ndl.SpikedSLR):
        G, m = task.relevant_std**2, math.sqrt(task.snr)
        # coordinates: k*, v*, one more; each position is relevant with probability 1 / L
        spread = np.array([(L - 1 + G) / L + m * m * (1 / L - 1 / L**2), (L - 1 + G) / L, (L - 1 + G) / L])
        between = np.array([-m * m / L**2, 0.0, 0.0])  # the spike is at one place only
        label = np.array([0.0, G / L, 0.0])
        var = G
    else:
        spread, between, label, var = np.ones(3), np.zeros(3), np.array([0.0, 1 / L, 0.0]), 1.0
    C = np.kron(np.eye(L), np.diag(spread)) + np.kron(np.ones((L, L)) - np.eye(L), np.diag(between))
    c = np.tile(label, L)
    value = var - float(c @ np.linalg.lstsq(C, c, rcond=None)[0])
    return metric_rows(found, {"excess_risk": (value, 1e-13 * var)})


CHECKS = (
    Check(
        "population",
        (("SpikedSLR", "KeyValueAttention", "Population"), ("MaxSLR", "KeyValueAttention", "Population")),
        250,
        "the references of population_risk at the point reported and a Newton step from it; closed forms for linear; "
        "Mellin transforms for softmax",
        draw,
        compare,
        quick=(7, 11, 14, 18, 32, 37, 38),
    ),
    Check(
        "linear_regression",
        (("SpikedSLR", "LinearRegression", "Population"), ("MaxSLR", "LinearRegression", "Population")),
        40,
        "normal equations of all positions and coordinates",
        draw_regression,
        regression,
        quick=(0, 1, 2, 3, 4, 5),
    ),
)
