"""Training attention on data of the attention-indexed model, and what the learned matrix is worth."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from needlepoint.core.answers.spectra import TrainedSpectrum, group_means
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory, UnknownName
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import IndexedOverlaps
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.losses import squared_error
from needlepoint.models.attention import DirectAttention, TiedAttention
from needlepoint.simulation.indexed.accuracy import ACCURACY
from needlepoint.simulation.indexed.amp import amp
from needlepoint.simulation.indexed.minimisers import adam, fista, lbfgs
from needlepoint.simulation.indexed.problem import Minimum, Problem, draw_problem, draw_sequences, stream
from needlepoint.simulation.minima import are_apart, lowest, notes_on_starts
from needlepoint.tasks.attention_indexed import AttentionIndexed

ALGORITHMS = ("lbfgs", "adam", "fista", "amp")

ZERO = 1e-3
"""Eigenvalues below this part of the largest one count as zero, as do those below 1e-6 of the target's largest."""


class Learned(NamedTuple):
    """The eigenvalues of S and of the target in rising order, (repeats, d), and every metric, (repeats,)."""

    eigenvalues: np.ndarray
    target: np.ndarray
    values: dict[str, np.ndarray]


class Trained(NamedTuple):
    """A data set and the minimum reached from each start."""

    problem: Problem
    minima: dict[str, Minimum]

    @property
    def best(self) -> Minimum:
        return lowest(self.minima)

    @property
    def apart(self) -> bool:
        return are_apart(self.minima, self.problem.energy_at_zero)


@rule("simulate", AttentionIndexed, TiedAttention, Ridge, when=squared_error)
@rule("simulate", AttentionIndexed, DirectAttention, Ridge, when=squared_error)
def simulate_indexed(
    task: AttentionIndexed, model: TiedAttention | DirectAttention, learner: Ridge, options: SimulationOptions
) -> Measurement:
    """Return the measured minimum of eq:indexed-energy: it is trained on fresh data and tested on fresh sequences in
    every repeat."""
    if options.starts > 1:
        raise NoTheory(
            f"simulate(starts={options.starts}): {type(task).__name__} is trained from one random start beside the "
            "target; leave starts out."
        )
    return simulated(task, model, learner, options)[0]


def simulated(
    task: AttentionIndexed,
    model: TiedAttention | DirectAttention,
    learner: Ridge,
    options: SimulationOptions,
    algorithm: str | None = None,
) -> tuple[Measurement, Learned]:
    """Return the measurement, and the repeats that it is the mean of. `algorithm` is the learner's if None."""
    task.check_temperature(model.beta)
    values, spectra, targets, unfinished, beyond_width = [], [], [], 0, 0
    for repeat in range(options.repeats):
        trained = train(task, model, learner, options.d, options.seed, repeat, algorithm)
        eigenvalues = np.linalg.eigvalsh(trained.best.S)
        values.append(_measure(trained, eigenvalues, options, repeat))
        spectra.append(eigenvalues)
        targets.append(np.sort(trained.problem.target))
        unfinished += sum(not minimum.converged for minimum in trained.minima.values())
        beyond_width += round(values[-1]["rank_fraction"] * options.d) > trained.problem.width
        options.progress((repeat + 1) / options.repeats)
    learned = Learned(
        np.array(spectra), np.array(targets), {name: np.array([v[name] for v in values]) for name in values[0]}
    )
    estimates = {name: mean_estimate(x) for name, x in learned.values.items()}
    overlaps = {name: estimates.pop(name) for name in ("m", "q")}
    finite = np.isfinite(estimates["energy"].value)
    return (
        Measurement(
            task,
            model,
            learner,
            estimates,
            status=(Status.MAX_STEPS if unfinished else Status.CONVERGED) if finite else Status.DIVERGED,
            overlaps=IndexedOverlaps(**{name: e.value for name, e in overlaps.items()}) if finite else None,
            overlaps_error={name: e.error for name, e in overlaps.items()},
            notes=tuple(_notes(learner, learned, algorithm or learner.algorithm, unfinished, beyond_width)),
            d=options.d,
            repeats=options.repeats,
            seed=options.seed,
            spectrum=TrainedSpectrum(learned.eigenvalues, learned.target),
            values={**learned.values, **group_means(learned.eigenvalues)},
        ),
        learned,
    )


