"""Labels, weights of places and outputs at given fields, compiled once a kind of task or model: checks of what is
declared evaluate them many times, and without compilation every operation in them would be compiled alone."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.lowering import Template, lower
from needlepoint.models.fields import FieldModel
from needlepoint.numerics.arrays import Array
from needlepoint.tasks.sequence import SequenceTask

TRIES = 5
"""Random sequences that a check looks at; one number for all checks, because every shape is compiled anew."""


def labels(task: SequenceTask, fields: np.ndarray, place: int, noise: np.ndarray) -> np.ndarray:
    """Return the labels of n sequences of fields (n, tokens, S) and noises (n,), (n, ...)."""
    return np.asarray(_labels(Template(task), lower(task)[1], fields, place, noise))


def log_tilts(task: SequenceTask, fields: np.ndarray, place: int) -> np.ndarray:
    """Return the log-weights of a place for n sequences of fields (n, tokens, S), (n,)."""
    return np.asarray(_log_tilts(Template(task), lower(task)[1], fields, place))


def outputs(model: FieldModel, fields: np.ndarray) -> np.ndarray:
    """Return the outputs for n sequences of fields (n, tokens, P), (n, ...)."""
    return np.asarray(_outputs(Template(model), lower(model)[1], fields))


@functools.partial(jax.jit, static_argnums=0)
def _labels(kind: Template, numbers: Mapping[str, Any], fields: Array, place: Array, noise: Array) -> Array:
    task = kind.bind(numbers)
    return jax.vmap(lambda f, e: jnp.asarray(task.labelled(f, place, e)))(fields, noise)


@functools.partial(jax.jit, static_argnums=0)
def _log_tilts(kind: Template, numbers: Mapping[str, Any], fields: Array, place: Array) -> Array:
    task = kind.bind(numbers)
    return jax.vmap(lambda f: jnp.asarray(task.log_tilt(task.named(f), place), float))(fields)


@functools.partial(jax.jit, static_argnums=0)
def _outputs(kind: Template, numbers: Mapping[str, Any], fields: Array) -> Array:
    model = kind.bind(numbers)
    return jax.vmap(lambda f: jnp.asarray(model.outputs(f)))(fields)
