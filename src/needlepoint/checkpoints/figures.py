"""The fourth body of figures: real models, drawn where `make fixtures` has fetched them.

They are not computed point by point like the others, because a checkpoint is not a question that a store could hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from needlepoint.checkpoints.fixtures import FIXTURES, home
from needlepoint.core.errors import InvalidParameter
from needlepoint.papers.figures import Drawing, Figure

SPECTRA, PROBING = "2509.24914", "2410.01537"
"""The papers that reach for trained models: spectra of query-key maps, and labels read from hidden states."""
_TEXT = "the Python language reference, as help() shows it"
_SENTENCES = {"calibration": 240, "test": 80}


def place_of(name: str) -> Path:
    """Return the path of a fixture; raises InvalidParameter with the command that fetches it."""
    place = FIXTURES[name].place(home())
    if not place.exists():
        raise InvalidParameter(f"the model {name} is not there: make fixtures")
    return place


def _report(name: str) -> Any:
    from needlepoint.checkpoints.heads.report import heads
    from needlepoint.checkpoints.reading.checkpoint import read_checkpoint

    return heads(read_checkpoint(place_of(name)))


def _head_table(report: Any) -> tuple[list[str], list[list[Any]]]:
    columns = ["layer", "head", "top", "edge", "outliers", "effective", "stable", "r90", "misfit", "symmetric"]
    rows = []
    for h in report.heads:
        sizes = [h.ranks.effective, h.ranks.stable, h.ranks.r90]
        rows.append([h.layer, h.head, float(h.values[0]), h.edge, len(h.outliers), *sizes, h.misfit, h.symmetric])
    return columns, rows


def _spectra(name: str) -> Callable[..., Drawing]:
    def draw(_: Sequence[Any]) -> Drawing:
        from needlepoint.plotting.checkpoints.heads import spectra_grid

        report = _report(name)
        return Drawing(spectra_grid(report), {"heads": _head_table(report)})

    return draw


def _maps(name: str) -> Callable[..., Drawing]:
    def draw(_: Sequence[Any]) -> Drawing:
        from needlepoint.plotting.checkpoints.heads import head_maps

        report = _report(name)
        return Drawing(head_maps(report), {"heads": _head_table(report)})

    return draw


def manual_sentences() -> list[str]:
    """Return plain sentences of the text that every Python has, `pydoc_data.topics`, each once."""
    from pydoc_data import topics

    from needlepoint.checkpoints.cutting.texts import sentences

    found = dict.fromkeys(s for text in topics.topics.values() for s in sentences(text))
    return [s for s in found if 6 <= len(s.split()) <= 40 and sum(c.isalpha() or c == " " for c in s) > 0.85 * len(s)]


def _losses(_: Sequence[Any]) -> Drawing:
    from needlepoint.checkpoints.cutting.truncation import truncation
    from needlepoint.checkpoints.reading.checkpoint import read_checkpoint
    from needlepoint.plotting.checkpoints.losses import loss_panels

    text = manual_sentences()
    order = np.random.default_rng(1).permutation(len(text))[: sum(_SENTENCES.values())]
    first = _SENTENCES["calibration"]
    calibration, test = ([text[i] for i in part] for part in (order[:first], order[first:]))
    cut = truncation(read_checkpoint(place_of("minilm")), text=calibration, held_out=test)
    ranks = cut.ranks(rank=8)
    effect = cut.effect(ranks)
    rows = [
        [h.layer, h.head, float(h.predicted[8]), h.measured_at(8), effect.attention[h.layer, h.head]] for h in cut.heads
    ]
    table = (["layer", "head", "predicted", "measured", "held_out"], rows)
    return Drawing(loss_panels(cut, effect, ranks), {"losses": table})


def _probing(_: Sequence[Any]) -> Drawing:
    from needlepoint.checkpoints.probing.probe import PUBLISHED, probe
    from needlepoint.checkpoints.reading.checkpoint import read_checkpoint
    from needlepoint.plotting.checkpoints.probes import probe_bars

    report = probe(read_checkpoint(place_of("minilm")), sentences=300)
    columns = ["layer", "pooling", "set", "share", "low", "high", "count"]
    rows = [[getattr(r, c) for c in columns] for r in report.rows]
    return Drawing(probe_bars(report, PUBLISHED), {"accuracies": (columns, rows)})


def _figure(name: str, title: str, paper: str, caption: str, draw: Callable[..., Drawing]) -> Figure:
    return Figure(name, title, paper, caption, lambda _: (), draw)


REAL = {
    f.id: f
    for f in (
        _figure(
            "real-spectra",
            "Query-key spectra of MiniLM beside independent weights",
            SPECTRA,
            "Singular values of every head's map over its fitted scale; the bulk of the product null is shaded.",
            _spectra("minilm"),
        ),
        _figure(
            "real-spectra-decoder",
            "Query-key spectra of SmolLM2 beside independent weights",
            SPECTRA,
            "As for MiniLM, with the gains of the norm folded in: outliers are the upper end of a wide spectrum.",
            _spectra("smollm2"),
        ),
        _figure(
            "real-maps",
            "Effective rank and outliers over layers and heads of MiniLM",
            SPECTRA,
            "The effective rank of each head over that of independent weights, and its number of outliers.",
            _maps("minilm"),
        ),
        _figure(
            "real-losses",
            "What each head of MiniLM loses at each rank",
            SPECTRA,
            f"Predicted and measured attention loss at rank 8, and measured losses at all ranks; text: {_TEXT}.",
            _losses,
        ),
        _figure(
            "real-probing",
            "A label of one word read from the hidden states of MiniLM",
            PROBING,
            "Accuracies of linear probes with 95 % intervals, beside the published bars of another model (BERT).",
            _probing,
        ),
    )
}
"""The figures by id."""


def draw_real(figure: Figure, out: Path) -> tuple[tuple[Path, ...], float]:
    """Draw a figure into a folder; returns its files and the seconds it took."""
    from needlepoint.papers.runner import save

    start = time.monotonic()
    return save(figure.draw(()), out / figure.id), time.monotonic() - start


def missing(figure: Figure) -> str:
    """Return the sentence that says why a figure cannot be drawn here; empty if it can."""
    try:
        place_of("smollm2" if figure.id == "real-spectra-decoder" else "minilm")
    except InvalidParameter as error:
        return str(error)
    return ""
