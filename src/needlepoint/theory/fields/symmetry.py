"""Which overlaps vanish by symmetry: the flips that a task and a model declare, checked, and paired."""

from __future__ import annotations

import itertools

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.models.fields import FieldModel
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields.order import Pattern
from needlepoint.theory.fields.values import TRIES, labels, log_tilts, outputs

_CLOSE = 1e-9


def patterns(task: SequenceTask, model: FieldModel) -> list[Pattern]:
    """Return the patterns of overlaps in which solutions are sought, one a phase.

    A flip of columns that changes the output's sign goes with the flip of teachers that changes the label's: together
    they change nothing, and what is odd under them vanishes. Flips that leave output and label as they are make two
    phases: learned, where both flips together remain a symmetry, and not learned, where that of the teachers does.
    """
    odd_model, even_model = _sorted(model.flips, [model_parity(model, task.at(task.longest), f) for f in model.flips])
    odd_task, even_task = _sorted(task.flips, [task_parity(task.at(task.longest), f) for f in task.flips])
    fixed = list(zip(odd_model, odd_task, strict=False))
    pairs = list(zip(even_model, even_task, strict=False))
    found = []
    for learned in itertools.product((True, False), repeat=len(pairs)):
        free = [(columns if know else (), teachers) for know, (columns, teachers) in zip(learned, pairs, strict=True)]
        generators = [*fixed, *free]
        made = Pattern(
            tuple(tuple(-1 if g in columns else 1 for columns, _ in generators) for g in model.group_of),
            tuple(tuple(-1 if t in teachers else 1 for _, teachers in generators) for t in task.teachers),
        )
        held = [t for i, t in enumerate(task.teachers) if made.M[:, i].any()]
        gauges = tuple(tuple(-1 if g in columns else 1 for g in model.group_of) for columns in even_model)
        found.append(Pattern(made.columns, made.teachers, " and ".join(held) if pairs else "unique", gauges))
    return found


def _sorted(flips: tuple[tuple[str, ...], ...], parities: list[int]) -> tuple[list, list]:
    return [f for f, p in zip(flips, parities, strict=True) if p < 0], [
        f for f, p in zip(flips, parities, strict=True) if p > 0
    ]


def model_parity(model: FieldModel, task: SequenceTask, flip: tuple[str, ...]) -> int:
    """Return -1 if these columns' change of sign changes the output's sign, 1 if it leaves it; else refuse."""
    signs = np.array([-1.0 if g in flip else 1.0 for g in model.group_of])
    rng = np.random.default_rng(0)
    fields = rng.standard_normal((TRIES, task.tokens, len(signs)))
    where = f"{type(model).__name__}.flips: changing the signs of {flip}"
    return _parity(outputs(model, fields * signs), outputs(model, fields), where)


def task_parity(task: SequenceTask, flip: tuple[str, ...]) -> int:
    """Return -1 if these teachers' change of sign changes the label's sign, 1 if it leaves it; else refuse."""
    where = f"{type(task).__name__}.flips: changing the signs of {flip}"
    signs = np.array([-1.0 if t in flip else 1.0 for t in task.teachers])
    rng = np.random.default_rng(0)
    fields = rng.standard_normal((TRIES, task.tokens, len(signs)))
    noise = rng.standard_normal(TRIES)
    parities = set()
    for place in range(task.places()):
        shift = np.asarray(task.place_at(place).shift)
        if np.any(shift[:, signs < 0]):
            raise InvalidParameter(f"{where} changes the tokens' means (shift); leave this flip out.")
        if not _near(log_tilts(task, fields, place), log_tilts(task, fields * signs, place)):
            raise InvalidParameter(f"{where} changes the weights of the places (log_tilt); leave this flip out.")
        old = labels(task, fields, place, noise)
        ways = {p: labels(task, fields * signs, place, p * noise) for p in (-1, 1)}
        parities.add(next((p for p, new in ways.items() if _near(new, p * old)), 0))
    if len(parities) > 1 or 0 in parities:
        raise InvalidParameter(f"{where} neither changes the label's sign nor leaves it; leave this flip out.")
    return parities.pop()


def _parity(new: object, old: object, where: str) -> int:
    found = next((p for p in (-1, 1) if _near(new, p * np.asarray(old))), 0)
    if not found:
        raise InvalidParameter(f"{where} neither changes the output's sign nor leaves it; leave this flip out.")
    return found


def _near(one: object, other: object) -> bool:
    a, b = np.asarray(one, float), np.asarray(other, float)
    with np.errstate(invalid="ignore"):
        gap = np.where(a == b, 0.0, np.abs(a - b))
    return bool(np.all(gap <= _CLOSE * (1 + np.max(np.abs(np.where(np.isfinite(a), a, 0.0))))))
