"""The command line: `needlepoint predict | simulate | compare | sweep | study | reproduce | figures | cite`.

Nothing heavy is imported before a command needs it: `--help` answers without jax or matplotlib.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.cli_studies import Address, How, Memory, Workers, interruptible, study_app, sweep
from needlepoint.core.errors import InvalidParameter, NeedlepointError, NotConverged, one_line
from needlepoint.core.jsonio import dumps

if TYPE_CHECKING:
    from needlepoint.core.results import Result
    from needlepoint.core.specs import Spec

BAD_INPUT, NOT_CONVERGED = 2, 3
_MEMORY = "this needs more memory than there is; take a smaller d, length, batch or number of runs."

app = typer.Typer(
    name="needlepoint",
    help="What attention layers learn when dimension and data are large, checked against training at finite size.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Task = Annotated[str | None, typer.Option(help='As in Python: "SpikedSLR(tokens=10, snr=200, relevant_std=sqrt(0.5))"')]
Model = Annotated[str | None, typer.Option(help='"KeyValueAttention(Erf(scale=0.1), unit_norm=True)"; none for Bayes')]
Learner = Annotated[str | None, typer.Option(help='"Population()", "BayesOptimal(d=20)", "ProjectedDescent(...)"')]
SpecFile = Annotated[Path | None, typer.Option("--spec", help="TOML or JSON file with task, model, learner")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="Change a field: learner.lr=0.001 (repeatable)")]
Seed = Annotated[int, typer.Option(help="Seed of what is random", min=0, max=2**63 - 1)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output")]
Repeats = Annotated[int, typer.Option(help="Independent repeats")]
Samples = Annotated[int, typer.Option(help="Test sequences a repeat")]
At = Annotated[str | None, typer.Option("--overlaps", help='Weights to measure at: "Overlaps(key=1, value=1)"')]


def main() -> None:
    """Run the command line; errors of the user are one sentence and exit code 2."""
    sys.exit(run(sys.argv[1:]))


def run(args: list[str]) -> int:
    try:
        code = app(args, prog_name="needlepoint", standalone_mode=False)
    except NotConverged as error:
        return _fail(one_line(error), NOT_CONVERGED)
    except NeedlepointError as error:
        return _fail(one_line(error), BAD_INPUT)
    except KeyboardInterrupt:
        return _fail("interrupted.", 130)
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


def _specs(
    task: str | None, model: str | None, learner: str | None, spec: Path | None, changes: list[str] | None
) -> tuple[Spec, Spec | None, Spec]:
    import needlepoint.vocabulary  # noqa: F401
    from needlepoint.core.parsing import combine, read_spec_file

    document = read_spec_file(spec) if spec is not None else {}
    parts = combine(document, {"task": task, "model": model, "learner": learner}, changes or [])
    for name in ("task", "learner"):
        if parts[name] is None:
            raise InvalidParameter(f"--{name} is missing (or a --spec file that has it).")
    return parts["task"], parts["model"], parts["learner"]  # pyright: ignore[reportReturnType]


@contextmanager
def _progress(text: str) -> Iterator[Any]:
    """A bar on standard error where that is a terminal; a function from the fraction done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        row = bar.add_task(text, total=1.0)

        def update(fraction: float, description: str | None = None) -> None:
            bar.update(row, completed=fraction, description=description or text)

        yield update


def _show(result: Result, as_json: bool) -> None:
    print(dumps(result.to_json()) if as_json else result)
    if not result.status.ok:
        raise typer.Exit(NOT_CONVERGED)


@app.command()
def predict(
    task: Task = None,
    model: Model = None,
    learner: Learner = None,
    spec: SpecFile = None,
    changes: Changes = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The answer of the theory, with its numerical error."""
    specs = _specs(task, model, learner, spec, changes)
    import needlepoint as ndl

    with _progress("predict") as update:
        result = ndl.predict(*specs, seed=seed, throw=False, progress=update)
    _show(result, as_json)


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
    as_json: AsJson = False,
) -> None:
    """The same answer by sampling and training with d-dimensional vectors."""
    specs = _specs(task, model, learner, spec, changes)
    import needlepoint as ndl

    options: dict[str, Any] = {"repeats": repeats, "samples": samples, "seed": seed, "overlaps": _overlaps(overlaps)}
    with _progress("simulate") as update:
        result = ndl.simulate(*specs, d=d, progress=update, **options)
    _show(result, as_json)


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
    as_json: AsJson = False,
) -> None:
    """Theory and simulation side by side, with z-scores."""
    specs = _specs(task, model, learner, spec, changes)
    import needlepoint as ndl

    with _progress("predict") as update:
        prediction = ndl.predict(*specs, seed=seed, throw=False, progress=update)
    if not prediction.status.ok:
        print(dumps({"prediction": prediction, "measurements": [], "comparison": None}) if as_json else prediction)
        raise typer.Exit(NOT_CONVERGED)
    resolved = prediction.resolved or specs
    found = prediction.overlaps if type(specs[2]).__name__ == "Population" else None
    chosen = found if isinstance(found, ndl.Overlaps) else None
    measurements = []
    for size in d:
        with _progress(f"simulate d={size}") as update:
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
    if not all(m.status.ok for m in measurements):
        raise typer.Exit(NOT_CONVERGED)


def _overlaps(text: str | None) -> Any:
    from needlepoint.core.overlaps import Overlaps
    from needlepoint.core.parsing import parse_value

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

    Finished points are kept in points.sqlite in the folder: an interrupted run goes on where it was.
    """
    from needlepoint.papers.figures import figure
    from needlepoint.papers.figures import figures as registered

    wanted = [figure(name) for name in dict.fromkeys(ids or registered())]
    from needlepoint.papers.report import write_report
    from needlepoint.papers.runner import reproduce as reproduce_figure
    from needlepoint.papers.runner import writable, write_agreement
    from needlepoint.studies.executors import executor_named, started
    from needlepoint.studies.store import Store

    writable(out)
    size = "full" if full else "quick"
    done = []
    chosen = executor_named(executor, workers=workers, memory=memory, address=address)
    with interruptible(out / "points.sqlite"), Store(out / "points.sqlite") as store, started(chosen):
        for i, one in enumerate(wanted):
            head = f"[{i + 1}/{len(wanted)}] {one.id}"
            with _progress(head) as update:

                def say(text: str, fraction: float, head: str = head, update: Any = update) -> None:
                    update(fraction, f"{head}: {text}")

                done.append(reproduce_figure(one, size, out, say, store, chosen))
            worst = max((abs(r.z) for r in done[-1].agreement), default=None)
            tail = "" if worst is None else f", {len(done[-1].agreement)} comparisons, largest |z| {worst:.2f}"
            print(f"{head}: {done[-1].seconds:.1f} s{tail}", file=sys.stderr)
            for trouble in done[-1].troubles:
                print(f"  {trouble}", file=sys.stderr)
    from needlepoint import __version__  # pyright: ignore[reportAttributeAccessIssue]

    write_agreement(out / "agreement.csv", done)
    write_report(out / "report.html", done, size, __version__)
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


@app.command()
def cite(
    what: Annotated[str | None, typer.Argument(help="A paper's arXiv number; none is all")] = None,
    as_json: AsJson = False,
) -> None:
    """BibTeX of this library and the papers behind it."""
    from needlepoint.papers.citations import cite as citation

    text = citation(what)
    print(dumps({"bibtex": text}) if as_json else text)


app.command()(sweep)
app.add_typer(study_app, name="study")

if __name__ == "__main__":
    main()
