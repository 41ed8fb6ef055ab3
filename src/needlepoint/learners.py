"""Learners: how the weights are chosen."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.specs import Spec, choice, count, flag, nested, penalty, real, spec
from needlepoint.losses import Loss, Square

MOST_RECORDS = 10_000_000
_SCHEDULE = "scale_t = scale / (1 + schedule * t) with t from 0"


@spec
class Population(Spec):
    """The model's best at infinite data, on the invariant manifold or over all overlaps.

    >>> ndl.Population(within="all")
    Population(within='all')
    """

    family: ClassVar[str] = "learner"

    within: str = choice("manifold", "all", default="manifold")


@spec
class BayesOptimal(Spec):
    """The posterior mean. `alpha` None is infinite data (the teachers are known).

    >>> ndl.BayesOptimal(), ndl.BayesOptimal(alpha=2.0)
    (BayesOptimal(), BayesOptimal(alpha=2.0))
    """

    family: ClassVar[str] = "learner"

    alpha: float | None = real(
        lo=0.0,
        open_lo=True,
        free=True,
        default=None,
        why="it is the number of samples over d; None is infinity",
    )
    d: int | None = count(lo=2, free=True, default=None, why="the norm of a token is informative at finite d")


@spec
class Ridge(Spec):
    """Empirical risk minimisation from n = alpha d sequences: the sum of half the squared errors, plus
    d/2 (lam_key |k|^2 + lam_value |v|^2) with teachers of norm 1, which is lam_key/2 |k|^2 + lam_value/2 |v|^2
    on the scale of teachers of norm sqrt(d) (eq:ridge).

    `lam` is one penalty, the pair (lam_key, lam_value), in general one for each kind of column of the model, or
    "optimal" (of the predicted risk): the best one for each kind, or with `common=True` the best single penalty on all.
    `start` says from
    where the minimum is sought: "random", "informed" (the teachers), or "both", of which the lower one counts.
    `algorithm` is how it is trained: "lbfgs", or "amp" (damped message passing). `loss` is what an error costs,
    `Square()` unless it is given.

    On the attention-indexed model n = alpha d^2, the errors are not halved, the one penalty is lam ||W||^2, or
    lam d ||S||^2 for direct attention (eq:indexed-energy), `common` changes nothing, and "adam" and, for one token,
    "fista" train as well.

    >>> ndl.Ridge(alpha=5.0, lam=0.1).penalties
    (0.1, 0.1)
    """

    family: ClassVar[str] = "learner"

    alpha: float = real(lo=0.0, open_lo=True, largest=1e12, why="it is the number of samples over d")
    lam: Any = penalty(why="it is the penalty on the weights")
    start: str = choice("both", "random", "informed", default="both")
    algorithm: str = choice("lbfgs", "adam", "fista", "amp", default="lbfgs")
    common: bool = flag(default=False, later=True, why="it says whether all kinds of columns get one best penalty")
    loss: Loss = nested("loss", default=Square(), later=True, why="it says what an error costs")

    def check(self) -> None:
        if self.common and not isinstance(self.lam, str):
            raise InvalidParameter(
                f"Ridge(lam={self.lam!r}, common=True): common goes with lam='optimal' (it asks for one best penalty "
                "on key and value instead of two); leave it out where lam is given."
            )

    @property
    def penalties(self) -> tuple[float, float]:
        """(lam_key, lam_value)."""
        if isinstance(self.lam, str):
            raise InvalidParameter(f"{self!r}: lam is not chosen yet; take predict(...).resolved.")
        if not isinstance(self.lam, tuple):
            return (self.lam, self.lam)
        if len(self.lam) != 2:
            raise InvalidParameter(
                f"{self!r}: this model has a key and a value; give one penalty, or the pair (key, value)."
            )
        return self.lam


class Descent(Spec):
    """What projected descent and SGD share: where they start, how long they run, what they record."""

    family: ClassVar[str] = "learner"

    # what every learner of this kind declares as a field of its own
    start: str | Overlaps | tuple[Overlaps, ...]
    d: int | None
    runs: int | None

    smallest_d: ClassVar[dict[str, int]] = {"sphere": 2, "manifold": 3}

    @property
    def given(self) -> tuple[Overlaps, ...]:
        """The starts that are given as overlaps; none where the start is random."""
        start = self.start
        return () if isinstance(start, str) else start if isinstance(start, tuple) else (start,)

    def check(self) -> None:
        name, start = type(self).__name__, self.start
        d, runs = self.d, self.runs
        if not isinstance(start, str):
            if runs not in (None, 1) and isinstance(self, ProjectedDescent):
                raise InvalidParameter(
                    f"{name}(runs={runs}): a given start runs once each; give a tuple of starts for more."
                )
            if isinstance(self, ProjectedDescent):
                self.require_unit_starts()
            return
        if d is None or runs is None:
            raise InvalidParameter(
                f"{name}(start={start!r}): needs d= and runs= (the law of a random start depends on d)."
            )
        if d < self.smallest_d[start]:
            raise InvalidParameter(
                f"{name}(d={d}): d must be >= {self.smallest_d[start]} for start={start!r} "
                "(fewer dimensions have no such vectors)."
            )

    def require_unit_starts(self) -> None:
        """What the rules on unit spheres ask of given starts."""
        if not all(o.unit for o in self.given):
            raise InvalidParameter(
                f"{type(self).__name__}(start=...): key_sq and value_sq must be 1 (projection to the sphere)."
            )


@spec
class ProjectedDescent(Descent):
    """Steps of `lr` along the population gradient projected to the sphere, then normalised (eq:pgd).

    `start` is "sphere", "manifold" (both with d= and runs=), an Overlaps or a tuple of them.

    >>> ndl.ProjectedDescent(lr=0.01, steps=100, start="sphere", d=50, runs=4)
    ProjectedDescent(lr=0.01, steps=100, start='sphere', d=50, runs=4)
    """

    lr: float = real(lo=0.0, open_lo=True, why="it is the step size")
    steps: int = count(lo=1)
    start: Any = nested("overlaps", words=("sphere", "manifold"), many=True)
    schedule: float = real(lo=0.0, default=0.0, why=_SCHEDULE)
    record_every: int = count(lo=1, default=1)
    d: int | None = count(lo=2, free=True, default=None)
    runs: int | None = count(lo=1, free=True, default=None)


@spec
class OnlineSGD(Descent):
    """Steps of `lr` on the mean of (y - f)^2 over a fresh batch: projected and normalised for a model on unit
    spheres (eq:sgd), as they are for one with free norms, whose limit is eq:location-sgd at eta = 2 d lr.

    The law of a step depends on d, so `d` is needed for every start; d >= 6. With another `loss` the steps are on its
    mean in the units of `risk`.

    >>> ndl.OnlineSGD(lr=0.01, steps=100, batch=5, start="sphere", d=50, runs=4)
    OnlineSGD(lr=0.01, steps=100, batch=5, start='sphere', d=50, runs=4)
    """

    lr: float = real(lo=0.0, open_lo=True, why="it is the step size")
    steps: int = count(lo=1)
    batch: int = count(lo=1)
    start: Any = nested("overlaps", words=("sphere", "manifold"), many=True)
    schedule: float = real(lo=0.0, default=0.0, why=_SCHEDULE)
    record_every: int = count(lo=1, default=1)
    d: int | None = count(lo=6, free=True, default=None, why="the Wishart law of a step needs d - 5 >= 1 directions")
    runs: int | None = count(lo=1, free=True, default=None)
    loss: Loss = nested("loss", default=Square(), later=True, why="it says what an error costs")

    def check(self) -> None:
        if self.d is None:
            raise InvalidParameter("OnlineSGD(d=None): d is needed (the noise of a step depends on it); d >= 6.")
        super().check()


@spec
class GradientFlow(Spec):
    """dk/dt = -grad_k R / 2 and dv/dt = -grad_v R / 2 up to `time`, with free norms (eq:location-flow).

    `start` is an Overlaps or a tuple of them; the state is recorded at multiples of `record_every` and at the end. R is
    the risk, with another `loss` the mean of that one in the units of `risk`.

    >>> ndl.GradientFlow(5.0, ndl.Overlaps(0.1, 0.1), 0.5)
    GradientFlow(time=5.0, start=Overlaps(key=0.1, value=0.1), record_every=0.5)
    """

    family: ClassVar[str] = "learner"

    time: float = real(lo=0.0, open_lo=True, largest=1e12, why="it is how long the flow runs")
    start: Any = nested("overlaps", many=True)
    record_every: float = real(lo=0.0, open_lo=True, why="it is the time between records")
    loss: Loss = nested("loss", default=Square(), later=True, why="it says what an error costs")

    @property
    def given(self) -> tuple[Overlaps, ...]:
        return self.start if isinstance(self.start, tuple) else (self.start,)

    def record_times(self) -> np.ndarray:
        """0, every, 2 every, ..., and always the end; a multiple within rounding of the end is the end."""
        if self.time / self.record_every > MOST_RECORDS:
            raise InvalidParameter(
                f"time={self.time:g}, record_every={self.record_every:g}: at most {MOST_RECORDS:,} records are kept; "
                "raise record_every."
            )
        before = math.ceil(self.time / self.record_every - 1e-9)
        return np.append(self.record_every * np.arange(before), self.time)


def record_steps(steps: int, every: int) -> list[int]:
    """0, every, 2 every, ..., and always the last step."""
    if steps / every > MOST_RECORDS:
        raise InvalidParameter(
            f"steps={steps}, record_every={every}: at most {MOST_RECORDS:,} records are kept; raise record_every."
        )
    marks = list(range(0, steps + 1, every))
    return marks if marks[-1] == steps else [*marks, steps]
