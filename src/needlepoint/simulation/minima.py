"""Minima of a training objective: L-BFGS in the problem's own units, and what several starts ended at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import numpy as np
from scipy import optimize

APART = 1e-4
"""Two starts ended at different minima if their energies differ by more than this, relatively."""

FITTED = 1e-9
"""Of the energy of predicting 0: energies below it are rounding."""

HOW = {"lbfgs": "L-BFGS", "adam": "Adam", "fista": "FISTA", "amp": "message passing"}

_STEPS = 10_000
_MEMORY = 30


class Reached(Protocol):
    """A minimum, as far as starts are compared."""

    @property
    def energy(self) -> float: ...


M = TypeVar("M", bound=Reached)


def descend(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    weights: np.ndarray,
    units: np.ndarray | float,
    tolerance: float,
) -> tuple[np.ndarray, int]:
    """Where L-BFGS ends from these weights, measured in `units`, and after how many gradients: it stops where the norm
    of the gradient is below the tolerance."""

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
            "gtol": tolerance / math.sqrt(weights.size),  # of the largest entry
        },
    )
    return units * found.x.reshape(weights.shape), int(found.nfev)


def lowest(minima: Mapping[str, M]) -> M:
    """The one of least energy, an overflow counting as infinite."""
    return min(minima.values(), key=lambda m: m.energy if np.isfinite(m.energy) else np.inf)


def are_apart(minima: Mapping[str, Reached], energy_at_zero: float) -> bool:
    """Whether the starts ended at different energies."""
    energies = [minimum.energy for minimum in minima.values()]
    return max(energies) - min(energies) > APART * max(energies) + FITTED * energy_at_zero


def notes_on_starts(algorithm: str, unfinished: int, runs: int, repeats: int, means: Mapping[str, float]) -> list[str]:
    """One sentence if runs did not end, one if two starts were compared: `means` of what is measured, by its name."""
    notes = []
    if unfinished:
        notes.append(f"in {unfinished} of {runs} runs {HOW[algorithm]} stopped before the gradient vanished.")
    if "starts_apart" in means:
        notes.append(
            f"the two starts ended at different energies in {round(means['starts_apart'] * repeats)} of {repeats} "
            f"repeats (means {means['energy_random']:.6g} from the random start, {means['energy_informed']:.6g} from "
            "the informed one)."
        )
    return notes
