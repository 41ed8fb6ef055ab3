"""Tasks that say what their data are in a few scalars: the fields of each token along the hidden teachers.

A task of this kind is a page of physics. The sampler of vectors, population risk, training in the limit and at finite
dimension, flows and pictures follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.lowering import Template, lower
from needlepoint.core.specs import Spec, declared
from needlepoint.numerics.fingerprints import Call, fingerprint


class Fields:
    """Fields of one sequence by name: `fields.key` is an array over the tokens."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = dict(arrays)

    def __getattr__(self, name: str) -> Any:
        arrays: dict[str, Any] = self.__dict__.get("_arrays", {})
        if name in arrays:
            return arrays[name]
        raise AttributeError(f"there is no field {name!r}; the fields are {', '.join(arrays)}")

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)


class Place(NamedTuple):
    """What a task says of its tokens at one place: the teachers' shift (tokens, S) and the spread (tokens,)."""

    shift: Any
    spread: Any


class SequenceTask(Spec):
    r"""Base of tasks whose tokens have fields $\lambda^*_l = c_l + s_lz_l$ along orthonormal `teachers`, with $z_l$
    standard normal, and orthogonal to the teachers $x_l = s_l\,N(0, 1)$.

    A task declares `tokens` (a length, or lengths with their law) and its other numbers as fields of a @spec class, and
    `teachers`, the names of its hidden directions. It overrides what differs from the defaults below; every method is
    written with jax.numpy, may use the task's numbers (`self.snr`), and sees one sequence, whose place is a whole
    number that may be traced (`jnp.arange(self.tokens) == place`, `fields.value[place]`; no `if place`):

    shift(place)                 {teacher: mean of its field at every token}; what is left out is 0
    spread(place)                standard deviation of the tokens, one number or one a token; 1
    seen(place)                  {teacher: at which tokens the label or the tilt looks at its field}; everywhere. What
                                 is not seen is integrated out, which makes answers more accurate
    label(fields, place, noise)  the label of a sequence with the teachers' fields `fields.<teacher>` (tokens,), and a
                                 standard normal `noise`; a number, or an array
    log_tilt(fields, place)      log of the weight of a place given the fields; 0. With the probabilities of the places
                                 the weights sum to 1 for all fields

    `places()` is how many places there are, equally probable before the tilt; `flips` names sets of teachers whose
    change of sign changes the sign of the label, or leaves it as it is. `exchangeable` says that all places are alike
    up to a permutation of the tokens, so that one of them is enough.

    >>> @ndl.spec
    ... class First(ndl.SequenceTask):
    ...     teachers = ("key", "value")
    ...     tokens: int = ndl.count(lo=1)
    ...     def shift(self, place):
    ...         return {"key": 2.0 * (np.arange(self.tokens) == 0)}
    ...     def seen(self, place):
    ...         return {"value": np.arange(self.tokens) == 0}
    ...     def label(self, fields, place, noise):
    ...         return fields.value[0]
    >>> import numpy as np
    >>> First(3).seen_at(0)[:, 1].tolist()
    [True, False, False]
    """

    family: ClassVar[str] = "task"
    teachers: ClassVar[tuple[str, ...]] = ()
    flips: ClassVar[tuple[tuple[str, ...], ...]] = ()
    exchangeable: ClassVar[bool] = True

    tokens: Any

    # --- what a task says, with its defaults ----------------------------------------------------------

    def places(self) -> int:
        return 1

    def shift(self, place: int) -> Mapping[str, Any]:
        return {}

    def spread(self, place: int) -> Any:
        return 1.0

    def seen(self, place: int) -> Mapping[str, Any]:
        return dict.fromkeys(self.teachers, True)

    def log_tilt(self, fields: Fields, place: int) -> Any:
        return 0.0

    def label(self, fields: Fields, place: int, noise: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no label(self, fields, place, noise)")

    # --- what follows from it ---------------------------------------------------------------------------

    @property
    def length_law(self) -> tuple[tuple[int, float], ...]:
        """((length, probability), ...)."""
        tokens = self.tokens
        return ((tokens, 1.0),) if isinstance(tokens, int) else tokens

    @property
    def fixed_length(self) -> int | None:
        law = self.length_law
        return law[0][0] if len(law) == 1 else None

    @property
    def longest(self) -> int:
        return max(n for n, _ in self.length_law)

    @property
    def shortest(self) -> int:
        return min(n for n, _ in self.length_law)

    def at(self, length: int) -> Self:
        """Return the task with sequences of this one length."""
        return self if self.tokens == length or "tokens" not in _names(self) else self.replace(tokens=length)

    def length_counts(self, n: int) -> list[tuple[int, int]]:
        """Return (length, number of sequences) for n sequences: each number is the expected one, rounded so that they
        sum to n; lengths without a sequence are left out."""
        counts: list[tuple[int, int]] = []
        before, share = 0, 0.0
        for length, p in self.length_law:
            share += p
            end = round(share * n)
            if end > before:
                counts.append((length, end - before))
            before = max(before, end)
        return counts

    @property
    def tilted(self) -> bool:
        """Return whether places have weights that depend on the fields."""
        return type(self).log_tilt is not SequenceTask.log_tilt

    def place_at(self, place: Any) -> Place:
        """Return what the task says of its tokens at a place; the task has one length."""
        jnp = _jax()[1]

        length, shift = self.tokens, self.shift(place)
        self._check_names("shift", shift)
        columns = [jnp.broadcast_to(jnp.asarray(shift.get(name, 0.0), float), (length,)) for name in self.teachers]
        spread = jnp.broadcast_to(jnp.asarray(self.spread(place), float), (length,))
        return Place(jnp.stack(columns, axis=-1), spread)

    def seen_at(self, place: int) -> np.ndarray:
        """Return which fields the label and the tilt look at when the place is this one, (tokens, S)."""
        seen = self.seen(place)
        self._check_names("seen", seen)
        masks = [np.broadcast_to(np.asarray(seen.get(name, False), bool), (self.tokens,)) for name in self.teachers]
        return np.stack(masks, axis=-1)

    def _check_names(self, method: str, found: Mapping[str, Any]) -> None:
        for name in found:
            if name not in self.teachers:
                raise InvalidParameter(
                    f"{type(self).__name__}.{method}: {name!r} is not one of the teachers "
                    f"({', '.join(self.teachers)}); it returns {{teacher: values for the tokens}}."
                )

    def named(self, fields: Any) -> Fields:
        """Return the fields (tokens, S) of a sequence under the teachers' names."""
        return Fields({name: fields[:, i] for i, name in enumerate(self.teachers)})

    def labelled(self, fields: Any, place: int, noise: Any) -> Any:
        """Return the label of a sequence with fields (tokens, S)."""
        return self.label(self.named(fields), place, noise)

    def draw_vectors(self, key: Any, teachers: Any, n: int) -> tuple[Any, Any, Any]:
        """Return n sequences of the task's one length: X (n, tokens, d), labels, and places (n,).

        `teachers` is (S, d), orthonormal. The place is drawn from the probabilities that the tilt gives it.
        """
        jax, jnp = _jax()

        token_key, place_key, label_key = jax.random.split(key, 3)
        normals = jax.random.normal(token_key, (n, self.tokens, teachers.shape[1]), dtype=teachers.dtype)
        places = jnp.zeros(n, int)
        if self.places() > 1:

            def weight(hidden: Any, place: Any) -> Any:
                at = self.place_at(place)
                return jnp.asarray(self.log_tilt(self.named(at.shift + at.spread[:, None] * hidden), place), float)

            every = jax.vmap(jax.vmap(weight, (None, 0)), (0, None))
            places = jax.random.categorical(place_key, every(normals @ teachers.T, jnp.arange(self.places())), axis=-1)
        at = jax.vmap(self.place_at)(places)
        x = at.spread[..., None] * normals + at.shift @ teachers
        noise = jax.random.normal(label_key, (n,), dtype=x.dtype)

        def label(fields: Any, place: Any, noise: Any) -> Any:
            return jnp.asarray(self.labelled(fields, place, noise), float)

        return x, jax.vmap(label)(x @ teachers.T, places, noise), places

    def source_hash(self) -> str | None:
        """Return a hash of what the methods of a user's class compute, at its shortest and longest length."""
        if type(self).__module__.partition(".")[0] == "needlepoint":
            return None
        jnp = _jax()[1]

        calls: list[Call] = []
        masks = b""
        for length in sorted({self.shortest, self.longest}):
            here = self.at(length)
            template, fields, place = Template(here), np.zeros((length, len(self.teachers))), np.zeros((), int)

            def told(numbers: Any, fields: Any, place: Any, noise: Any, template: Template = template) -> Any:
                task: SequenceTask = template.bind(numbers)
                tilt = jnp.asarray(task.log_tilt(task.named(fields), place), float)
                return task.labelled(fields, place, noise), tilt, task.place_at(place)

            calls.append((told, (here.numbers, fields, place, 0.0)))
            masks += b"".join(here.seen_at(p).tobytes() for p in range(here.places()))
        return fingerprint(calls, masks)

    @property
    def template(self) -> Template:
        """Return what compiled kernels know of the task: everything but its traced numbers."""
        return Template(self)

    @property
    def numbers(self) -> dict[str, float]:
        return lower(self)[1]


def _jax() -> tuple[Any, Any]:
    """Return jax and jax.numpy, which are imported where they are needed: specs are cheap to import."""
    import jax
    import jax.numpy as jnp

    return jax, jnp


def noise_var_of(task: SequenceTask) -> float | None:
    """Return the variance of the noise in a task's label, summed over the label's entries; None where the noise is not
    added to the label with one factor for all fields and places, as in the sign of a noisy number.

    A task may say it as `noise_var`; otherwise it is tried on a few random fields.
    """
    if hasattr(task, "noise_var"):
        return float(getattr(task, "noise_var"))  # noqa: B009  # not every task has it
    rng = np.random.default_rng(0)
    slope: np.ndarray | None = None
    for length in sorted({task.shortest, task.longest}):
        one = task.at(length)
        for fields in rng.standard_normal((_NOISE_TRIALS, length, len(task.teachers))):
            place = int(rng.integers(one.places()))
            at = [np.asarray(one.labelled(fields, place, a), float) for a in (0.0, 1.0, -0.5)]
            slope = at[1] - at[0] if slope is None else slope
            size = 1e-9 * (1.0 + float(np.max(np.abs(at))))
            for a, y in zip((1.0, -0.5), at[1:], strict=True):
                if y.shape != slope.shape or np.max(np.abs(y - at[0] - a * slope)) > size:
                    return None
    return None if slope is None else float(np.sum(slope**2))


_NOISE_TRIALS = 8  # random fields of a length on which the label's noise is tried


def _names(task: Spec) -> list[str]:
    return [f.name for f in declared(type(task))]
