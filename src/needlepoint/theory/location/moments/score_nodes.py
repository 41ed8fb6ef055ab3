"""Nodes and weights for the scores of a sequence: products of lines for few tokens, Sobol points for more."""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from needlepoint.core.errors import NoTheory
from needlepoint.models.activations import Activation
from needlepoint.numerics.gaussian import first_largest, legendre_rule, sobol_normals, trapezoid_rule
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.moments.accuracy import ACCURACY

SCRAMBLES = 16
_NODES = {1: 256, 2: 64, 3: 32}  # nodes on a line, by the lines in a product; for more lines Sobol points are used


Line = tuple[np.ndarray, np.ndarray]
_HERMITE: dict[int, Line] = {
    1: (np.zeros(1), np.ones(1)),
    3: (np.array([-math.sqrt(3), 0.0, math.sqrt(3)]), np.array([1.0, 4.0, 1.0]) / 6),
}


class Rule(NamedTuple):
    """Score coordinates (1 for the spiked and 2 for the max task, tokens, nodes) and weights that sum to 1."""

    coordinates: np.ndarray
    weights: np.ndarray


class Rules(NamedTuple):
    """Several rules for the same mean: independent scramblings if `sampled`, otherwise a fine and a coarse product."""

    rules: tuple[Rule, ...]
    sampled: bool


def score_rules(
    task: SingleLocation, activation: type[Activation], length: int, seed: int, on_manifold: bool = False
) -> Rules:
    """Return the rules for sequences of one length; if `on_manifold`, fewer nodes are enough (eq:score-product)."""
    width = 2 if task.tilted else 1  # where places depend on the teacher's scores, these are coordinates too
    return _score_rules(width, activation, length, task.relevant_spread, task.tilt, seed, on_manifold)


@functools.lru_cache(maxsize=16)
def _score_rules(
    width: int, activation: type[Activation], length: int, spread: float, snr: float, seed: int, on_manifold: bool
) -> Rules:
    shifts = width if activation.differences else 0
    lines = width * length - shifts
    usual = (math.isinf(snr) and length == 2 and shifts > 0) or snr <= ACCURACY.sharp or length == 1
    if activation.smooth and usual and lines <= max(_NODES):
        nodes = _NODES[max(lines, 1)]
        half = math.isinf(snr) and length > 1
        shift = None if not shifts else _HERMITE[1 if on_manifold else 3]
        return Rules(tuple(_product(length, width, shift, spread, half, n) for n in (nodes, 3 * nodes // 4)), False)
    return Rules(tuple(_points(length, width, snr, seed)), True)


def _product(length: int, width: int, shift: Line | None, spread: float, half: bool, nodes: int) -> Rule:
    """eq:score-product. Return a product of one-dimensional rules, with coordinates (width, tokens, nodes).

    Along the direction that moves all scores alike softmax is constant, and what is averaged is a polynomial of degree
    4, or 1 on the manifold: three Gauss-Hermite nodes or one (`shift`). In the max task with infinite snr the line of
    differences is cut in `half`, so that the first token is the relevant one.
    """
    line = trapezoid_rule(nodes)
    basis = _basis(length, spread)  # columns; the first one moves all scores alike
    axes = []
    for i, j in itertools.product(range(width), range(length)):
        if j == 0 and shift is not None:
            axes.append(shift)
        elif half and (i, j) == (0, 1):
            axes.append(_half_line(nodes))
        else:
            axes.append(line)
    points = np.stack(np.meshgrid(*(x for x, _ in axes), indexing="ij"), axis=-1).reshape(-1, width, length)
    weights = functools.reduce(np.multiply.outer, (w for _, w in axes)).ravel()
    kept = weights > 1e-18 * weights.max()
    coordinates = points @ basis.T if shift is not None else points
    return Rule(np.ascontiguousarray(np.moveaxis(coordinates[kept], 0, -1)), weights[kept])


def _half_line(nodes: int) -> Line:
    """Return a rule for |N(0, 1)|, up to 9 standard deviations."""
    x, w = legendre_rule(nodes)
    return 9.0 * x, 9.0 * w * np.exp(-((9.0 * x) ** 2) / 2) * math.sqrt(2 / math.pi)


def _basis(length: int, spread: float) -> np.ndarray:
    """Return an orthonormal basis: column 0 moves all scores alike, column 1 (of two tokens) their difference."""
    alike = np.ones(length)
    alike[0] = 1 / spread
    q, r = np.linalg.qr(np.column_stack([alike, np.eye(length)[:, : length - 1]]))
    return q * np.sign(np.diag(r))


def _points(length: int, width: int, snr: float, seed: int) -> list[Rule]:
    dimension = width * length
    if dimension > ACCURACY.largest_dimension:
        raise NoTheory(
            f"no rule for {length} tokens with an activation that is not element-wise; "
            f"it goes up to {ACCURACY.largest_dimension // width}."
        )
    log2_points = max(6, min(12, int(math.log2(ACCURACY.points / (SCRAMBLES * dimension)))))
    normals = sobol_normals(dimension, log2_points, SCRAMBLES, seed)
    coordinates = np.ascontiguousarray(np.moveaxis(normals.reshape(*normals.shape[:2], width, length), 1, -1))
    if math.isinf(snr):
        coordinates[:, 0] = first_largest(coordinates[:, 0])
    equal = np.full(2**log2_points, 2.0**-log2_points)
    return [Rule(block, equal) for block in coordinates]
