"""`heads`: what the weights of every head say, beside what independent random weights would."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from needlepoint.checkpoints.heads import rotary
from needlepoint.checkpoints.heads.measures import Ranks, ranks, symmetric_share, trace_share, triangles
from needlepoint.checkpoints.heads.null import ProductNull, null_draws, product_null
from needlepoint.checkpoints.heads.tied import TiedFit, fit_tied
from needlepoint.checkpoints.reading.checkpoint import Checkpoint, HeadWeights
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import plain

SCALE = "median of s_i / null s_i"
"""The estimator of a head's scale; another one moves the number of outliers, so it is printed."""
_DRAWS = 200  # of the null, for the misfit that pure heads have; its median is known to 2 %
_SEED = 20_240_611
_TOGETHER = 2.0  # two outliers nearer than twice their noise are one subspace; equal spikes are 1.6 apart in the median


@dataclass(frozen=True)
class Outlier:
    """A singular value above the level: its size, that over the edge of the null's bulk, the strength of the spike that
    it implies (both in the head's own units), its noise, and the subspace it belongs to (0, 1, ... from the top)."""

    value: float
    over_edge: float
    strength: float
    noise: float
    subspace: int


@dataclass(frozen=True)
class Head:
    """What the weights of one head say. `values` are the p singular values; `scale` times the null's values times d is
    what they are compared with; `edge` and `level` are in the same units. `misfit` is the relative rms difference from
    the null below the level. `offsets` has the top value at each distance over that at distance zero."""

    layer: int
    head: int
    key_head: int
    values: np.ndarray
    scale: float
    edge: float
    level: float
    outliers: tuple[Outlier, ...]
    misfit: float
    ranks: Ranks
    symmetric: float
    trace: float
    offsets: dict[int, float]
    tied: TiedFit | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as plain values."""
        inner = {"ranks": vars(self.ranks), "outliers": [vars(o) for o in self.outliers]}
        inner["tied"] = None if self.tied is None else vars(self.tied)
        return plain({**vars(self), **inner})


@dataclass(frozen=True)
class NullNumbers:
    """What a head of independent Gaussian weights has: the bulk's edges and the level as s/d, ranks, misfit (median and
    99 % of draws), symmetric and trace share."""

    p: int
    d: int
    edges: tuple[float, float]
    level: float
    probability: float
    ranks: Ranks
    misfit: float
    misfit_99: float
    symmetric: float = 0.5
    trace: float = 0.0


@dataclass(frozen=True)
class HeadsReport:
    """The heads of a checkpoint beside their null, with what was assumed and what was skipped."""

    name: str
    heads: tuple[Head, ...]
    null: NullNumbers
    assumptions: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]

    def outliers_by_layer(self) -> dict[int, int]:
        """Return how many outliers the heads of each layer have together."""
        found: dict[int, int] = {}
        for head in self.heads:
            found[head.layer] = found.get(head.layer, 0) + len(head.outliers)
        return found

    def median(self, name: str) -> float:
        """Return the median over heads of `misfit`, `symmetric`, `trace`, `outliers`, or one of the ranks."""
        return float(np.median([_number(head, name) for head in self.heads]))

    def notes(self) -> tuple[str, ...]:
        """Return the sentences to be read with the numbers: what was assumed, and what must not be concluded."""
        share = 100 * (1 - self.null.probability)
        said = [
            f"Scale: {SCALE}; another estimator moves the number of outliers.",
            f"Level: a head of independent Gaussian weights has an outlier with probability {share:.2g} %"
            + ("." if self.null.p <= self.null.d / 2 else " (calibrated up to p/d = 1/2 only; this is above)."),
        ]
        if self.median("misfit") > self.null.misfit_99:
            said.append(
                f"The bulk is not Gaussian: median misfit {100 * self.median('misfit'):.1f} %, pure draws "
                f"{100 * self.null.misfit:.1f} % (99 %: {100 * self.null.misfit_99:.1f} %); outliers are then the "
                "upper end of a wide spectrum rather than spikes on a Gaussian bulk."
            )
        said.append("Weights alone do not say what a truncation costs; that needs text (truncation).")
        return (*self.assumptions, *said)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        null = {**vars(self.null), "ranks": vars(self.null.ranks)}
        heads = [head.to_json() for head in self.heads]
        skipped = [{"where": where, "reason": reason} for where, reason in self.skipped]
        return plain({"name": self.name, "scale": SCALE, "null": null, "notes": self.notes(), "skipped": skipped}) | {
            "heads": heads
        }

    def __repr__(self) -> str:
        said = ", ".join(f"{name} {self.median(name):.3g}" for name in ("outliers", "effective", "misfit"))
        return f"HeadsReport({self.name}: {len(self.heads)} heads; medians: {said})"


def _number(head: Head, name: str) -> float:
    if name == "outliers":
        return len(head.outliers)
    return getattr(head.ranks, name) if hasattr(head.ranks, name) else getattr(head, name)


def heads(
    checkpoint: Checkpoint,
    *,
    layer: int | None = None,
    head: int | None = None,
    law: str = "product",
    level: float = 0.99,
    folded: bool = True,
) -> HeadsReport:
    """Return the singular values of every head's query-key map beside those of independent random weights.

    checkpoint   from `read_checkpoint`; heads are read one at a time
    layer, head  only this layer, only the heads of this number
    law          "tied" also fits the law of tied attention and says whether it can be told from the null
    level        the probability that a pure head has no outlier
    folded       False leaves the gains of the norm before attention out

    >>> import tempfile
    >>> from needlepoint.checkpoints.examples import tiny_checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = ndl.heads(ndl.read_checkpoint(tiny_checkpoint(folder, "bert")))
    >>> len(report.heads), report.heads[0].values.shape, round(report.null.edges[1], 3)
    (8, (8,), 1.76)
    """
    if law not in ("product", "tied"):
        raise InvalidParameter(f"heads(law={law!r}): 'product' or 'tied' is expected.")
    places = checkpoint.layers if layer is None else (checkpoint.layer(layer),)
    wanted = [(place, h) for place in places for h in range(place.heads) if head is None or h == head]
    if not wanted:
        raise InvalidParameter(f"heads(head={head}): the layers have heads 0 to {places[0].heads - 1}.")
    shapes = {(place.head_width, place.width) for place, _ in wanted}
    if (odd := next((s for s in shapes if s[0] > s[1]), None)) is not None:
        raise InvalidParameter(f"heads of width {odd[0]} in a model of width {odd[1]} have no null here: p <= d.")
    found = []
    for place, number in wanted:
        weights = checkpoint.head(place.layer, number, folded=folded)
        turning = _turning(checkpoint, place.layer, place.head_width)
        found.append(describe(weights, level=level, turning=turning, tied=law == "tied"))
    first = wanted[0][0]
    numbers = null_numbers(first.head_width, first.width, level)
    skipped = tuple((s.where, s.reason) for s in checkpoint.skipped)
    return HeadsReport(checkpoint.name, tuple(found), numbers, checkpoint.assumptions, skipped)


def _turning(checkpoint: Checkpoint, layer: int, p: int) -> tuple[int, float, str] | None:
    """Return how positions turn queries and keys of a layer: coordinates, base, pairs; None without rotary ones."""
    if not checkpoint.family.pairs:
        return None
    settings = checkpoint.settings
    return min(settings.rope_width or p, p), settings.base_of(layer) or 10_000.0, checkpoint.family.pairs


def describe(
    weights: HeadWeights, *, level: float = 0.99, turning: tuple[int, float, str] | None = None, tied: bool = False
) -> Head:
    """Return what the weights of one head say."""
    p, d = weights.query.shape
    null = product_null(p, d)
    r_query, r_key = triangles(weights.query, weights.key)
    values = np.linalg.svd(r_query @ r_key.T, compute_uv=False)
    symmetric = symmetric_share(weights.query, weights.key)
    scale, misfit, outliers = compare_with_null(values, null, level)
    offsets = {}
    if turning is not None and values[0] > 0:
        offsets = {t: top / float(values[0]) for t, top in rotary.top_at_offsets(r_query, r_key, *turning).items()}
    fit = fit_tied(values, d, symmetric) if tied and values[0] > 0 else None
    unit = scale * d
    return Head(
        weights.layer,
        weights.head,
        weights.key_head,
        values,
        scale,
        null.edges[1] * unit,
        null.outlier_level(level) * unit,
        outliers,
        misfit,
        ranks(values),
        symmetric,
        trace_share(weights.query, weights.key),
        offsets,
        fit,
    )


def compare_with_null(values: np.ndarray, null: ProductNull, level: float) -> tuple[float, float, tuple[Outlier, ...]]:
    """eq:head-misfit. Return the scale, the misfit below the level, and the outliers of sorted singular values."""
    scale = float(np.median(values / null.values)) / null.d
    if scale == 0:  # at least half of the values are zero: there is no bulk to compare with
        return 0.0, float("nan"), ()
    over = values / (scale * null.d)
    high = over > null.outlier_level(level)
    misfit = float(np.sqrt(np.mean((over / null.values - 1)[~high] ** 2)))
    tops = over[high]
    strengths, noises = null.spike(tops), null.noise(tops)
    outliers: list[Outlier] = []
    group = 0
    for i, top in enumerate(tops):
        if i and tops[i - 1] - top > _TOGETHER * noises[i]:
            group += 1
        unit = scale * null.d
        outliers.append(
            Outlier(top * unit, top / null.edges[1], float(strengths[i]) * unit, float(noises[i]) * unit, group)
        )
    return scale, misfit, tuple(outliers)


@functools.lru_cache(maxsize=64)
def null_numbers(p: int, d: int, level: float) -> NullNumbers:
    """Return what pure heads of this shape have; only their misfit is sampled (with a fixed seed)."""
    null = product_null(p, d)
    draws = null_draws(p, d, _DRAWS, np.random.default_rng(_SEED))
    misfits = [compare_with_null(row, null, level)[1] for row in draws]
    low, high = np.quantile(misfits, (0.5, 0.99))
    return NullNumbers(p, d, null.edges, null.outlier_level(level), level, ranks(null.values), float(low), float(high))


def summary(report: HeadsReport, names: Sequence[str] = ("effective", "stable", "participation", "r90")) -> list[str]:
    """Return the medians over heads, each beside the null's value, as lines."""
    lines = []
    for name in names:
        lines.append(f"{name:<14} {report.median(name):8.4g}   null {getattr(report.null.ranks, name):.4g}")
    lines.append(f"{'misfit':<14} {report.median('misfit'):8.4f}   null {report.null.misfit:.4f}")
    lines.append(f"{'symmetric':<14} {report.median('symmetric'):8.4f}   null 0.5")
    lines.append(f"{'trace':<14} {report.median('trace'):8.4f}   null 0")
    total = sum(report.outliers_by_layer().values())
    lines.append(f"{'outliers':<14} {report.median('outliers'):8.4g}   {total} in all")
    return lines
