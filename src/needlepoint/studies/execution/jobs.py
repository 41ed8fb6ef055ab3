"""What is computed: a job is one call of `predict` or `simulate`, a unit is the jobs that a worker gets at once."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from needlepoint.core.specs import NUMBERS_VERSION, Spec
from needlepoint.core.text.jsonio import canonical

Question = tuple[Spec, Spec | None, Spec | None]


@dataclass(frozen=True, eq=False)
class Job:
    """One call of a public function of the package (`verb`) with specs and options.

    `follow` is the prediction that a simulation waits for: the simulation takes its resolved specs (for example the
    penalty that was found optimal) and its overlaps.
    """

    verb: str
    question: Question
    options: Mapping[str, Any] = field(default_factory=dict)
    follow: Job | None = None

    @functools.cached_property
    def text(self) -> dict[str, str | None]:
        """Return the canonical JSON of each part, by its name."""
        parts = [None if s is None else canonical(s.to_json()) for s in self.question]
        return {
            **dict(zip(("task", "model", "learner"), parts, strict=True)),
            "options": canonical(dict(self.options)),
        }

    @functools.cached_property
    def id(self) -> str:
        """Return a hash of the call; jobs with the same id have the same answer."""
        after = None if self.follow is None else self.follow.id
        return digest(NUMBERS_VERSION, self.verb, sorted(self.text.items()), after)


@dataclass(frozen=True, eq=False)
class Unit:
    """Jobs that a worker is given at once.

    Where they are solved together in one batch, `curves[i]` is how many of them lie on curve i, in order. Their last
    digits then depend on which jobs share the batch, so `chunk` identifies the batch. A unit of a single job that is
    computed by itself has no curves, and its `chunk` is empty.
    """

    jobs: Sequence[Job]
    curves: tuple[int, ...] = ()

    @functools.cached_property
    def chunk(self) -> str:
        return digest([job.id for job in self.jobs], self.curves) if self.curves else ""

    @property
    def id(self) -> str:
        return self.chunk or self.jobs[0].id


def digest(*parts: Any) -> str:
    return hashlib.sha256(canonical(list(parts)).encode()).hexdigest()[:24]
