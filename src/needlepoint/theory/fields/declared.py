"""What a task and a model declare of themselves, checked on random fields before anything is computed."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.kinds import is_whole
from needlepoint.core.lowering import Template, lower
from needlepoint.losses import Loss
from needlepoint.models.fields import FieldModel
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields.symmetry import patterns, task_parity
from needlepoint.theory.fields.values import TRIES, labels, log_tilts, outputs

_CLOSE = 1e-9

Checked = tuple[Template, Template, Template]


def check_declarations(task: SequenceTask, model: FieldModel, loss: Loss) -> None:
    """Check shapes, float64, weights of places, seen fields, linear columns, flips and exchangeability; each failure is
    one sentence that says what to change."""
    for length in sorted({task.shortest, task.longest}):
        here = task.at(length)
        _check(here, model, loss, (Template(here), Template(model), Template(loss)))


def check_law(task: SequenceTask) -> None:
    """Check what a task declares, where there is no model: shapes, float64, weights of places, seen fields, flips,
    exchangeability."""
    for length in sorted({task.shortest, task.longest}):
        here = task.at(length)
        if Template(here) not in _KNOWN:
            _check_law(here)
            for flip in here.flips:
                task_parity(here, flip)
            _KNOWN.add(Template(here))


_KNOWN: set[Template] = set()
"""Tasks that were checked without a model."""


def _check_law(task: SequenceTask) -> None:
    if not task.teachers or isinstance(task.teachers, str):
        raise InvalidParameter(
            f"{type(task).__name__}: teachers = {task.teachers!r} must be a tuple of names; write teachers = ('key', "
            "'value')."
        )
    _check_flips(f"{type(task).__name__}.flips", task.flips, task.teachers, "teachers")
    count = task.places()
    if not is_whole(count) or isinstance(count, float) or count < 1:
        raise InvalidParameter(f"{type(task).__name__}.places: it returned {count!r}; return a whole number >= 1.")
    _check_task(task)


def _check(task: SequenceTask, model: FieldModel, loss: Loss, key: Checked) -> None:
    if key in _DONE:
        return
    _check_law(task)
    _check_flips(f"{type(model).__name__}.flips", model.flips, model.groups, "columns")
    _check_model(task, model)
    _check_loss(task, model, loss)
    patterns(task, model)
    _DONE.add(key)


_DONE: set[Checked] = set()
"""What was checked already: the checks take a tenth of a second."""


def _check_flips(where: str, flips: Any, names: tuple[str, ...], what: str) -> None:
    """Check that flips are sets of known names: a name that is not there would be a flip of nothing."""
    for flip in flips:
        if isinstance(flip, str):
            raise InvalidParameter(f"{where}: {flips!r} must be sets of names; write flips = (({flip!r},),).")
        for name in flip:
            if name not in names:
                raise InvalidParameter(f"{where}: {name!r} is not one of its {what} ({', '.join(names)}).")


def _traced(where: str, function: Any, *args: Any) -> Any:
    """Return the shape and dtype that a function returns under tracing, or say why it cannot be traced."""
    try:
        return jax.eval_shape(lambda *a: jnp.asarray(function(*a)), *args)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:160]
        raise InvalidParameter(
            f"{where} failed: {type(error).__name__}: {reason} (write it with jax.numpy, for one sequence; a place and "
            "the numbers of the spec may be traced)."
        ) from error


def _check_task(task: SequenceTask) -> None:
    name, tokens, S = type(task).__name__, task.tokens, len(task.teachers)
    numbers = lower(task)[1]
    template = Template(task)
    field, noise, place = jnp.zeros((tokens, S)), jnp.zeros(()), jnp.zeros((), int)
    shape = _traced(
        f"{name}.label", lambda n, f, p, e: template.bind(n).labelled(f, p, e), numbers, field, place, noise
    )
    if shape.dtype != np.float64:
        raise InvalidParameter(f"{name}.label: it returned {shape.dtype}; a label is float64 (no casts, no counts).")
    for method in ("shift", "spread"):
        _traced(f"{name}.{method}", lambda n, p, m=method: _whole(template.bind(n), m, p), numbers, place)
    tilted = _traced(f"{name}.log_tilt", lambda n, f, p: _tilt(template.bind(n), f, p), numbers, field, place)
    if tilted.shape:
        raise InvalidParameter(f"{name}.log_tilt: it returned shape {tilted.shape}; return one number for the place.")
    rng = np.random.default_rng(1)
    count = task.places()
    total = np.zeros(TRIES)
    normals, noises = rng.standard_normal((TRIES, tokens, S)), rng.standard_normal(TRIES)
    depends = False
    for p in range(count):
        at = task.place_at(p)
        if np.any(np.asarray(at.spread) <= 0):
            raise InvalidParameter(f"{name}.spread: it returned {np.asarray(at.spread)}; a spread is positive.")
        fields = np.asarray(at.shift) + np.asarray(at.spread)[:, None] * normals
        label = labels(task, fields, p, noises)
        if not np.all(np.isfinite(label)):
            raise InvalidParameter(f"{name}.label: it returned {label[~np.isfinite(label)][0]} for ordinary fields.")
        tilt = log_tilts(task, fields, p)
        total += np.exp(tilt) / count
        redrawn = np.where(task.seen_at(p), fields, rng.standard_normal(fields.shape))
        again, retilt = labels(task, redrawn, p, noises), log_tilts(task, redrawn, p)
        if not _same(label, again) or not _same(np.exp(tilt), np.exp(retilt)):
            what = "label" if not _same(label, again) else "log_tilt"
            raise InvalidParameter(
                f"{name}.seen: {what} changes with fields that are not seen at place {p}; name every teacher and token "
                "that label and log_tilt look at."
            )
        moved = labels(task, -0.3 * fields, p, noises)
        depends = depends or not _same(label, moved)
    if not depends:
        raise InvalidParameter(f"{name}.label: it does not depend on the fields, so that there is nothing to learn.")
    if np.max(np.abs(total - 1)) > 1e-8:
        raise InvalidParameter(
            f"{name}.log_tilt: with equally probable places the weights exp(log_tilt) average to {total[0]:.6g} over "
            f"the {count} places, not to 1; add log(places) to a log-probability."
        )
    if task.exchangeable and count > 1:
        _check_exchange(task, normals, noises)


def _tilt(task: SequenceTask, fields: Any, place: Any) -> Any:
    return task.log_tilt(task.named(fields), place)


def _whole(task: SequenceTask, method: str, place: Any) -> Any:
    at = task.place_at(place)
    return at.shift if method == "shift" else at.spread


def _check_exchange(task: SequenceTask, fields: np.ndarray, noises: np.ndarray) -> None:
    """Check that place p is place 0 with tokens 0 and p exchanged."""
    first = task.place_at(0)
    for p in range(1, task.places()):
        order = np.arange(task.tokens)
        order[[0, p]] = [p, 0] if p < task.tokens else [0, 0]
        at = task.place_at(p)
        same = _same(np.asarray(at.shift)[order], np.asarray(first.shift))
        same &= _same(np.asarray(at.spread)[order], np.asarray(first.spread))
        same &= np.array_equal(task.seen_at(p)[order], task.seen_at(0))
        same &= _same(labels(task, fields, p, noises), labels(task, fields[:, order], 0, noises))
        if not same:
            raise InvalidParameter(
                f"{type(task).__name__}: place {p} is not place 0 with two tokens exchanged; write exchangeable = "
                "False (the mean is then taken over all places)."
            )


def _check_model(task: SequenceTask, model: FieldModel) -> None:
    name, tokens = type(model).__name__, task.tokens
    P = len(model.labels)
    if len(set(model.labels)) < P:
        raise InvalidParameter(f"{name}.columns: two columns have the name {model.labels}; names differ.")
    for column in model.linear:
        if column not in model.groups:
            raise InvalidParameter(f"{name}.linear: {column!r} is not one of its columns ({', '.join(model.groups)}).")
    template, numbers = Template(model), lower(model)[1]
    out = _traced(f"{name}.output", lambda n, f: template.bind(n).outputs(f), numbers, jnp.zeros((tokens, P)))
    label = jax.eval_shape(lambda f: jnp.asarray(task.labelled(f, 0, 0.0)), jnp.zeros((tokens, len(task.teachers))))
    if out.shape != label.shape:
        raise InvalidParameter(
            f"{name}.output: it has shape {out.shape} where the labels of {type(task).__name__} have {label.shape}; "
            "return one array of the label's shape for a sequence."
        )
    if out.dtype != np.float64:
        raise InvalidParameter(f"{name}.output: it returned {out.dtype}; compute in float64 (no casts).")
    rng = np.random.default_rng(2)
    fields = rng.standard_normal((TRIES, tokens, P))
    values = outputs(model, fields)
    if not np.all(np.isfinite(values)):
        raise InvalidParameter(f"{name}.output: it returned {values[~np.isfinite(values)][0]} for ordinary fields.")
    if model.linear:
        z = np.array([g in model.linear for g in model.group_of])
        at = [outputs(model, np.where(z, a * fields, fields)) for a in (0.0, 1.0, 3.0)]
        if not _same(at[2] - at[0], 3 * (at[1] - at[0])):
            raise InvalidParameter(
                f"{name}.linear: the output is not linear in {', '.join(model.linear)}; leave these names out."
            )
    order = rng.permutation(tokens)
    if task.exchangeable and task.places() > 1 and not out.shape:
        moved = outputs(model, fields[:, order])
        if not _same(values, moved):
            raise InvalidParameter(
                f"{name}.output: it changes when the tokens are permuted, so that all places are not alike; give the "
                f"task exchangeable = False ({type(task).__name__} says True)."
            )


def _check_loss(task: SequenceTask, model: FieldModel, loss: Loss) -> None:
    rng = np.random.default_rng(5)
    labels = [task.labelled(jnp.asarray(rng.standard_normal((task.tokens, len(task.teachers)))), 0, 0.3)]
    loss.check_labels(task, np.asarray(labels))
    f = jnp.asarray(np.random.default_rng(3).standard_normal((task.tokens, len(model.labels))))
    y = jnp.asarray(task.labelled(jnp.zeros((task.tokens, len(task.teachers))) + 0.3, 0, 0.1))
    shape = _traced(f"{type(loss).__name__}.cost", lambda y, f: loss.cost(y, model.outputs(f)), y, f)
    if shape.shape:
        raise InvalidParameter(f"{type(loss).__name__}.cost: it returned shape {shape.shape}; a loss is one number.")


@functools.cache
def kinked(model: Template, tokens: int) -> bool:
    """Return whether the output has kinks: its Hessian vanishes almost everywhere along a line while its slope
    changes."""
    spec = model.value
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, tokens, len(spec.labels)))

    def along(t: Any) -> Any:
        return jnp.sum(jnp.asarray(spec.outputs(jnp.asarray(a) + t * jnp.asarray(b))))

    def derivatives(t: Any) -> tuple[Any, Any]:
        def slope(t: Any) -> Any:
            return jax.jvp(along, (t,), (jnp.ones_like(t),))[1]

        return jax.jvp(slope, (t,), (jnp.ones_like(t),))

    grid = np.linspace(-3, 3, 241)
    first, second = (np.asarray(x) for x in jax.jit(jax.vmap(derivatives))(grid))
    h = grid[1] - grid[0]
    jumps = np.abs(np.diff(first) - h * (second[1:] + second[:-1]) / 2)
    return bool(np.max(jumps) > 0.05 * (np.max(np.abs(first)) + 1e-300) and np.median(jumps) < 0.05 * np.max(jumps))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    a, b = np.asarray(one, float), np.asarray(other, float)
    if a.shape != b.shape:
        return False
    scale = 1 + float(np.max(np.abs(np.where(np.isfinite(a), a, 0.0)), initial=0.0))
    with np.errstate(invalid="ignore"):
        return bool(np.all((a == b) | (np.abs(a - b) <= _CLOSE * scale)))
