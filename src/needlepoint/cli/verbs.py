"""The commands `predict`, `simulate` and `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.cli.options import (
    NOT_CONVERGED,
    Activations,
    Ansatz,
    AsJson,
    At,
    Changes,
    Learner,
    Model,
    Picture,
    Repeats,
    Samples,
    Seed,
    SpecFile,
    Starts,
    Task,
    Tol,
    check_target,
    read_specs,
)
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import dumps

if TYPE_CHECKING:
    from needlepoint.core.results import Measurement, Result


def _show(result: Result, plot: Path | None, as_json: bool) -> None:
    print(dumps(result.to_json()) if as_json else result)
    _draw(result, (), plot, as_json)
    if not result.ok:
        raise typer.Exit(NOT_CONVERGED)


def _draw(result: Result, measurements: Sequence[Measurement], path: Path | None, as_json: bool) -> None:
    """Write the picture; called after the numbers are printed, so that they are not lost if this fails."""
    if path is None:
        return
    from needlepoint.plotting.results import plot_result

    plot_result(result, measurements, path=path)
    if not as_json:
        print(path)


def predict(
    task: Task = None,
    model: Model = None,
    learner: Learner = None,
    spec: SpecFile = None,
    changes: Changes = None,
    activations: Activations = None,
    seed: Seed = 0,
    tol: Tol = None,
    ansatz: Ansatz = "rs",
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """The answer of the theory, with its numerical error."""
    check_target(plot)
    specs = read_specs(task, model, learner, spec, changes, activations=activations)
    import needlepoint as ndl

    result = ndl.predict(*specs, seed=seed, tol=tol, ansatz=ansatz, throw=False, progress=True)
    _show(result, plot, as_json)


def simulate(
    d: Annotated[int, typer.Option(help="Dimension of a token")],
    task: Task = None,
    model: Model = None,
    learner: Learner = None,
    spec: SpecFile = None,
    changes: Changes = None,
    activations: Activations = None,
    repeats: Repeats = 16,
    samples: Samples = 20_000,
    starts: Starts = 1,
    overlaps: At = None,
    seed: Seed = 0,
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """The same answer by sampling and training with d-dimensional vectors."""
    check_target(plot)
    specs = read_specs(task, model, learner, spec, changes, activations=activations)
    import needlepoint as ndl

    options: dict[str, Any] = {"repeats": repeats, "samples": samples, "starts": starts, "seed": seed}
    result = ndl.simulate(*specs, d=d, overlaps=_overlaps(overlaps), progress=True, **options)
    _show(result, plot, as_json)


def compare(
    d: Annotated[list[int], typer.Option(help="Dimension of a token (repeatable)")],
    task: Task = None,
    model: Model = None,
    learner: Learner = None,
    spec: SpecFile = None,
    changes: Changes = None,
    activations: Activations = None,
    repeats: Repeats = 16,
    samples: Samples = 20_000,
    starts: Starts = 1,
    seed: Seed = 0,
    tol: Tol = None,
    ansatz: Ansatz = "rs",
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Theory and simulation side by side, with z-scores."""
    check_target(plot)
    specs = read_specs(task, model, learner, spec, changes, activations=activations)
    import needlepoint as ndl

    prediction = ndl.predict(*specs, seed=seed, tol=tol, ansatz=ansatz, throw=False, progress=True)
    if not prediction.status.ok:
        print(dumps({"prediction": prediction, "measurements": [], "comparison": None}) if as_json else prediction)
        _draw(prediction, (), plot, as_json)
        # a known infimum is an answer (exit code 0), but no weights attain it, so there is nothing to simulate
        raise typer.Exit(0 if prediction.ok else NOT_CONVERGED)
    resolved = prediction.resolved or specs
    found = prediction.overlaps if type(specs[2]).__name__ == "Population" else None
    chosen = found if isinstance(found, ndl.Overlaps) else None
    options: dict[str, Any] = {"repeats": repeats, "samples": samples, "starts": starts, "seed": seed + 1}
    measurements = [ndl.simulate(*resolved, d=size, overlaps=chosen, progress=True, **options) for size in d]
    comparison = ndl.compare(prediction, measurements, progress=True)
    if as_json:
        print(dumps({"prediction": prediction, "measurements": measurements, "comparison": comparison}))
    else:
        print(comparison)
    _draw(prediction, measurements, plot, as_json)
    if not all(m.status.ok for m in measurements):
        raise typer.Exit(NOT_CONVERGED)


def _overlaps(text: str | None) -> Any:
    from needlepoint.core.overlaps import Overlaps
    from needlepoint.core.text.parsing import parse_value

    if text is None:
        return None
    value = parse_value(text)
    if not isinstance(value, Overlaps):
        raise InvalidParameter(f'--overlaps {text!r}: write it as "Overlaps(key=1, value=1)".')
    return value
