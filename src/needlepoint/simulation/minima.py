"""Minima of a training objective: L-BFGS in the problem's own units, and what several starts ended at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import numpy as np
from scipy import optimize

APART = 1e-4
"""Two starts ended at different minima if their energies differ by more than this part of the larger one."""

FITTED = 1e-9
"""Part of the energy of predicting 0 below which an energy, or a difference of two, is rounding."""

HOW = {"lbfgs": "L-BFGS", "adam": "Adam", "fista": "FISTA", "amp": "message passing"}

_STEPS = 10_000  # most iterations, and most gradients
_MEMORY = 30  # pairs of steps and gradients that L-BFGS keeps


class Reached(Protocol):
    """A minimum, of which only the energy is needed to compare starts."""

    @property
    def energy(self) -> float: ...


M = TypeVar("M", bound=Reached)


def descend(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    weights: np.ndarray,
    units: np.ndarray | float,
    tolerance: float,
) -> tuple[np.ndarray, int]:
    """Return where L-BFGS ends from these weights, in their shape, and after how many gradients.

    It works on weights / `units`, and stops where the norm of the gradient by these is below the tolerance.
    """

    def scaled(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = value_and_gradient(units * flat.reshape(weights.shape))
        return value, (units * gradient).ravel()

    found = optimize.minimize(
        scaled,
        (weights / units).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxcor": _MEMORY,
            "maxiter": _STEPS,
            "maxfun": _STEPS,
            "ftol": 0.0,
            "gtol": tolerance / math.sqrt(weights.size),  # bounds the largest entry, and so the norm by the tolerance
        },
    )
    return units * found.x.reshape(weights.shape), int(found.nfev)


def lowest(minima: Mapping[str, M]) -> M:
    """Return the minimum of least energy; an energy that is not finite counts as infinite."""
    return min(minima.values(), key=lambda m: m.energy if np.isfinite(m.energy) else np.inf)


def are_apart(minima: Mapping[str, Reached], energy_at_zero: float) -> bool:
    """Whether the starts ended at different energies."""
    energies = [minimum.energy for minimum in minima.values()]
    return max(energies) - min(energies) > APART * max(energies) + FITTED * energy_at_zero


def notes_on_starts(algorithm: str, unfinished: int, runs: int, repeats: int, means: Mapping[str, float]) -> list[str]:
    """Return one sentence if runs did not converge, and one if the starts compared were two; `means` has the mean of
    every metric."""
    notes = []
    if unfinished:
        notes.append(f"in {unfinished} of {runs} runs {HOW[algorithm]} stopped before the gradient vanished.")
    if "starts_apart" in means and "best_found_again" not in means:
        notes.append(
            f"the two starts ended at different energies in {round(means['starts_apart'] * repeats)} of {repeats} "
            f"repeats (means {means['energy_random']:.6g} from the random start, {means['energy_informed']:.6g} from "
            "the informed one)."
        )
    return notes
