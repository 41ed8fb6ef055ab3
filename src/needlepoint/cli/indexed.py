"""The commands of the attention-indexed model: `thresholds` and `spectrum`."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.cli.options import (
    NOT_CONVERGED,
    AsJson,
    Picture,
    Seed,
    SpecFile,
    check_target,
    progress_bar,
    read_specs,
)
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import dumps, plain

if TYPE_CHECKING:
    from needlepoint.core.answers.spectra import Spectrum
    from needlepoint.core.results import Prediction

MODEL = "TiedAttention()"
IndexedTask = Annotated[
    str | None, typer.Option(help='As in Python: "AttentionIndexed(2, Wishart(0.5), noise_var=0.5)"')
]
IndexedModel = Annotated[str | None, typer.Option(help='"TiedAttention()" or "DirectAttention()"', show_default=MODEL)]
IndexedChanges = Annotated[
    list[str] | None, typer.Option("--set", help="Change a field: task.noise_var=0.1 (repeatable)")
]
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

_SENTENCES = {
    "interpolation": (
        "up to this many sequences over d squared, all labels are fitted as the penalty vanishes.",
        "however many sequences there are, all labels are fitted as the penalty vanishes.",
    ),
    "recovery": (
        "from this many on, the model finds the target as the penalty vanishes.",
        "with noisy labels, no number of sequences lets the model find the target exactly.",
    ),
    "bayes_recovery": (
        "from this many on, the target can be found at all.",
        "with noisy labels, no number of sequences lets anything find the target exactly.",
    ),
}


def thresholds(
    task: IndexedTask = None,
    model: IndexedModel = None,
    spec: SpecFile = None,
    changes: IndexedChanges = None,
    as_json: AsJson = False,
) -> None:
    """How many sequences are too many to fit, and how many it takes to find the target."""
    asked, attention, _ = read_specs(task, model, None, spec, changes, needed=("task",))
    import needlepoint as ndl

    attention = attention or ndl.TiedAttention()
    with progress_bar("thresholds"):
        found = ndl.thresholds(asked, attention)
    values = {name: getattr(found, name) for name in _SENTENCES}
    said = {name: _SENTENCES[name][math.isinf(float(value))] for name, value in values.items()}
    if as_json:
        numbers = {name: value.value for name, value in values.items()}
        errors = {name: value.error for name, value in values.items()}
        more = {"errors": errors, "sentences": said, "notes": list(found.notes)}
        print(dumps({"task": asked, "model": attention, **numbers, **more}))
        return
    print(f"Thresholds: {asked!r}, {attention!r}")
    for name, value in values.items():
        shown = "infinite" if math.isinf(float(value)) else str(value)
        print(f"  {name:<15} {shown:<23} {said[name]}")
    for note in found.notes:
        print(f"  {'note':<15} {note}")


def spectrum(
    task: IndexedTask = None,
    model: IndexedModel = None,
    learner: Annotated[
        str | None, typer.Option(help='"Ridge(alpha=0.5, lam=0.05)" or, without a model, "BayesOptimal(alpha=0.5)"')
    ] = None,
    spec: SpecFile = None,
    changes: IndexedChanges = None,
    d: Annotated[int | None, typer.Option(help="Also what d sorted eigenvalues are compared with", min=1)] = None,
    plot: Picture = None,
    table: Annotated[Path | None, typer.Option("--csv", help="Write the density: a .csv file of x, density")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The predicted spectrum of the learned query-key matrix: zeros, edges, outliers and quantiles."""
    check_target(plot)
    check_target(table, (".csv",))
    asked, attention, chosen = read_specs(task, model, learner, spec, changes)
    import needlepoint as ndl

    if not isinstance(asked, ndl.AttentionIndexed):
        raise InvalidParameter(
            f"{type(asked).__name__} has no spectrum (no matrix is learned); AttentionIndexed has one."
        )
    if attention is None and not isinstance(chosen, ndl.BayesOptimal):
        attention = ndl.TiedAttention()
    prediction = ndl.predict(asked, attention, chosen, seed=seed, throw=False, progress=True)
    law = prediction.spectrum
    if law is None:
        raise InvalidParameter(
            f"{chosen!r} knows the target exactly, and what it learns has its eigenvalues; give a smaller alpha."
        )
    expected = None if d is None else law.quantiles(d)
    if as_json:
        head = prediction.to_json()
        kept = {
            k: head[k] for k in ("id", "task", "model", "learner", "resolved", "status", "status_sentence", "notes")
        }
        print(dumps({**kept, "spectrum": law, "quantiles": _quantiles(law), "d": d, "eigenvalues": plain(expected)}))
    else:
        print("\n".join(_lines(prediction, law, expected)))
    if table is not None:
        with table.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([("x", "density"), *zip(law.x.tolist(), law.density.tolist(), strict=True)])
    if plot is not None:
        from needlepoint.plotting.spectra import SpectrumPanel, spectrum_panels

        panel = SpectrumPanel(repr(chosen), law, target=asked.target)
        spectrum_panels([panel], width=5.2, height=3.4).savefig(plot, dpi=160)
    for path in (table, plot):
        if path is not None and not as_json:
            print(path)
    if not prediction.ok:
        raise typer.Exit(NOT_CONVERGED)


def _quantiles(law: Spectrum) -> list[dict[str, float]]:
    import numpy as np

    values = np.interp(LEVELS, law.levels, law.values)
    return [{"level": level, "value": float(value)} for level, value in zip(LEVELS, values, strict=True)]


def _lines(prediction: Prediction, law: Spectrum, expected: Any) -> list[str]:
    shown = [
        ("status", f"{prediction.status.name}: {prediction.status.sentence}"),
        *(("note", note) for note in prediction.notes),
        ("atom", f"{law.atom:.8g} of the eigenvalues are exactly zero"),
        ("edges", ", ".join(f"{a:.6g} to {b:.6g}" for a, b in law.edges) or "none: every eigenvalue is zero"),
        ("outliers", ", ".join(f"{x:.6g}" for x in law.outliers) or "none"),
        ("quantiles", ", ".join(f"{q['value']:.6g} at {100 * q['level']:g} %" for q in _quantiles(law))),
    ]
    head = f"Spectrum: {prediction.task!r}, {prediction.model!r}, {prediction.learner!r}"
    lines = [head, *(f"  {name:<13} {text}" for name, text in shown)]
    if expected is not None:
        lines += [f"  eigenvalues   {len(expected)} in rising order, as the law has them:"]
        lines += [f"  {i:>13} {x:.10g}" for i, x in enumerate(expected, start=1)]
    return lines
