"""The definition of a study (a question and what it goes over), and the plan of its work.

The plan depends on the definition alone, and not on executors or on what is in the store already.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from needlepoint.core.errors import InvalidParameter, NoTheory, shown
from needlepoint.core.kinds import is_whole
from needlepoint.core.options import REPLICA_SYMMETRIC
from needlepoint.core.specs import from_json
from needlepoint.studies.axes import LIMIT, At, Axes, read_axes
from needlepoint.studies.execution.jobs import Job, Question, Unit, digest
from needlepoint.studies.refining import Refine
from needlepoint.studies.storage.codec import decode, encode

CURVE = 16
"""Most points of one curve along which the solver starts each point from the solution of the one before."""

CHUNK = 128
"""Most points that are solved in one batch."""


@dataclass(frozen=True)
class Simulation:
    """Simulate at the points of a sweep too.

    d        dimension of a token, or several of them
    repeats  number of simulations for each point and d, every one a unit of work with a seed of its own
    seed     number from which these seeds are derived
    samples  number of test sequences per simulation
    starts   number of random weights from which the minimum of Ridge is sought; the lowest counts
    at       values to which simulations are restricted, such as {"task.snr": [1, 5]}; None simulates everywhere

    >>> ndl.Simulation(d=[50, 100], repeats=16)
    Simulation(d=(50, 100), repeats=16, seed=0, samples=20000, at=None, starts=1)
    """

    d: int | tuple[int, ...]
    repeats: int = 16
    seed: int = 0
    samples: int = 20_000
    at: Mapping[str, Any] | None = None
    starts: int = 1

    def __post_init__(self) -> None:
        sizes = self.d if isinstance(self.d, (tuple, list)) else (self.d,)
        if not sizes:
            raise InvalidParameter("Simulation(d=()): give at least one d.")
        for name, value, lowest in (
            *(("d", d, 2) for d in sizes),
            ("repeats", self.repeats, 1),
            ("samples", self.samples, 1),
            ("starts", self.starts, 1),
            ("seed", self.seed, 0),
        ):
            if not is_whole(value) or value < lowest:
                raise InvalidParameter(f"Simulation({name}={shown(value)}): {name} must be a whole number >= {lowest}.")
        if len(set(sizes)) < len(sizes):
            raise InvalidParameter(f"Simulation(d={self.d!r}): a size is given twice.")
        if self.at is not None and not isinstance(self.at, Mapping):
            raise InvalidParameter(f"Simulation(at={shown(self.at)}): write it as {{path: values}}.")
        object.__setattr__(self, "d", tuple(int(d) for d in sizes))
        for name in ("repeats", "samples", "seed", "starts"):
            object.__setattr__(self, name, int(getattr(self, name)))

    def within(self, axes: Axes) -> Simulation:
        """Return a copy whose `at` is checked against the axes and converted as their values are."""
        at = {}
        for path, values in (self.at or {}).items():
            if path not in axes.paths:
                raise InvalidParameter(
                    f"Simulation(at={{{path!r}: ...}}): it is not swept over; over has {', '.join(axes.paths)}."
                )
            at[path] = read_axes(axes.base, {path: values}).values[0]
            missing = [v for v in at[path] if v not in axes.values[axes.paths.index(path)]]
            if missing:
                raise InvalidParameter(
                    f"Simulation(at={{{path!r}: ...}}): {missing[0]!r} is not among the swept values."
                )
        return replace(self, at=at or None)

    @property
    def said(self) -> dict[str, Any]:
        """Return the fields by name, without one that was added later where it has its default."""
        return {name: value for name, value in vars(self).items() if (name, value) != ("starts", 1)}

    @property
    def sizes(self) -> tuple[int, ...]:
        assert isinstance(self.d, tuple)
        return self.d


@dataclass(frozen=True)
class Sweep:
    """The definition of a study; equal definitions have the same points, chunks and seeds."""

    axes: Axes
    also: Simulation | None = None
    refine: Refine | None = None
    seed: int = 0
    tol: float | None = None
    ansatz: str = REPLICA_SYMMETRIC

    @classmethod
    def of(
        cls,
        task: Any,
        model: Any,
        learner: Any,
        over: Any,
        also: Simulation | None = None,
        refine: Refine | None = None,
        seed: int = 0,
        tol: float | None = None,
        limit: float = LIMIT,
        thorough: bool = True,
        ansatz: str = REPLICA_SYMMETRIC,
    ) -> Sweep:
        """Return a definition whose paths, values and size are checked, and with `thorough` its questions (`check`)."""
        from needlepoint.core.dispatch import check_ansatz, check_question, check_tolerance

        check_question("sweep", task, model, learner, seed)
        check_tolerance("sweep", tol)
        check_ansatz("sweep", ansatz)
        axes = read_axes((task, model, learner), over)
        if also is not None:
            if not isinstance(also, Simulation):
                raise InvalidParameter(f"sweep(also={shown(also)}): write it as Simulation(d=..., repeats=...).")
            also = also.within(axes)
        if refine is not None:
            if not isinstance(refine, Refine):
                raise InvalidParameter(f"sweep(refine={shown(refine)}): write it as Refine(on=..., levels=...).")
            refine.check(axes)
        made = cls(axes, also, refine, int(seed), tol, ansatz)
        if len(made) > limit:
            raise InvalidParameter(
                f"sweep: {len(made):,} points are more than {limit:,.0f}; if that is meant, say limit={len(made)} "
                "(on the command line --yes)."
            )
        if thorough:
            made.check()
        return made

    def __len__(self) -> int:
        """Return the number of predictions and simulations, without those that refinement may add."""
        per = self.also.repeats * len(self.also.sizes) if self.also else 0
        at = self.also.at if self.also and self.also.at else {}
        if self.axes.grid:
            pairs = zip(self.axes.paths, self.axes.values, strict=True)
            simulated = math.prod(len(at[path]) if path in at else len(values) for path, values in pairs)
        else:
            simulated = sum(1 for _ in self._simulated()) if at else len(self.axes)
        return len(self.axes) + per * simulated

    def check(self) -> None:
        """Check that there is a rule for every question, and that its specs survive being written and read again.

        One question is checked for every combination of types.
        """
        from needlepoint.core.dispatch import find
        from needlepoint.theory import predicting

        loaders = {"predict": predicting.load_rules}
        if self.also:
            from needlepoint.simulation import simulating

            loaders["simulate"] = simulating.load_rules
        seen: set[Any] = set()
        for at in self.axes.points():
            question = self.axes.question(at)
            kind = tuple(map(type, question))
            if kind in seen:
                continue
            seen.add(kind)
            for verb, load_rules in loaders.items():
                load_rules(question[0], question[2])
                find(verb, *cast("tuple[Any, Any, Any]", question), load_rules)
            for spec in question:
                if spec is not None and from_json(json.loads(json.dumps(spec.to_json()))) != spec:
                    raise InvalidParameter(f"{spec!r}: it does not survive being written down and read again.")

    # --- jobs ------------------------------------------------------------------------------------

    def prediction(self, at: At) -> Job:
        options: dict[str, Any] = {"seed": self.seed} | ({} if self.tol is None else {"tol": self.tol})
        options |= {} if self.ansatz == REPLICA_SYMMETRIC else {"ansatz": self.ansatz}
        return Job("predict", self.axes.question(at), options)

    def simulations(self, at: At, prediction: Job) -> list[list[Job]]:
        """Return the jobs for each d, one per seed; empty where nothing is simulated. Points have different seeds."""
        if self.also is None or not self._wanted(at):
            return []
        a = self.also

        def one(d: int, i: int) -> Job:
            seed = int(digest("seed", prediction.id, a.seed, d, i)[:12], 16)
            options = {"d": d, "repeats": 1, "seed": seed, "samples": a.samples}
            options |= {} if a.starts == 1 else {"starts": a.starts}  # ids without it are those of before
            return Job("simulate", prediction.question, options, follow=prediction)

        return [[one(d, i) for i in range(a.repeats)] for d in a.sizes]

    def _wanted(self, at: At) -> bool:
        chosen = self.also.at if self.also else None
        if self.refine is not None and not all(x in v for x, v in zip(at, self.axes.values, strict=True)):
            return False  # points that refinement has added are not simulated
        here = dict(zip(self.axes.paths, at, strict=True))
        return not chosen or all(here[path] in values for path, values in chosen.items())

    def _simulated(self) -> Iterator[At]:
        return (at for at in self.axes.points() if self._wanted(at))

    # --- the plan --------------------------------------------------------------------------------

    def theory_units(self, points: Sequence[At] | None = None) -> Iterator[Unit]:
        """Yield the units of the predictions at all points of the axes, or at the given points (see `plan`)."""
        curves = self.axes.curves() if points is None else ((at,) for at in points)
        jobs = ((self.prediction(at) for at in curve) for curve in curves)
        if self.ansatz != REPLICA_SYMMETRIC:  # batches of curves know replica symmetry alone
            return (Unit([job]) for curve in jobs for job in curve)
        return plan(jobs)

    def simulation_units(self) -> Iterator[Unit]:
        for at in self._simulated():
            for jobs in self.simulations(at, self.prediction(at)):
                for job in jobs:
                    yield Unit([job])

    # --- writing it down -------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "base": encode(self.axes.base, {}),
            "paths": list(self.axes.paths),
            "values": encode(self.axes.values, {}),
            "grid": self.axes.grid,
            "also": self.also and encode(self.also.said, {}),
            "refine": self.refine and encode(vars(self.refine), {}),
            "seed": self.seed,
            "tol": self.tol,
            **({} if self.ansatz == REPLICA_SYMMETRIC else {"ansatz": self.ansatz}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Sweep:
        axes = Axes(
            decode(document["base"], {}), tuple(document["paths"]), decode(document["values"], {}), document["grid"]
        )
        also = document["also"] and Simulation(**decode(document["also"], {}))
        refine = document["refine"] and Refine(**decode(document["refine"], {}))
        return cls(axes, also, refine, document["seed"], document["tol"], document.get("ansatz", REPLICA_SYMMETRIC))


def plan(curves: Iterator[Iterator[Job]]) -> Iterator[Unit]:
    """Yield units of predictions.

    Curves are cut into pieces of at most `CURVE` points, and pieces that one compiled kernel can solve (their
    `static_key` is the same) are gathered into batches of at most `CHUNK` points, as they come. A point for which the
    theory has no batches is a unit by itself.
    """
    open_chunks: dict[Hashable, list[list[Job]]] = {}
    for curve in curves:
        last: Hashable = None
        for job in curve:
            key = _shape(job.question)
            if key is None:
                last = None
                yield Unit([job])
                continue
            pieces = open_chunks.setdefault(key, [])
            if key != last or not pieces or len(pieces[-1]) >= CURVE:
                if pieces and sum(map(len, pieces)) + CURVE > CHUNK:
                    yield _chunk(open_chunks.pop(key))
                    pieces = open_chunks.setdefault(key, [])
                pieces.append([])
            pieces[-1].append(job)
            last = key
    for pieces in open_chunks.values():
        yield _chunk(pieces)


def _chunk(pieces: list[list[Job]]) -> Unit:
    return Unit([job for piece in pieces for job in piece], tuple(map(len, pieces)))


def _shape(question: Question) -> Hashable | None:
    from needlepoint.theory.curves import static_key

    task, model, learner = question
    assert learner is not None
    try:
        return static_key(task, model, learner)
    except NoTheory:
        return None
