"""What is computed: a job is one call of a verb, a unit is what a worker is given at once."""

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
    """A public function of the package, called with the specs and options.

    `follow` is the prediction whose resolved specs and overlaps a simulation takes.
    """

    verb: str
    question: Question
    options: Mapping[str, Any] = field(default_factory=dict)
    follow: Job | None = None

    @functools.cached_property
    def text(self) -> dict[str, str | None]:
        """The canonical JSON of each part."""
        parts = [None if s is None else canonical(s.to_json()) for s in self.question]
        return {
            **dict(zip(("task", "model", "learner"), parts, strict=True)),
            "options": canonical(dict(self.options)),
        }

    @functools.cached_property
    def id(self) -> str:
        """A hash of the call; jobs with the same id have the same answer."""
        after = None if self.follow is None else self.follow.id
        return digest(NUMBERS_VERSION, self.verb, sorted(self.text.items()), after)


@dataclass(frozen=True, eq=False)
class Unit:
    """Jobs that a worker is given at once. Where they are solved together, `curves` are their numbers along each
    curve, and the answers belong to this company: `chunk` names it. Otherwise it is empty.
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
