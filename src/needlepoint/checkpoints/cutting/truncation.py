"""`truncation`: what each head loses at each rank, on the user's own text, and a cut that can be written back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from needlepoint.checkpoints.cutting.allotment import Ranks, greedy, least_ranks, same_rank
from needlepoint.checkpoints.cutting.calibration import HeadLoss, calibrate
from needlepoint.checkpoints.cutting.effects import Effect, effect_of
from needlepoint.checkpoints.cutting.texts import held_apart, sequences
from needlepoint.checkpoints.cutting.whitening import best_maps
from needlepoint.checkpoints.cutting.writing import write_cut, write_factors
from needlepoint.checkpoints.forward.decoder import Decoder
from needlepoint.checkpoints.forward.encoder import Encoder
from needlepoint.checkpoints.forward.model import Cuts
from needlepoint.checkpoints.forward.models import model_of
from needlepoint.checkpoints.reading.checkpoint import Checkpoint
from needlepoint.checkpoints.reading.files import BadCheckpoint
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import plain

FEW_TOKENS = 2_000
"""Calibration tokens below which predictions and maps are visibly worse: with 232, 17 % low in the median."""
OTHER_KIND = 1.3
"""Median of held-out over calibration loss above which the two texts are said to differ in kind. On MiniLM it was 0.95
to 1.16 within one kind of text, and 1.15 and 1.5 between two kinds, one way and the other: not every change is seen."""


@dataclass(frozen=True)
class Truncation:
    """What each head loses at each rank, and cuts made of it. From `truncation`; `heads` has the losses."""

    checkpoint: Checkpoint
    model: Encoder | Decoder
    heads: tuple[HeadLoss, ...]
    calibration: tuple[tuple[int, ...], ...]
    held_out: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        """Return the number of calibration tokens."""
        return sum(len(s) for s in self.calibration)

    def ranks(self, *, rank: int | None = None, loss: float | None = None, budget: float | None = None) -> Ranks:
        """Return a rank for every (layer, head): the same everywhere (`rank`), the least with a measured attention loss
        of at most `loss` each, or with the mean `budget`, allotted greedily by measured output loss over |x|^2."""
        given = [name for name, value in (("rank", rank), ("loss", loss), ("budget", budget)) if value is not None]
        if len(given) != 1:
            raise InvalidParameter(f"give one of rank, loss and budget; {len(given)} were given.")
        if rank is not None:
            return same_rank(self.heads, rank)
        return least_ranks(self.heads, loss) if loss is not None else greedy(self.heads, float(budget or 0.0))

    def maps(self, ranks: Mapping[tuple[int, int], int], *, whitened: bool = True) -> Cuts:
        """Return the matrices P of every layer (heads, p, p) at the given ranks. With whitened=False they are those of
        the weights alone, without text: for comparison, not for use."""
        found: dict[int, list[np.ndarray]] = {}
        for one in self.heads:
            maps = one.maps if whitened else self._bare(one)
            found.setdefault(one.layer, []).append(maps.at(int(ranks[one.layer, one.head])))
        return {layer: np.array(rows) for layer, rows in found.items()}

    def _bare(self, one: HeadLoss):
        weights = self.checkpoint.head(one.layer, one.head)
        return best_maps(weights.query @ weights.query.T, weights.key @ weights.key.T)

    def effect(self, ranks: Mapping[tuple[int, int], int], *, whitened: bool = True) -> Effect:
        """Return what the cut does to the held-out text: all heads at once, and each head on its own."""
        return effect_of(self.model, self.held_out, self.maps(ranks, whitened=whitened))

    def warnings(self, effect: Effect | None = None, ranks: Mapping[tuple[int, int], int] | None = None) -> list[str]:
        """Return sentences about calibration text that is short, or of another kind than the held-out text."""
        said = []
        if self.tokens < FEW_TOKENS:
            said.append(f"Only {self.tokens:,} calibration tokens; from {FEW_TOKENS:,} on numbers are to be trusted.")
        if effect is not None and ranks is not None:
            ratio = self.kinship(effect, ranks)
            if ratio > OTHER_KIND:
                said.append(
                    f"Heads lose {ratio:.2f} times as much on the held-out text as on the calibration text (median): "
                    "the two differ in kind, or the calibration text is too short."
                )
        return said

    def kinship(self, effect: Effect, ranks: Mapping[tuple[int, int], int]) -> float:
        """Return the median over heads of held-out over calibration loss at the given ranks."""
        ratios = []
        for one in self.heads:
            here = one.measured_at(ranks[one.layer, one.head])
            there = effect.attention.get((one.layer, one.head))
            if there is not None and here > 0:
                ratios.append(there / here)
        return float(np.median(ratios)) if ratios else 1.0

    def write(self, path: str | Path, ranks: Mapping[tuple[int, int], int], *, factors: bool = False) -> str:
        """Write the cut checkpoint and return a sentence about it. The query weights become P^T W_Q, so shapes and size
        stay; with `factors` they are stored as two factors, which saves bytes and needs a program that knows them."""
        if factors:
            return write_factors(self.checkpoint, Path(path), list(self.heads), ranks)
        return write_cut(self.checkpoint, Path(path), self.maps(ranks))

    def to_json(self) -> dict[str, Any]:
        """Return the losses of all heads as plain values."""
        names = ("layer", "head", "values", "response", "predicted", "ranks", "attention", "output")
        rows = [{name: getattr(one, name) for name in names} for one in self.heads]
        return plain({"name": self.checkpoint.name, "calibration_tokens": self.tokens, "heads": rows})

    def __repr__(self) -> str:
        held = sum(len(s) for s in self.held_out)
        return (
            f"Truncation({self.checkpoint.name}: {len(self.heads)} heads, {self.tokens:,} calibration tokens, "
            f"{held:,} held out)"
        )


def truncation(
    checkpoint: Checkpoint,
    *,
    text: str | Sequence[str],
    held_out: str | Sequence[str] | None = None,
    ranks: Sequence[int] | None = None,
) -> Truncation:
    """Return what every head loses at each rank, predicted to first order and measured on the user's text.

    checkpoint  a BERT-like encoder or a LLaMA-like decoder from `read_checkpoint`
    text        for calibration: a text, or a list of sentences or passages
    held_out    text of the same kind to test on; without it every fourth sequence of `text` is held out
    ranks       at which losses are measured; by default about a dozen from 0 to p

    >>> import tempfile
    >>> from needlepoint.checkpoints.examples import tiny_checkpoint
    >>> text = "The old man walked to the harbour. She read a long letter on the train. It was very nice. " * 40
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cut = ndl.truncation(ndl.read_checkpoint(tiny_checkpoint(folder, "bert")), text=text)
    ...     ranks = cut.ranks(budget=4)
    ...     effect = cut.effect(ranks)
    >>> cut
    Truncation(tiny-bert: 8 heads, 840 calibration tokens, 280 held out)
    >>> sum(ranks.values()), effect.kind, 0.5 < effect.after <= 1
    (32, 'cosine', True)
    """
    if any(layer.query_norm or layer.key_norm for layer in checkpoint.layers):
        raise BadCheckpoint(
            f"{checkpoint.path.name} norms its queries or keys after their weights, so scores are not bilinear and a "
            "cut cannot be written into the query weights; its heads can be read."
        )
    model = model_of(checkpoint)
    found = sequences(model, text)
    calibration, test = held_apart(found) if held_out is None else (found, sequences(model, held_out))
    p = checkpoint.layers[0].head_width
    if ranks is not None:
        if not all(type(r) is int and 0 <= r <= p for r in ranks) or len(set(ranks)) < 2:
            raise InvalidParameter(f"ranks={list(ranks)}: two or more whole numbers from 0 to {p} are expected.")
        ranks = sorted(set(ranks))
    heads = calibrate(model, calibration, ranks)
    kept = (tuple(tuple(s) for s in part) for part in (calibration, test))
    return Truncation(checkpoint, model, tuple(heads), *kept)
