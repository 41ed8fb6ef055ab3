"""Heads of a checkpoint in the explorer's folders: their spectra beside the null, and what each rank would lose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from needlepoint.explorer.questions.asking import Emit
from needlepoint.explorer.questions.files import listed, named
from needlepoint.explorer.questions.reading import Reader

TEXT = 60_000
"""Characters of a calibration text; some ten thousand words are enough."""


@dataclass(frozen=True)
class Heads:
    """Every head in short, layer by layer; with `layer` and `head`, one head in full."""

    name: str
    layer: int
    head: int

    @classmethod
    def read(cls, reader: Reader) -> Heads:
        return cls(reader.text("name"), reader.whole("layer", -1, 10_000, -1), reader.whole("head", -1, 10_000, -1))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl

        checkpoint = ndl.read_checkpoint(named(self.name, listed(folders)[1], "checkpoint"))
        layers = [place.layer for place in checkpoint.layers]
        emit({"event": "checkpoint", "text": repr(checkpoint), "layers": layers})
        if self.layer >= 0:
            report = ndl.heads(checkpoint, layer=self.layer, head=self.head if self.head >= 0 else None)
            emit({"event": "head", "head": report.heads[0], "notes": report.notes()})
            return
        for i, layer in enumerate(layers):
            report = ndl.heads(checkpoint, layer=layer)
            emit(
                {"event": "layer", "layer": layer, "heads": [_short(h) for h in report.heads], "notes": report.notes()}
            )
            emit({"event": "progress", "done": (i + 1) / len(layers)})


def _short(head: Any) -> dict[str, Any]:
    return {
        "layer": head.layer,
        "head": head.head,
        "top": float(head.values[0]),
        "edge": head.edge,
        "level": head.level,
        "outliers": len(head.outliers),
        "misfit": head.misfit,
        "effective": head.ranks.effective,
        "stable": head.ranks.stable,
        "symmetric": head.symmetric,
    }


@dataclass(frozen=True)
class Losses:
    """What every head loses at each rank, on a text that the user gives."""

    name: str
    words: str

    @classmethod
    def read(cls, reader: Reader) -> Losses:
        return cls(reader.text("name"), reader.text("words", most=TEXT))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl

        checkpoint = ndl.read_checkpoint(named(self.name, listed(folders)[1], "checkpoint"))
        cut = ndl.truncation(checkpoint, text=self.words)
        emit({"event": "losses", "notes": cut.warnings(), "tokens": cut.tokens})
        for one in cut.heads:
            emit(
                {
                    "event": "loss",
                    "layer": one.layer,
                    "head": one.head,
                    "predicted": one.predicted,
                    "ranks": one.ranks,
                    "measured": one.attention,
                    "output": one.output,
                }
            )
