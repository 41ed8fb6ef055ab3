"""The attention-indexed model: ridge, Bayes, thresholds and spectra."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from benchmarks.honesty import questions as ask
from benchmarks.honesty.record import Check, Question, Row, metric_rows
from benchmarks.honesty.references import density, indexed

import needlepoint as ndl

UNSTATED = 1e-6
"""Spectra and thresholds have no error of their own: they are held to this share of their scale."""


def target(draw: ask.Draw, wide: float = 1e3) -> Any:
    kind = draw.one_of("wishart", "wishart", "atoms", "power")
    if kind == "wishart":
        return ndl.Wishart(draw.between(0.02, wide))
    if kind == "power":
        return ndl.PowerLaw(draw.uniform(0.3, 2.0), round(draw.between(5, 40)))
    count = int(draw.rng.integers(1, 5))
    values = [0.0 if draw.chance(0.2) else draw.between(0.05, 20.0) for _ in range(count)]
    values[0] = values[0] or 1.0
    shares = [round(float(x), 3) for x in draw.rng.dirichlet(np.ones(count))]
    shares[0] = round(1.0 - sum(shares[1:]), 3)
    if len(set(values)) < count or min(shares) <= 0:
        return ndl.Eigenvalues(tuple(sorted(set(values))))
    return ndl.Eigenvalues(tuple(values), tuple(shares))


def noise(draw: ask.Draw) -> float:
    return 0.0 if draw.chance(0.25) else draw.between(1e-3, 1e6) if draw.chance(0.2) else draw.uniform(0.0, 3.0)


def model(draw: ask.Draw, beta: float) -> Any:
    if draw.chance(0.25):
        return ndl.DirectAttention(beta)
    return ndl.TiedAttention(beta, width_ratio=draw.one_of(1.0, 1.0, draw.between(0.5, 5.0)))


def draw_one(index: int) -> Question:
    draw = ask.Draw(7, index)
    task = ndl.AttentionIndexed(1, target(draw), noise(draw))
    return Question("predict", (task, model(draw, 1.0), ndl.Ridge(draw.between(0.05, 10.0), draw.between(1e-3, 10.0))))


def compare_one(question: Question, found: Any) -> Iterable[Row]:
    task, model, learner = question.parts
    if found.status is ndl.Status.MAX_STEPS or found.conjugates["cut"] < 0:
        return []
    if isinstance(model, ndl.TiedAttention) and found.rank_fraction.value < 1e-6:
        return []  # nothing is learned, and the equations are at the edge of their domain
    fine, coarse = (indexed.one_token(task, model, learner, dict(found.conjugates), n) for n in (24, 18))
    scale = 1e-14 * (density.Target(task.target).square + task.noise_var)
    return metric_rows(found, {k: (x, abs(x - coarse[k]) + scale) for k, x in fine.items()})


def draw_two(index: int) -> Question:
    draw = ask.Draw(8, index)
    beta_star = draw.between(0.5, 2.0)
    task = ndl.AttentionIndexed(2, ndl.Wishart(draw.between(0.05, 3.0)), draw.uniform(0.0, 2.0), beta_star)
    if draw.chance(0.3):
        task = task.replace(target=ndl.Eigenvalues((draw.uniform(0.1, 1.0), draw.uniform(1.0, 3.0))))
    beta = beta_star if draw.chance(0.5) else draw.between(0.5, 2.0)
    return Question("predict", (task, model(draw, beta), ndl.Ridge(draw.between(0.05, 5.0), draw.between(3e-3, 1.0))))


def compare_two(question: Question, found: Any) -> Iterable[Row]:
    task, model, learner = question.parts
    usable = found.status in (ndl.Status.CONVERGED, ndl.Status.UNSTABLE)
    if not usable or found.overlaps.q < 1e-9 or not found.conjugates["susceptibility"] > 0:
        return []
    fine, coarse = (indexed.two_tokens(task, model, learner, found, n) for n in (26, 20))
    return metric_rows(found, {k: (x, abs(x - coarse[k])) for k, x in fine.items()})


def draw_bayes(index: int) -> Question:
    draw = ask.Draw(9, index)
    task = ndl.AttentionIndexed(draw.one_of(1, 1, 2, 3), target(draw), noise(draw))
    if task.tokens > 1:
        task = task.replace(noise_var=min(task.noise_var, 3.0), beta_star=draw.between(0.5, 2.0))
    return Question("predict", (task, None, ndl.BayesOptimal(draw.between(0.05, 10.0))))


def compare_bayes(question: Question, found: Any) -> Iterable[Row]:
    task, _, learner = question.parts
    fine, coarse = (indexed.bayes(task, learner.alpha, n) for n in (24, 18))
    scale = 1e-14 * (density.Target(task.target).square + task.noise_var)
    return metric_rows(found, {k: (x, abs(x - coarse[k]) + scale) for k, x in fine.items()})


def draw_thresholds(index: int) -> Question:
    draw = ask.Draw(10, index)
    task = ndl.AttentionIndexed(round(draw.between(1, 30)), target(draw), noise(draw))
    return Question("thresholds", (task, ndl.TiedAttention()))


def compare_thresholds(question: Question, found: Any) -> Iterable[Row]:
    fine, coarse = (indexed.thresholds(question.parts[0], n) for n in (24, 18))
    for name, value in fine.items():
        said = getattr(found, name)
        stated = getattr(said, "error", UNSTATED * abs(float(said)) if math.isfinite(float(said)) else 0.0)
        off = abs(value - coarse[name]) if math.isfinite(value) else 0.0
        yield Row(name, float(said), stated, value, off + 1e-15 if off or math.isfinite(value) else 0.0)


def draw_spectrum(index: int) -> Question:
    question = draw_one(index + 1000)
    task, model, learner = question.parts
    return Question("predict", (task.replace(noise_var=min(task.noise_var, 3.0)), model, learner))


def compare_spectrum(question: Question, found: Any) -> Iterable[Row]:
    """The mass of the zeros, the top edge, and quantiles, at the noise and the cut that are reported."""
    task, model, _ = question.parts
    law = density.Target(task.target)
    delta, eta = found.conjugates["noise"], found.conjugates["scale"]
    cut = found.conjugates["cut"] if isinstance(model, ndl.TiedAttention) else None
    shift = cut or 0.0
    if delta < 1e-6 * math.sqrt(law.square):
        return
    whole = density.nodes(law, delta, None, 24)
    order = np.argsort(whole.x)
    above = 1.0 if cut is None else float(density.nodes(law, delta, cut, 24).mass.sum())
    spectrum = found.spectrum
    yield Row("zeros", spectrum.atom, UNSTATED, 1 - above, 1e-12)
    top = max(0.0, float(whole.x[order][-1]) - shift) * eta
    size = max(abs(top), eta * delta)
    # the last node of the density is inside the edge by the square of an angle of 1e-4 / 24
    if len(spectrum.edges):
        yield Row("top edge", float(spectrum.edges.max()), UNSTATED * size, top, 1e-8 * size)
    for level in (0.25, 0.5, 0.75, 0.95):
        i = int(level * len(spectrum.levels))
        value = float(spectrum.values[i])
        if value <= 1e-9 * size and cut is not None:
            continue
        share = 1 - float(density.nodes(law, delta, value / eta + shift, 24).mass.sum())
        rho = float(np.interp(value / eta + shift, whole.x[order], whole.density[order]))
        # a wrong quantile is a wrong share over the density
        wrong = (share - float(spectrum.levels[i])) * eta / max(rho, 1e-12)
        yield Row("quantiles", value, 1e-4 * size, value - wrong, 1e-8 * size)


RIDGE = (("AttentionIndexed", "TiedAttention", "Ridge"), ("AttentionIndexed", "DirectAttention", "Ridge"))

CHECKS = (
    Check(
        "indexed_one_token",
        RIDGE,
        200,
        "means over the density on Biane's curve, Newton's method on the two equations; direct: the fixed point",
        draw_one,
        compare_one,
        quick=(2, 3, 5, 7, 8, 13),
    ),
    Check(
        "indexed_two_tokens",
        RIDGE,
        60,
        "the fixed point again: a four-dimensional lattice, another proximal map, means over the density",
        draw_two,
        compare_two,
    ),
    Check(
        "indexed_bayes",
        (("AttentionIndexed", "None", "BayesOptimal"),),
        120,
        "the integral of the cubed density on Biane's curve; risks of labels by a plane Gauss-Hermite rule",
        draw_bayes,
        compare_bayes,
        quick=(5, 6, 7, 10),
    ),
    Check(
        "thresholds",
        (),
        120,
        "the same integrals over the density, and of the semicircle by its angle",
        draw_thresholds,
        compare_thresholds,
        quick=(1, 2, 5, 8),
    ),
    Check(
        "spectra",
        RIDGE,
        80,
        "masses between points of Biane's curve; held to 1e-6 of the scale, quantiles to 1e-4, as no error is stated",
        draw_spectrum,
        compare_spectrum,
        quick=(0, 1, 7, 8),
    ),
)
