"""What a repeat with many starts says besides the metrics of its lowest minimum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
from scipy.special import gammaln

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.options import SimulationOptions
from needlepoint.learners import Ridge
from needlepoint.simulation.starts.accuracy import ACCURACY
from needlepoint.simulation.starts.distinct import Change, common, found_by

INFORMED = "informed"
"""The name of the start at the teachers; every other start is random."""

OF_A_START = ("key", "value", "key_sq", "value_sq")
"""Overlaps that are reported of single starts, where a model has them."""


class Reached(Protocol):
    """A minimum, of which energy and weights (P, d) are needed."""

    @property
    def energy(self) -> float: ...
    @property
    def weights(self) -> np.ndarray: ...


M = TypeVar("M", bound=Reached)


def check_starts(learner: Ridge, options: SimulationOptions) -> None:
    """Raise an error where one start is all there is to choose from, and for more starts than are taken."""
    if options.starts == 1:
        return
    where = f"simulate(starts={options.starts})"
    if options.starts > ACCURACY.most_starts:
        raise InvalidParameter(f"{where}: at most {ACCURACY.most_starts} starts are trained in a repeat.")
    if learner.algorithm != "lbfgs":
        raise InvalidParameter(
            f"{where}: Ridge(algorithm={learner.algorithm!r}) is run from one start; leave algorithm out, or starts."
        )
    if learner.start == INFORMED:
        raise InvalidParameter(
            f"{where}: Ridge(start='informed') has one start, the teachers; leave start out for random starts beside "
            "them, or write start='random'."
        )


def names_of_starts(learner: Ridge, starts: int) -> list[str]:
    """Return the name of every start: `random`, `random_2`, ..., and `informed` where the learner wants the
    teachers."""
    random = ["random", *(f"random_{i}" for i in range(2, starts + 1))]
    wanted = {"random": random, "informed": [INFORMED], "both": [*random, INFORMED]}
    return wanted[learner.start]


def measures(
    minima: Mapping[str, M],
    labels: Sequence[str],
    measured: Callable[[M], dict[str, float]],
    allowed: Sequence[Change],
    fixed: Change,
    rounding: float,
) -> dict[str, float]:
    """Return what the starts of a repeat say.

    energy_best_of_k    the mean energy of the lowest of k random starts, over all choices of k of them
    best_found_again    1 if more than one start found the lowest minimum
    random_missed       1 if only the informed start found it
    distinct_minima     how many minima were found
    X_between_minima    the product of column X of two of them, averaged over pairs; |X|^2 where there is one minimum
    X_between_lowest    the same of the lowest two
    ..._one_start       the metrics of one random start, averaged over all of them
    ..._informed        the metrics of the minimum that the informed start found

    `measured` gives the metrics of a minimum, `labels` are the names of the columns, `allowed` the gauges, `fixed`
    brings weights into one gauge, and `rounding` is an energy below which differences are rounding.
    """
    names = list(minima)
    energies = np.array([minimum.energy for minimum in minima.values()])
    random = [i for i, name in enumerate(names) if name != INFORMED]
    found = found_by(energies, np.array([m.weights for m in minima.values()]), allowed, rounding)
    values = {f"energy_best_of_{k}": best_of(energies[random], k) for k in tried(len(random))}
    values["best_found_again"] = float(len(found) > 0 and len(found[0]) > 1)
    if INFORMED in minima:
        values["random_missed"] = float(len(found) > 0 and found[0] == [names.index(INFORMED)])
    values["distinct_minima"] = float(len(found))
    lowest_each = [fixed(minima[names[members[0]]].weights) for members in found]
    for name, chosen in (("minima", lowest_each), ("lowest", lowest_each[:2])):
        shared = common(chosen) if chosen else np.full(len(labels), np.nan)
        values |= {f"{label}_between_{name}": float(x) for label, x in zip(labels, shared, strict=True)}
    each = [measured(minima[names[i]]) for i in random]
    values |= {f"{name}_one_start": float(np.mean([one[name] for one in each])) for name in each[0] if name != "energy"}
    if INFORMED in minima:
        values |= {f"{name}_informed": x for name, x in measured(minima[INFORMED]).items()}
    return values


def tried(starts: int) -> list[int]:
    """Return 1, 4, 16, ... and the number of starts itself."""
    powers = [4**i for i in range(32) if 4**i < starts]
    return [*powers, starts]


def best_of(energies: np.ndarray, k: int) -> float:
    """Return the mean over all choices of k energies of the lowest of them.

    Of n energies in rising order the i-th (from 0) is the lowest in C(n - 1 - i, k - 1) of C(n, k) choices.
    """
    n = len(energies)
    rank = np.arange(n - k + 1)
    log_share = _log_choose(n - 1 - rank, k - 1) - _log_choose(np.array(n), k)
    return float(np.exp(log_share) @ np.sort(energies)[: n - k + 1])


def _log_choose(n: np.ndarray, k: int) -> np.ndarray:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def note_on_search(starts: int, repeats: int, means: Mapping[str, float]) -> str:
    """Return one sentence on how far the lowest minimum is to be trusted; `means` has the mean of every metric."""
    again = round(means["best_found_again"] * repeats)
    missed = means.get("random_missed")
    more = "" if missed is None else f", and only by the start at the teachers in {round(missed * repeats)}"
    return (
        f"the lowest minimum of {starts} random starts{'' if missed is None else ' and the teachers'} was found more "
        f"than once in {again} of {repeats} repeats{more}; where it was found once there may be a lower one."
    )
