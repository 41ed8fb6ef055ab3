"""The command line: `needlepoint predict | simulate | compare | thresholds | spectrum | sweep | study | ...`.

Nothing heavy is imported before a command needs it: `--help` answers without jax or matplotlib.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.cli.indexed import spectrum, thresholds
from needlepoint.cli.interrupts import INTERRUPTED, interruptible
from needlepoint.cli.options import (
    BAD_INPUT,
    NOT_CONVERGED,
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
    Task,
    Tol,
    check_target,
    progress_bar,
    read_specs,
)
from needlepoint.cli.studies import Address, How, Memory, Workers, study_app, sweep
from needlepoint.core.errors import InvalidParameter, NeedlepointError, NotConverged, one_line
from needlepoint.core.text.jsonio import dumps

if TYPE_CHECKING:
    from needlepoint.core.answers.comparison import Row
    from needlepoint.core.results import Measurement, Result
    from needlepoint.papers.runner import Reproduced

_MEMORY = "this needs more memory than there is; take a smaller d, length, batch or number of runs."

app = typer.Typer(
    name="needlepoint",
    help="What attention layers learn when dimension and data are large, checked against training at finite size.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; errors of the user are one sentence and exit code 2."""
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        # compiled code may still run in other threads, and does not survive the tidying up of the interpreter
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(args: list[str]) -> int:
    try:
        code = app(args, prog_name="needlepoint", standalone_mode=False)
    except NotConverged as error:
        return _fail(one_line(error), NOT_CONVERGED)
    except NeedlepointError as error:
        return _fail(one_line(error), BAD_INPUT)
    except KeyboardInterrupt:
        return _fail("interrupted.", INTERRUPTED)
    except MemoryError:
        return _fail(_MEMORY, BAD_INPUT)
    except OSError as error:
        return _fail(f"cannot read or write {error.filename or 'a file'}: {error.strerror or error}.", BAD_INPUT)
    except Exception as error:
        # what the option parser raises has a sentence ready; anything else is a defect and keeps its traceback
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # pyright: ignore[reportAttributeAccessIssue]
            return BAD_INPUT
        if "RESOURCE_EXHAUSTED" in str(error):
            return _fail(_MEMORY, BAD_INPUT)
        if hasattr(error, "format_message"):
            return _fail(" ".join(error.format_message().split()), BAD_INPUT)  # pyright: ignore[reportAttributeAccessIssue]
        raise
    return code if isinstance(code, int) else 0


def _fail(sentence: str, code: int) -> int:
    print(f"needlepoint: {sentence}", file=sys.stderr)
    return code


def _show(result: Result, plot: Path | None, as_json: bool) -> None:
    print(dumps(result.to_json()) if as_json else result)
    _draw(result, (), plot, as_json)
    if not result.ok:
        raise typer.Exit(NOT_CONVERGED)


def _draw(result: Result, measurements: Sequence[Measurement], path: Path | None, as_json: bool) -> None:
    """The picture, after the numbers are out: these are not lost if it cannot be written."""
    if path is None:
        return
    from needlepoint.plotting.results import plot_result

    plot_result(result, measurements, path=path)
    if not as_json:
        print(path)


