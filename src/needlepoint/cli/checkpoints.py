"""The commands about real transformers: `heads`, `truncate` and `probe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.cli.options import AsJson, Picture, Seed, check_target
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import dumps, plain

if TYPE_CHECKING:
    from needlepoint.checkpoints.cutting.truncation import Truncation
    from needlepoint.checkpoints.heads.report import Head, HeadsReport
    from needlepoint.checkpoints.reading.checkpoint import Checkpoint

Where = Annotated[Path, typer.Argument(metavar="PATH", help="A .safetensors or .gguf file, or a model's folder")]
HeadCount = Annotated[int | None, typer.Option("--heads", help="Heads a layer, where the file does not say")]
KeyHeads = Annotated[int | None, typer.Option("--key-heads", help="Key heads a layer, where the file does not say")]
Follow = Annotated[bool, typer.Option("--follow-links", help="Read what symbolic links in the folder point to")]
Pattern = Annotated[
    list[str] | None,
    typer.Option("--name", help='Names of an unknown family: query="h.{layer}.wq.weight" (repeatable)'),
]
_LARGEST_TEXT = 50_000_000  # bytes; a calibration text has some ten thousand


def _opened(
    path: Path, heads: int | None, key_heads: int | None, names: list[str] | None, follow_links: bool
) -> Checkpoint:
    import needlepoint as ndl

    patterns = None
    if names:
        pairs = [one.partition("=") for one in names]
        if any(not mark for _, mark, _ in pairs):
            raise InvalidParameter('--name is given as part="tensor.{layer}.name".')
        patterns = {key.strip(): value.strip() for key, _, value in pairs}
    return ndl.read_checkpoint(path, heads=heads, key_heads=key_heads, patterns=patterns, follow_links=follow_links)


def heads(
    path: Where,
    layer: Annotated[int | None, typer.Option(help="Only this layer", min=0)] = None,
    head: Annotated[int | None, typer.Option(help="Only heads of this number", min=0)] = None,
    law: Annotated[str, typer.Option(help="product, or tied to put that law beside it")] = "product",
    level: Annotated[float, typer.Option(help="Probability that a pure head has no outlier")] = 0.99,
    count: HeadCount = None,
    key_heads: KeyHeads = None,
    names: Pattern = None,
    follow_links: Follow = False,
    out: Annotated[Path | None, typer.Option(help="Write a .csv file with a row per head")] = None,
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """The spectra of a model's query-key maps beside those of independent random weights."""
    check_target(plot)
    check_target(out, (".csv",))
    import needlepoint as ndl

    checkpoint = _opened(path, count, key_heads, names, follow_links)
    report = ndl.heads(checkpoint, layer=layer, head=head, law=law, level=level)
    if out is not None:
        _write_heads(out, report)
    if plot is not None:
        from needlepoint.plotting.checkpoints.heads import spectra_grid

        spectra_grid(report).savefig(plot, dpi=160)
    if as_json:
        print(dumps(report))
        return
    print("\n".join(_heads_lines(checkpoint, report)))
    for file in (out, plot):
        if file is not None:
            print(file)


def _heads_lines(checkpoint: Checkpoint, report: HeadsReport) -> list[str]:
    from needlepoint.checkpoints.heads.report import summary

    lines = [repr(checkpoint), *(f"  {note}" for note in report.notes())]
    lines += [f"  skipped {where}: {reason}." for where, reason in report.skipped]
    turned = "  top at offset / at 0" if any(h.offsets for h in report.heads) else ""
    columns = "layer head   top value  over edge  outliers  effective  stable    r90  misfit  symmetric  trace"
    lines += ["", columns + turned]
    lines += [_head_line(h) for h in report.heads]
    lines += ["", "medians over heads", *(f"  {line}" for line in summary(report))]
    return lines + [f"  {h.layer}.{h.head}: {h.tied.sentence}" for h in report.heads if h.tied is not None]


def _head_line(h: Head) -> str:
    top = float(h.values[0])
    over = top / h.edge if h.edge > 0 else float("nan")
    groups = len({o.subspace for o in h.outliers})
    found = f"{len(h.outliers)}" if groups == len(h.outliers) else f"{len(h.outliers)} in {groups}"
    turned = "".join(f"  {t}: {ratio:.2f}" for t, ratio in h.offsets.items())
    return (
        f"{h.layer:>5} {h.head:>4}  {top:>10.5g}  {over:>9.3f}  {found:>8}  {h.ranks.effective:>9.2f}  "
        f"{h.ranks.stable:>6.2f}  {h.ranks.r90:>5}  {h.misfit:>6.3f}  {h.symmetric:>9.3f}  {h.trace:>5.2f}{turned}"
    )


