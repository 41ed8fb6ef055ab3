"""Minimising a costly function of one or two variables in a box, with its gradient: quasi-Newton in a trust region."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Place:
    """A point x (k,) with the function's value, its gradient (k,), and what the function knows of it (`data`)."""

    x: np.ndarray
    value: float
    gradient: np.ndarray
    data: object = None


@dataclass(frozen=True)
class Descent:
    """Where a descent ended: the lowest place, the curvature (k, k) learned on the way, whether it converged (the model
    promises less than `enough`), and how often the function was asked."""

    place: Place
    curvature: np.ndarray
    converged: bool
    calls: int


@dataclass(frozen=True)
class RegionSteps:
    """The numbers that steer a descent, set by hand; radii are in the units of x."""

    first: float = 1.0
    """First radius of the box that is trusted around a point."""

    widest: float = 2.5
    """Largest radius."""

    narrowest: float = 0.02
    """The descent gives up where the radius has shrunk below this: the function is not smooth there."""

    accepted: float = 0.1
    """A step is taken if the value falls by this share of what the model promised."""

    good: float = 0.75
    """The radius grows if the value falls by this share of what the model promised."""

    flat: float = 0.03
    """Curvature that is assumed before the first step shows it, in units of the value over x squared."""


STEPS = RegionSteps()

Function = Callable[[np.ndarray, Place], Place | None]
"""From a point and the place that the descent is at, to the place there; None where the function has no value."""


def least_in_box(
    gradient: np.ndarray, curvature: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the step p (k,) in the box that makes g.p + p.B.p / 2 least, and that value.

    Exact for any symmetric B, also an indefinite one: every face of the box is tried, of which there are 3^k.
    """
    best, least = np.zeros_like(gradient), 0.0
    for face in itertools.product((None, low, high), repeat=gradient.size):
        p = np.array([0.0 if side is None else side[i] for i, side in enumerate(face)])
        free = [i for i, side in enumerate(face) if side is None]
        if free:
            inner = curvature[np.ix_(free, free)]
            if np.min(np.linalg.eigvalsh(inner)) <= 0:  # least on the boundary of this face, which is another face
                continue
            p[free] = -np.linalg.solve(inner, (gradient + curvature @ p)[free])
            if np.any(p < low) or np.any(p > high):
                continue
        value = float(gradient @ p + p @ curvature @ p / 2)
        if value < least:
            best, least = p, value
    return best, least


def learned(curvature: np.ndarray, step: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return the curvature (k, k) with which the gradient changes by `change` (k,) along `step` (k,): the symmetric
    update of rank one, or the old one where that would divide by almost nothing."""
    rest = change - curvature @ step
    scale = float(rest @ step)
    if abs(scale) <= 1e-3 * float(np.linalg.norm(rest) * np.linalg.norm(step)):
        return curvature
    return curvature + np.outer(rest, rest) / scale


def descend(
    function: Function,
    start: Place,
    low: np.ndarray,
    high: np.ndarray,
    *,
    enough: float,
    most: int,
    curvature: np.ndarray | None = None,
    steps: RegionSteps = STEPS,
) -> Descent:
    """Return the minimum in the box [low, high] that quasi-Newton steps reach from `start`.

    A step is the least point of a quadratic model within the trusted radius. The model's curvature is learned from
    every gradient that was computed, those of refused steps too. The descent ends where the model promises a fall
    below `enough`; a value may lie `enough` above another before it counts as higher, because solvers leave a little
    noise in it.
    """
    here, radius, calls = start, steps.first, 0
    curvature = steps.flat * np.eye(start.x.size) if curvature is None else curvature
    while calls < most:
        near = np.maximum(low - here.x, -radius), np.minimum(high - here.x, radius)
        step, promised = least_in_box(here.gradient, curvature, *near)
        if -promised <= enough:
            return Descent(here, curvature, True, calls)
        reached = function(here.x + step, here)
        calls += 1
        length = float(np.max(np.abs(step)))
        if reached is None:
            radius = length / 4
        else:
            curvature = learned(curvature, step, reached.gradient - here.gradient)
            share = (here.value - reached.value) / -promised
            if share < 1 / 4:
                radius = length / 2
            elif share > steps.good and length > 0.9 * radius:
                radius = min(2 * radius, steps.widest)
            # within the noise of the values the gradient decides
            level = abs(here.value - reached.value) <= enough
            calmer = np.linalg.norm(reached.gradient) < np.linalg.norm(here.gradient)
            if share > steps.accepted or (level and calmer):
                here = reached
        if radius < steps.narrowest:
            break
    return Descent(here, curvature, False, calls)


def possible_gain(
    gradient: np.ndarray, error: np.ndarray, curvature: np.ndarray, low: np.ndarray, high: np.ndarray
) -> float:
    """Return by how much the function may fall below its value here within the box [low, high] of steps, if every
    component of the gradient is off by at most `error`: the worst of the 2^k corners."""
    return max(-least_in_box(gradient + s * error, curvature, low, high)[1] for s in signs(gradient.size))


def signs(size: int) -> list[np.ndarray]:
    """Return the 2^size corners of the box from -1 to 1, (size,) each."""
    return [np.array(corner) for corner in itertools.product((-1.0, 1.0), repeat=size)]
