"""What the verbs return: predictions and measurements with the same metric names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from needlepoint.core.answers.spectra import Spectrum, TrainedSpectrum
from needlepoint.core.answers.states import States
from needlepoint.core.errors import shown
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import OFF_MANIFOLD, FieldOverlaps, IndexedOverlaps, Overlaps, as_overlaps
from needlepoint.core.specs import Spec, spec_id
from needlepoint.core.status import Status
from needlepoint.core.text.jsonio import plain
from needlepoint.core.text.showing import Showing, picture, table

UNSOLVED = (Status.MAX_STEPS, Status.DIVERGED, Status.INFEASIBLE)
"""Statuses of predictions whose solver stopped at a point that does not satisfy the equations."""

ERRORS = {"numerical": "numerical, a bound", "stderr": "one standard error"}
"""What the error of each kind of estimate is, in words."""

Progress = Callable[[float], None]
"""Called with the fraction done, between 0 and 1."""


def silent(_: float) -> None:
    """The progress callback that shows nothing."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Overlaps along several runs of a descent or a flow: `overlaps[name]` and `excess_risk` are (runs, records).

    The record at `steps[i]` is the state after that many steps, or at that time of a flow. `scale[i]` is the
    activation scale of the last step taken (of the first step at record 0; 1 for activations without a scale), and
    `excess_risk` is evaluated at it. Where the norms are free, key_sq and value_sq are among the overlaps. `branches`
    has the name of where each run ended ("oracle", "swapped", "other" or "diverged"), if that was determined.

    >>> learner = ndl.ProjectedDescent(0.01, 20, ndl.Overlaps(0.3, 0.4))
    >>> model = ndl.KeyValueAttention(ndl.Erf(scale=0.4), unit_norm=True)
    >>> path = ndl.predict(ndl.SpikedSLR(2, snr=4.0), model, learner).trajectory
    >>> bool(path.excess_risk[0, -1] < path.excess_risk[0, 0])
    True
    """

    steps: np.ndarray
    scale: np.ndarray
    overlaps: dict[str, np.ndarray]
    excess_risk: np.ndarray
    branches: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        return self.excess_risk.shape[0]

    @property
    def distance_to_manifold(self) -> np.ndarray:
        """Return sqrt(theta^2 + eta^2 + rho^2), (runs, records); NaN for overlaps of other names."""
        if not set(OFF_MANIFOLD) <= set(self.overlaps):
            return np.full(self.excess_risk.shape, np.nan)
        return np.sqrt(sum(self.overlaps[name] ** 2 for name in OFF_MANIFOLD))

    def end(self, run: int = 0) -> Overlaps | FieldOverlaps:
        """Return the overlaps of one run at the last record."""
        return as_overlaps({name: float(x[run, -1]) for name, x in self.overlaps.items()})

    def shares(self) -> dict[str, int]:
        """Return how many runs ended on each branch, by its name."""
        return {b: self.branches.count(b) for b in sorted(set(self.branches))}

    def to_json(self) -> dict[str, Any]:
        return plain(
            {
                "steps": self.steps,
                "scale": self.scale,
                "overlaps": self.overlaps,
                "excess_risk": self.excess_risk,
                "distance_to_manifold": self.distance_to_manifold,
                "branches": self.branches,
            }
        )


@dataclass(frozen=True, repr=False, eq=False)
class Result(Showing):
    """What Prediction and Measurement share; every metric is also an attribute (`result.risk`), an Estimate."""

    task: Spec
    model: Spec | None
    learner: Spec
    metrics: Mapping[str, Estimate]
    status: Status = Status.CONVERGED
    overlaps: Overlaps | FieldOverlaps | IndexedOverlaps | None = None
    overlaps_error: Mapping[str, float] = field(default_factory=dict[str, float])
    trajectory: Trajectory | None = None
    branch: str | None = None
    notes: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        """Call a run that did its steps FINISHED, also where an older store says CONVERGED."""
        if self.trajectory is not None and self.status is Status.CONVERGED:
            object.__setattr__(self, "status", Status.FINISHED)

    def __getattr__(self, name: str) -> Estimate:
        metrics = self.__dict__.get("metrics", {})
        if name in metrics:
            return metrics[name]
        have = ", ".join(metrics) or "none"
        raise AttributeError(f"{type(self).__name__} has no metric {shown(name)}; it has {have}.")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.metrics})

    @property
    def id(self) -> str:
        return spec_id(self.task, self.model, self.learner)

    @property
    def ok(self) -> bool:
        """Return whether the metrics can be used as they are.

        They can if the computation converged, and also if it is UNBOUNDED with every metric finite and of finite error:
        the metrics are then those of an infimum that is known, though no weights attain it.
        """
        known = bool(self.metrics) and all(estimate.finite for estimate in self.metrics.values())
        return self.status.ok or (self.status is Status.UNBOUNDED and known)

    def _head(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "task": self.task,
            "model": self.model,
            "learner": self.learner,
            "status": self.status.name,
            "status_sentence": self.status.sentence,
            "metrics": dict(self.metrics),
            "overlaps": dict(self.overlaps.items()) if self.overlaps else None,
            "overlaps_error": dict(self.overlaps_error),
            "branch": self.branch,
            "notes": list(self.notes),
            "seed": self.seed,
            "trajectory": self.trajectory,
        }

    def _document(self) -> dict[str, Any]:
        return plain(self._head())

    def _records(self) -> list[dict[str, Any]]:
        return [{"metric": n, "value": e.value, "error": e.error, "kind": e.kind} for n, e in self.metrics.items()]

    def _repr_html_(self) -> str:
        drawn = self if self.trajectory is not None else getattr(self, "spectrum", None)
        return table(self._lines(), caption=self._question()) + ("" if drawn is None else picture(drawn))

    def _question(self) -> str:
        """Return the specs on one line; those with very many numbers are shortened."""
        return f"{type(self).__name__}: {shown(self.task)}, {shown(self.model)}, {shown(self.learner)}"

    def __str__(self) -> str:
        lines = self._lines()
        wide = max(13, *(len(name) for name, _ in lines))
        return "\n".join([self._question(), *(f"  {name:<{wide}} {text}" for name, text in lines)])

    __repr__ = __str__

    def _lines(self) -> list[tuple[str, str]]:
        """Return (name, text) of each line that is printed below the specs."""
        lines = [("status", f"{self.status.name}: {self.status.sentence}")]
        lines += [(name, str(estimate)) for name, estimate in self.metrics.items()]
        kinds = {e.kind for e in self.metrics.values() if 0 < e.error < math.inf}
        lines += [("errors", f"in brackets, of the last digits: {ERRORS[kind]}") for kind in sorted(kinds)]
        if self.overlaps is not None:
            lines.append(("overlaps", ", ".join(f"{n}={x:.6g}" for n, x in self.overlaps.items())))
        if self.branch is not None:
            lines.append(("branch", self.branch))
        if self.trajectory is not None and self.trajectory.branches:
            shown = ", ".join(f"{b} {n}" for b, n in self.trajectory.shares().items())
            lines.append(("ends", f"{shown} (of {self.trajectory.runs} runs)"))
        return lines + [("note", note) for note in self.notes]


@dataclass(frozen=True, repr=False, eq=False)
class Prediction(Result):
    """The answer of the theory.

    resolved    the three specs with everything filled in that the library chose, such as an optimal penalty
    exact       whether it holds at the stated d, and not only in the limit
    stable      False where a check, such as that of the replicon, speaks against it; None where nothing was checked
    replicon    growth of a perturbation of the minimum; the minimum is stable below 1
    residual    how far the equations are from being satisfied
    conjugates  the further unknowns of the saddle-point equations, by name
    spectrum    the limit law of the eigenvalues, for models that learn a matrix
    doubt       for a flagged prediction, how far off each metric may be, as a share of its value: training in the
                calibration settings was closer nine times out of ten. Empty where nothing speaks against the
                prediction, and where no training has calibrated it.
    states      with ansatz="1rsb", the minima above the ground state

    >>> found = ndl.predict(ndl.SpikedSLR(2, snr=2.0), ndl.KeyValueAttention(ndl.Softmax()), ndl.Population())
    >>> found.status.name, f"{found.excess_risk.value:.6f}"
    ('CONVERGED', '0.224800')
    """

    resolved: tuple[Spec, Spec | None, Spec] | None = None
    exact: bool = False
    stable: bool | None = None
    replicon: float | None = None
    residual: float | None = None
    conjugates: Mapping[str, float] = field(default_factory=dict[str, float])
    spectrum: Spectrum | None = None
    doubt: Mapping[str, float] = field(default_factory=dict[str, float])
    states: States | None = None

    def __post_init__(self) -> None:
        """Give equations that were not solved an infinite error and no stability, whichever rule made the result."""
        super().__post_init__()
        if self.status in UNSOLVED:
            lost = {name: Estimate(e.value, math.inf, e.kind) for name, e in self.metrics.items()}
            errors = dict.fromkeys(self.overlaps_error, math.inf)
            for name, value in (("metrics", lost), ("overlaps_error", errors), ("stable", None), ("replicon", None)):
                object.__setattr__(self, name, value)

    def _lines(self) -> list[tuple[str, str]]:
        asked = (self.task, self.model, self.learner)
        lines = super()._lines()
        if self.stable is not None:
            lines.append(("stable", f"{'yes' if self.stable else 'no'} (replicon {self.replicon:.3g})"))
        if self.states is not None:
            lines.append(("states", self.states.text))
        if self.doubt:
            shares = ", ".join(
                f"{name} by {100 * share:.{0 if share > 0.1 else 1}f} %" for name, share in self.doubt.items()
            )
            lines.append(("may be off", shares))
        return lines + [("resolved", shown(r)) for r, a in zip(self.resolved or asked, asked, strict=True) if r != a]

    def _document(self) -> dict[str, Any]:
        resolved = self.resolved or (self.task, self.model, self.learner)
        more: dict[str, Any] = {
            "kind": "prediction",
            "resolved": dict(zip(("task", "model", "learner"), resolved, strict=True)),
            "exact": self.exact,
            "stable": self.stable,
            "replicon": self.replicon,
            "residual": self.residual,
            "conjugates": dict(self.conjugates),
            "spectrum": self.spectrum,
            "doubt": dict(self.doubt),
        }
        if self.states is not None:
            more["states"] = self.states
        return plain({**self._head(), **more})


@dataclass(frozen=True, repr=False, eq=False)
class Measurement(Result):
    """The same question answered by sampling and training at dimension d, `repeats` times.

    >>> found = ndl.simulate(ndl.SpikedSLR(2, snr=2.0), None, ndl.BayesOptimal(), d=20, repeats=4, samples=500)
    >>> found.repeats, 0.2 < found.excess_risk.value < 0.6
    (4, True)
    """

    d: int = 0
    repeats: int = 0
    spectrum: TrainedSpectrum | None = None
    values: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    """Metric -> its value (repeats,) in every repeat, where theory is compared with the repeats one by one."""

    def _document(self) -> dict[str, Any]:
        more: dict[str, Any] = {"kind": "measurement", "d": self.d, "repeats": self.repeats, "spectrum": self.spectrum}
        more["values"] = dict(self.values)
        return plain({**self._head(), **more})


def stratified_estimate(samples: np.ndarray, groups: int) -> Estimate:
    """Return the mean over groups of equal size, with the standard error from the spread inside the groups."""
    parts = [mean_estimate(group) for group in np.split(np.asarray(samples, dtype=float), groups)]
    error = np.sqrt(sum(p.error**2 for p in parts)) / groups
    return Estimate(float(np.mean([p.value for p in parts])), float(error), "stderr")


def mean_estimate(samples: np.ndarray) -> Estimate:
    """Return mean and standard error of independent repeats (the error of a single repeat is infinite)."""
    samples = np.asarray(samples, dtype=float)
    n = samples.size
    with np.errstate(invalid="ignore", over="ignore"):  # the spread of samples with an infinite one is NaN, see below
        error = float(np.std(samples, ddof=1) / np.sqrt(n)) if n > 1 else float("inf")
        value = float(np.mean(samples))
    return Estimate(value, float("inf") if np.isnan(error) else error, "stderr")
