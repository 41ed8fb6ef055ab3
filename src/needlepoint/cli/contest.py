"""The command `contest`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.cli.options import (
    NOT_CONVERGED,
    AsJson,
    Changes,
    Learner,
    Picture,
    Repeats,
    Samples,
    Seed,
    SpecFile,
    Task,
    Tol,
    check_target,
    progress_bar,
    read_specs,
)
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import dumps

if TYPE_CHECKING:
    from needlepoint.core.specs import Spec

Models = Annotated[
    list[str] | None,
    typer.Option(help='A model: "KeyValueAttention(Softmax())", or None for Bayes (repeat the option for each)'),
]
Alphas = Annotated[list[float] | None, typer.Option("--alpha", help="Take this alpha instead (repeatable: curves)")]
Common = Annotated[bool, typer.Option("--common", help="One best penalty on key and value instead of two")]
Dimension = Annotated[int | None, typer.Option("--d", help="Train every model too, at this dimension")]


def contest(
    models: Models = None,
    task: Task = None,
    learner: Learner = None,
    alpha: Alphas = None,
    common: Common = False,
    d: Dimension = None,
    repeats: Repeats = 16,
    samples: Samples = 20_000,
    spec: SpecFile = None,
    changes: Changes = None,
    seed: Seed = 0,
    tol: Tol = None,
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Which model is better: each at its own best penalties, with a verdict."""
    check_target(plot)
    asked, _, how = read_specs(task, None, learner, spec, changes)
    contestants = [_model(text) for text in models or []]
    import needlepoint as ndl

    learners = [how.replace(alpha=a) for a in alpha] if alpha else [how]
    options: dict[str, Any] = {"d": d, "repeats": repeats, "samples": samples, "seed": seed, "tol": tol}
    with progress_bar("contest") as update:
        found = ndl.contest(asked, contestants, learners, common=True if common else None, progress=update, **options)
    print(dumps(found.to_json()) if as_json else found)
    if plot is not None:
        from needlepoint.plotting.contest import plot_contest

        plot_contest(found, path=plot)
        if not as_json:
            print(plot)
    if not all(entry.prediction.ok for entry in found.entries):
        raise typer.Exit(NOT_CONVERGED)


def _model(text: str) -> Spec | None:
    from needlepoint.core.specs import Spec
    from needlepoint.core.text.parsing import parse_value

    value = None if text.strip() == "None" else parse_value(text)
    if value is not None and (not isinstance(value, Spec) or value.family != "model"):
        raise InvalidParameter(f'--models {text!r}: write a model such as "KeyValueAttention(Softmax())", or None.')
    return value