@threadpool_limits.wrap(limits=1, user_api="blas")  # the small products of a sequence are slower with more threads
def train(
    task: AttentionIndexed,
    model: TiedAttention | DirectAttention,
    learner: Ridge,
    d: int,
    seed: int,
    repeat: int,
    algorithm: str | None = None,
) -> Trained:
    """Return one repeat: a fresh target and data, and the minima that the learner's starts lead to.

    Message passing and FISTA start at S = 0. One start is enough where the problem is convex in S.
    """
    algorithm = algorithm or learner.algorithm
    if algorithm not in ALGORITHMS:
        raise UnknownName("algorithm", algorithm, ALGORITHMS)
    lam = learner.penalties[0]
    if isinstance(learner.lam, tuple):
        raise InvalidParameter(f"{learner!r}: the attention-indexed model has one penalty; give lam as one number.")
    problem = draw_problem(task, model, lam, round(learner.alpha * d**2), d, seed, repeat)
    if algorithm in ("amp", "fista"):
        return Trained(problem, {"zero": (amp if algorithm == "amp" else fista)(problem)})
    minimise = lbfgs if algorithm == "lbfgs" else adam
    wanted = ("random", "informed") if learner.start == "both" else (learner.start,)
    if task.tokens == 1 and problem.width >= d:
        wanted = wanted[:1]
    return Trained(problem, {name: minimise(problem, start(problem, name, stream(seed, repeat, 3))) for name in wanted})


def start(problem: Problem, name: str, rng: np.random.Generator) -> np.ndarray:
    """Return weights to begin with: W (d, p) for tied attention, S (d, d) for direct.

    Random W are standard normals, which make S of the size of a target. Informed W are those of the target plus a tenth
    of that, because columns of W that are exactly 0 would stay so. Direct attention begins at a tenth of a random
    symmetric matrix, or at the target.
    """
    d, p = problem.d, problem.width
    normal = rng.standard_normal((d, p))
    if not problem.tied:
        return np.diag(problem.target) if name == "informed" else 0.1 * (normal + normal.T) / np.sqrt(2 * d)
    if name == "random":
        return normal
    W = 0.1 * normal
    largest = np.argsort(problem.target)[::-1][: min(d, p)]
    W[largest, np.arange(len(largest))] += (p * d) ** 0.25 * np.sqrt(problem.target[largest])
    return W


def _measure(trained: Trained, eigenvalues: np.ndarray, options: SimulationOptions, repeat: int) -> dict[str, float]:
    problem, S, d = trained.problem, trained.best.S, options.d
    m, q = float(np.diag(S) @ problem.target) / d, float(np.sum(S**2)) / d
    sizes = np.abs(eigenvalues)
    zero = max(ZERO * sizes.max(), 1e-6 * problem.target.max())
    risk, clean_risk = risks(problem, S, options, repeat)
    values = {
        "risk": risk,
        "clean_risk": clean_risk,
        "train_loss": problem.train_loss(S),
        "energy": trained.best.energy,
        "estimation_error": float(np.sum((S - np.diag(problem.target)) ** 2)) / d,
        "rank_fraction": float(np.mean(sizes > zero)),
        "m": m,
        "q": q,
    }
    if len(trained.minima) > 1:
        values |= {f"energy_{name}": minimum.energy for name, minimum in trained.minima.items()}
        values["starts_apart"] = float(trained.apart)
    return values


def risks(problem: Problem, S: np.ndarray, options: SimulationOptions, repeat: int) -> tuple[float, float]:
    """Return the mean errors on the same fresh sequences with noisy and with clean labels."""
    rng, noise = stream(options.seed, repeat, 4), stream(options.seed, repeat, 5)
    block = max(1, ACCURACY.drawn // (problem.task.tokens * problem.d))
    sums = np.zeros(2)
    for begin in range(0, options.samples, block):
        data = draw_sequences(problem.task, problem.target, min(block, options.samples - begin), rng, noise)
        z = problem.scores(data.x, S)
        sums += [problem.errors(data, clean).losses_and_slopes(z)[0].sum() for clean in (False, True)]
    risk, clean_risk = sums / options.samples
    return float(risk), float(clean_risk)


def _notes(learner: Ridge, learned: Learned, algorithm: str, unfinished: int, beyond_width: int) -> list[str]:
    repeats, means = len(learned.target), {name: float(np.mean(x)) for name, x in learned.values.items()}
    runs = repeats * (2 if "starts_apart" in means else 1)
    notes = notes_on_starts(algorithm, unfinished, runs, repeats, means)
    if beyond_width:
        notes.append(
            f"in {beyond_width} of {repeats} repeats the learned matrix has a higher rank than W has columns: it is "
            "the minimum over all S >= 0, which this width does not reach."
        )
    if learner.lam == 0.0:
        notes.append("with a penalty of 0 the minimum need not be unique; other starts may end elsewhere.")
    return notes
