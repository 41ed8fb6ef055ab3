"""Models that act on a few scalars: the fields of each token along the columns of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.lowering import Template, lower
from needlepoint.core.specs import Spec
from needlepoint.numerics.fingerprints import fingerprint
from needlepoint.tasks.sequence import Fields, SequenceTask


class Merged(NamedTuple):
    """The smaller `model` that another one is where some of its columns are equal, w = `factors` w' with factors
    (P, P')."""

    model: FieldModel
    factors: np.ndarray

    def penalties(self, given: Any) -> tuple[float, ...]:
        """Return the penalties (P',) at which the smaller model costs as much as the other one with `given` (P,)."""
        return tuple(float(r) for r in np.asarray(given) @ self.factors**2)


class FieldModel(Spec):
    r"""Base of models $f(X)$ that depend on a sequence only through the fields $x_l\cdot w_p$ of its tokens along the
    columns $w_p$ of the weights.

    A model declares its numbers as fields of a @spec class and says, with jax.numpy:

    columns()       names of the columns: a tuple, ("key", "value"), for one column each, whose fields are (tokens,), or
                    a dictionary, {"key": 2}, for several, whose fields are (tokens, 2)
    output(fields)  the output of one sequence from `fields.<column>`: a number, or an array of the label's shape
    linear          names of columns in which the output is linear: they are eliminated in closed form under `Square`
    flips           sets of names whose change of sign changes the sign of the output, or leaves it as it is

    >>> @ndl.spec
    ... class Gate(ndl.FieldModel):
    ...     linear = ("value",)
    ...     def columns(self):
    ...         return ("key", "value")
    ...     def output(self, fields):
    ...         return (fields.key**2 * fields.value).sum()
    >>> Gate().labels, Gate().penalties((0.1, 0.2))
    (('key', 'value'), (0.1, 0.2))
    """

    family: ClassVar[str] = "model"
    linear: ClassVar[tuple[str, ...]] = ()
    flips: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def columns(self) -> Mapping[str, int] | tuple[str, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no columns(self)")

    def output(self, fields: Fields) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no output(self, fields)")

    # --- what follows from it ---------------------------------------------------------------------------

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the names of the columns as the model gives them; penalties are by these."""
        return tuple(self.columns())

    @property
    def labels(self) -> tuple[str, ...]:
        """Return one name a column, (P,): `key` where there is one of it, else `key1`, `key2`, ..."""
        columns = self.columns()
        if not isinstance(columns, Mapping):
            return tuple(columns)
        return tuple(name if count == 1 else f"{name}{i + 1}" for name, count in columns.items() for i in range(count))

    @property
    def group_of(self) -> tuple[str, ...]:
        """Return the group of every column, (P,)."""
        columns = self.columns()
        if not isinstance(columns, Mapping):
            return tuple(columns)
        return tuple(name for name, count in columns.items() for _ in range(count))

    def named(self, fields: Any) -> Fields:
        """Return the fields (tokens, P) of a sequence under the columns' names."""
        columns = self.columns()
        if not isinstance(columns, Mapping):
            return Fields({name: fields[:, i] for i, name in enumerate(columns)})
        found: dict[str, Any] = {}
        start = 0
        for name, count in columns.items():
            found[name] = fields[:, start : start + count]
            start += count
        return Fields(found)

    def outputs(self, fields: Any) -> Any:
        """Return the output of a sequence with fields (tokens, P)."""
        return self.output(self.named(fields))

    def penalties(self, lam: Any) -> tuple[float, ...]:
        """Return one penalty a column, (P,), from one number or one number a name of `columns()`, in its order."""
        groups = self.groups
        if not isinstance(lam, tuple):
            return (lam,) * len(self.labels)
        if len(lam) != len(groups):
            raise InvalidParameter(
                f"Ridge(lam={lam}): {type(self).__name__} has {len(groups)} kinds of columns ({', '.join(groups)}); "
                "give one penalty for all, or one for each of these."
            )
        return tuple(lam[groups.index(name)] for name in self.group_of)

    def merged(self) -> Merged | None:
        """Return what the model is where columns that may be exchanged are equal; None if there are no such columns."""
        return None

    def source_hash(self) -> str | None:
        """Return a hash of what the output of a user's class computes, at two and three tokens."""
        if type(self).__module__.partition(".")[0] == "needlepoint":
            return None
        template, numbers = self.template, self.numbers
        calls = [(lambda n, f: template.bind(n).outputs(f), (numbers, np.zeros((t, len(self.labels))))) for t in (2, 3)]
        return fingerprint(calls, repr((self.labels, self.linear, self.flips)).encode())

    @property
    def template(self) -> Template:
        """Return what compiled kernels know of the model: everything but its traced numbers."""
        return Template(self)

    @property
    def numbers(self) -> dict[str, float]:
        return lower(self)[1]


def informed(task: SequenceTask, model: FieldModel) -> np.ndarray:
    """Return the overlaps (P, S) of columns that start at the teachers.

    A column takes the teacher of its name; `key1`, the first of several, takes `key` where no teacher is called `key1`.
    A column without such a teacher takes the sum of all of them over the square root of their number.
    """
    teachers = task.teachers
    overlaps = np.zeros((len(model.labels), len(teachers)))
    for row, label, group in zip(overlaps, model.labels, model.group_of, strict=True):
        wanted = group if label == f"{group}1" and label not in teachers else label
        if wanted in teachers:
            row[teachers.index(wanted)] = 1.0
        else:
            row[:] = len(teachers) ** -0.5
    return overlaps