def _write_heads(path: Path, report: HeadsReport) -> None:
    import csv

    columns = ["layer", "head", "key_head", "top", "edge", "level", "outliers", "misfit", "effective", "stable"]
    columns += ["participation", "r90", "symmetric", "trace"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for h in report.heads:
            r = h.ranks
            row = [h.layer, h.head, h.key_head, float(h.values[0]), h.edge, h.level, len(h.outliers), h.misfit]
            writer.writerow([*row, r.effective, r.stable, r.participation, r.r90, h.symmetric, h.trace])


def truncate(
    path: Where,
    text: Annotated[Path, typer.Option(help="Calibration text, a UTF-8 file")],
    test: Annotated[Path | None, typer.Option(help="Held-out text; without it a quarter of --text")] = None,
    loss: Annotated[float | None, typer.Option(help="Largest attention loss of a head, measured")] = None,
    rank: Annotated[int | None, typer.Option(help="The same rank for every head")] = None,
    budget: Annotated[float | None, typer.Option(help="Mean rank, allotted greedily by measured output loss")] = None,
    write: Annotated[Path | None, typer.Option(help="Write the cut model: .safetensors, or .gguf from GGUF")] = None,
    factors: Annotated[bool, typer.Option("--factors", help="Write two factors a head, which saves bytes")] = False,
    count: HeadCount = None,
    key_heads: KeyHeads = None,
    follow_links: Follow = False,
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """What each head loses at each rank on a text, and the model with its queries cut."""
    check_target(plot)
    check_target(write, (".safetensors", ".gguf"))
    words, held = _read_text(text), None if test is None else _read_text(test)
    if sum(option is not None for option in (loss, rank, budget)) > 1:
        raise InvalidParameter("give one of --loss, --rank and --budget.")
    import needlepoint as ndl

    checkpoint = _opened(path, count, key_heads, None, follow_links)
    cut = ndl.truncation(checkpoint, text=words, held_out=held)
    if loss is None and rank is None and budget is None:
        loss = 0.01
    ranks = cut.ranks(rank=rank, loss=loss, budget=budget)
    effect = cut.effect(ranks)
    said = [*cut.warnings(effect, ranks)]
    if write is not None:
        said.append(cut.write(write, ranks, factors=factors))
    if plot is not None:
        from needlepoint.plotting.checkpoints.losses import loss_panels

        loss_panels(cut, effect, ranks).savefig(plot, dpi=160)
    if as_json:
        chosen = [{"layer": layer, "head": head, "rank": r} for (layer, head), r in ranks.items()]
        about = {**vars(effect), "attention": list(effect.attention.values())}
        print(dumps({**cut.to_json(), "chosen": chosen, "effect": plain(about), "notes": said}))
        return
    print("\n".join(_cut_lines(cut, ranks, effect)))
    for note in said:
        print(note)
    if plot is not None:
        print(plot)


def _cut_lines(cut: Truncation, ranks: Any, effect: Any) -> list[str]:
    import numpy as np

    lines = [repr(cut), "", "layer head  rank  predicted   measured   held out   of output"]
    for h in cut.heads:
        rank = ranks[h.layer, h.head]
        output = float(np.interp(rank, h.ranks, h.output))
        there = effect.attention[h.layer, h.head]
        lines.append(
            f"{h.layer:>5} {h.head:>4} {rank:>5}  {h.predicted[rank]:>9.2e}  {h.measured_at(rank):>9.2e}  "
            f"{there:>9.2e}  {output:>9.2e}"
        )
    mean = np.mean(list(ranks.values()))
    about = {
        "cosine": f"cosine of sentence embeddings with the uncut model's {effect.after:.4f} (worst {effect.worst:.4f})",
        "nats": f"loss of the next token {effect.before:.4f} nats uncut, {effect.after:.4f} cut "
        f"(+{effect.after - effect.before:.4f} +- {effect.error:.4f})",
    }[effect.kind]
    lines += ["", f"mean rank {mean:.2f}; {about}, on {effect.tokens:,} held-out tokens"]
    return [*lines, "predicted: to first order; measured: on the calibration text, which is the better of the two"]


def _read_text(path: Path) -> str:
    from needlepoint.checkpoints.reading.files import regular

    if regular(path).stat().st_size > _LARGEST_TEXT:
        raise InvalidParameter(f"{path} has more than {_LARGEST_TEXT:,} bytes; some ten thousand words are enough.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidParameter(f"{path} is not UTF-8 text.") from None


def probe(
    path: Where,
    data: Annotated[Path | None, typer.Option(help="Your own sentences: a CSV file with text, label (and set)")] = None,
    sentences: Annotated[int, typer.Option(help="At most so many of each set; 0 is all", min=0)] = 1200,
    seed: Seed = 0,
    count: HeadCount = None,
    follow_links: Follow = False,
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """How well a label that depends on one word can be read from the hidden states of every layer."""
    check_target(plot)
    import needlepoint as ndl

    checkpoint = _opened(path, count, None, None, follow_links)
    report = ndl.probe(checkpoint, data=data, sentences=sentences or None, seed=seed)
    if plot is not None:
        from needlepoint.checkpoints.probing.probe import PUBLISHED
        from needlepoint.plotting.checkpoints.probes import probe_bars

        probe_bars(report, None if report.own_data else PUBLISHED).savefig(plot, dpi=160)
    if as_json:
        print(dumps(report))
        return
    from needlepoint.checkpoints.probing.probe import PUBLISHED

    print(repr(checkpoint))
    names = list(dict.fromkeys(r.set for r in report.rows))
    for pooling in dict.fromkeys(r.pooling for r in report.rows):
        print(f"\npooling: {pooling}\nlayer  " + "  ".join(f"{name:>24}" for name in names))
        for layer in range(len(checkpoint.layers) + 1):
            row = [report.row(layer, pooling, name) for name in names]
            cells = (f"{r.share:.3f} ({r.low:.3f} to {r.high:.3f})" for r in row)
            print(f"{layer:>5}  " + "  ".join(f"{cell:>24}" for cell in cells))
        for name, bar in report.bars(pooling).items():
            other = f"   BERT, published: {PUBLISHED[name]:.2f}" if pooling == "first" and not report.own_data else ""
            print(f"  {name:<25} {bar.share:.3f} ({bar.low:.3f} to {bar.high:.3f}){other}")
    print("\n" + "\n".join(report.notes))
    if plot is not None:
        print(plot)