@app.command()
def predict(
    task: Task = None,
    model: Model = None,
    learner: Learner = None,
    spec: SpecFile = None,
    changes: Changes = None,
    seed: Seed = 0,
    tol: Tol = None,
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """The answer of the theory, with its numerical error."""
    check_target(plot)
    specs = read_specs(task, model, learner, spec, changes)
    import needlepoint as ndl

    with progress_bar("predict") as update:
        result = ndl.predict(*specs, seed=seed, tol=tol, throw=False, progress=update)
    _show(result, plot, as_json)


@app.command()
def simulate(
    d: Annotated[int, typer.Option(help="Dimension of a token")],
    task: Task = None,
    model: Model = None,
    learner: Learner = None,
    spec: SpecFile = None,
    changes: Changes = None,
    repeats: Repeats = 16,
    samples: Samples = 20_000,
    overlaps: At = None,
    seed: Seed = 0,
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """The same answer by sampling and training with d-dimensional vectors."""
    check_target(plot)
    specs = read_specs(task, model, learner, spec, changes)
    import needlepoint as ndl

    options: dict[str, Any] = {"repeats": repeats, "samples": samples, "seed": seed, "overlaps": _overlaps(overlaps)}
    with progress_bar("simulate") as update:
        result = ndl.simulate(*specs, d=d, progress=update, **options)
    _show(result, plot, as_json)


@app.command()
def compare(
    d: Annotated[list[int], typer.Option(help="Dimension of a token (repeatable)")],
    task: Task = None,
    model: Model = None,
    learner: Learner = None,
    spec: SpecFile = None,
    changes: Changes = None,
    repeats: Repeats = 16,
    samples: Samples = 20_000,
    seed: Seed = 0,
    tol: Tol = None,
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Theory and simulation side by side, with z-scores."""
    check_target(plot)
    specs = read_specs(task, model, learner, spec, changes)
    import needlepoint as ndl

    with progress_bar("predict") as update:
        prediction = ndl.predict(*specs, seed=seed, tol=tol, throw=False, progress=update)
    if not prediction.status.ok:
        print(dumps({"prediction": prediction, "measurements": [], "comparison": None}) if as_json else prediction)
        _draw(prediction, (), plot, as_json)
        raise typer.Exit(0 if prediction.ok else NOT_CONVERGED)  # no weights attain an infimum
    resolved = prediction.resolved or specs
    found = prediction.overlaps if type(specs[2]).__name__ == "Population" else None
    chosen = found if isinstance(found, ndl.Overlaps) else None
    measurements = []
    for size in d:
        with progress_bar(f"simulate d={size}") as update:
            measurements.append(
                ndl.simulate(
                    *resolved,
                    d=size,
                    repeats=repeats,
                    samples=samples,
                    seed=seed + 1,
                    overlaps=chosen,
                    progress=update,
                )
            )
    comparison = ndl.compare(prediction, measurements)
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


@app.command()
def figures(as_json: AsJson = False) -> None:
    """The figures that `reproduce` draws."""
    from needlepoint.papers.figures import figures as registered

    rows = [{"id": f.id, "paper": f.paper, "title": f.title, "caption": f.caption} for f in registered().values()]
    if as_json:
        print(dumps(rows))
        return
    width = max(len(r["id"]) for r in rows)
    for r in rows:
        print(f"{r['id']:<{width}}  {r['title']}  (arXiv {r['paper']})")


def _agreement(rows: Sequence[Row]) -> str:
    """What a figure's comparisons come to, in a line; a z that is not a number is the worst."""
    firm = [row for row in rows if not row.flagged]
    others = f"; {len(rows) - len(firm)} beside flagged predictions" if len(rows) > len(firm) else ""
    if not firm:
        return others
    worst = max(firm, key=lambda row: math.inf if math.isnan(row.z) else abs(row.z))
    kind = "" if worst.exact else f" (of a limit, at d = {worst.d})"
    return f", {len(firm)} comparisons, largest |z| {abs(worst.z):.2f}{kind}{others}"


@app.command()
def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Figures to draw; none is all")] = None,
    full: Annotated[bool, typer.Option("--full/--quick", help="The papers' sizes, or reduced ones")] = False,
    out: Annotated[Path, typer.Option(help="Folder for pictures, numbers and the report")] = Path("out"),
    executor: How = "serial",
    workers: Workers = None,
    memory: Memory = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Draw figures with training over theory, and write report.html and agreement.csv.

    Finished points are kept in points.sqlite in the folder: an interrupted run goes on where it was, and the report
    covers everything that is there, whichever run has computed it.
    """
    from needlepoint.papers.figures import figure
    from needlepoint.papers.figures import figures as registered

    wanted = [figure(name) for name in dict.fromkeys(ids or registered())]
    from needlepoint.papers.folder import everything, remember, strangers
    from needlepoint.papers.runner import reproduce as reproduce_figure
    from needlepoint.papers.runner import writable
    from needlepoint.studies.execution.executors import executor_named, started
    from needlepoint.studies.storage.store import Store

    writable(out)
    size = "full" if full else "quick"
    every = [*wanted, *(f for f in registered().values() if f not in wanted)]
    done = []
    chosen = executor_named(executor, workers=workers, memory=memory, address=address)
    kept = out / "points.sqlite"
    with interruptible(kept) as check, Store(kept) as store, started(chosen):
        for i, one in enumerate(wanted):
            head = f"[{i + 1}/{len(wanted)}] {one.id}"
            with progress_bar(head) as update:

                def say(text: str, fraction: float, head: str = head, update: Any = update) -> None:
                    update(fraction, f"{head}: {text}")
                    check()

                done.append(reproduce_figure(one, size, out, say, store, chosen))
            remember(store, done[-1])
            # now, and not at the end only: whatever stops the rest, what is finished is in the report
            _write_pages(out, everything(store, every, out, done, thorough=False))
            print(f"{head}: {done[-1].seconds:.1f} s{_agreement(done[-1].agreement)}", file=sys.stderr)
            for trouble in done[-1].troubles:
                print(f"  {trouble}", file=sys.stderr)
        _write_pages(out, everything(store, every, out, done), strangers(store, every))
    files = [str(f) for r in done for f in r.files] + [str(out / "agreement.csv"), str(out / "report.html")]
    if as_json:
        rows = [{"figure": r.figure.id, **vars(row)} for r in done for row in r.agreement]
        print(
            dumps({"size": size, "files": files, "agreement": rows, "troubles": [t for r in done for t in r.troubles]})
        )
    else:
        print("\n".join(files))
    if any(r.troubles for r in done):
        raise typer.Exit(NOT_CONVERGED)


def _write_pages(out: Path, shown: Sequence[Reproduced], others: int = 0) -> None:
    """report.html and agreement.csv of everything that the folder holds."""
    from needlepoint import __version__  # pyright: ignore[reportAttributeAccessIssue]
    from needlepoint.papers.report import write_report
    from needlepoint.papers.runner import write_agreement

    write_agreement(out / "agreement.csv", shown)
    write_report(out / "report.html", shown, __version__, others)


@app.command()
def cite(
    what: Annotated[str | None, typer.Argument(help="A paper's arXiv number; none is all")] = None,
    as_json: AsJson = False,
) -> None:
    """BibTeX of this library and the papers behind it."""
    from needlepoint.papers.citations import cite as citation

    text = citation(what)
    print(dumps({"bibtex": text}) if as_json else text)


app.command()(thresholds)
app.command()(spectrum)
app.command()(sweep)
app.add_typer(study_app, name="study")
