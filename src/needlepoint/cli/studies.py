"""The commands `sweep` and `study`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.cli.examples import below
from needlepoint.cli.interrupts import interruptible
from needlepoint.cli.options import (
    NOT_CONVERGED,
    PICTURES,
    Activations,
    Address,
    AsJson,
    Changes,
    How,
    Memory,
    Picture,
    StoreFile,
    Workers,
    check_target,
    run_activations,
)
from needlepoint.core.errors import InvalidParameter, NeedlepointError, one_line
from needlepoint.core.text.jsonio import dumps

if TYPE_CHECKING:
    from needlepoint.studies.execution.running import Tally
    from needlepoint.studies.study import Study

study_app = typer.Typer(help="Look at stored studies.", no_args_is_help=True, rich_markup_mode=None)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="STUDY", help="TOML or JSON file with a question and [over]")],
    executor: How = "serial",
    workers: Workers = None,
    memory: Memory = None,
    address: Address = None,
    store: Annotated[Path | None, typer.Option(help="Where points are kept; the study's name with .sqlite")] = None,
    changes: Changes = None,
    activations: Activations = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try points again that failed")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, however many points there are")] = False,
    plot: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Theory and simulation over a grid or a list, kept in one file; run it again to go on."""
    from needlepoint.studies.axes import LIMIT
    from needlepoint.studies.execution.executors import executor_named
    from needlepoint.studies.files import read_study
    from needlepoint.studies.storage.store import Store
    from needlepoint.studies.study import Study
    from needlepoint.studies.sweeps import Sweep

    run_activations(activations)
    arguments, drawing = read_study(file, changes or [])
    check_target(plot)
    definition = Sweep.of(**arguments, limit=float("inf"), thorough=False)
    _confirm(len(definition), LIMIT, yes)
    definition.check()
    chosen = executor_named(executor, workers=workers, memory=memory, address=address)
    path = store or file.with_suffix(".sqlite")
    with Study(definition, Store(path)) as study:
        _say_what_is_there(study, path)
        study.store.put_meta("study", definition.to_json())
        study.store.put_meta("plot", drawing)
        with interruptible(path) as check:
            tally = study.run(chosen, retry=retry, report=lambda _: check(), progress=True)
        if plot is not None:
            _draw(study, drawing, plot)
        _summary(study, path, tally, plot, as_json)


def _say_what_is_there(study: Study, path: Path) -> None:
    """Tell the user if the store holds another study, a damaged one, or points of another version of the numbers."""
    from needlepoint.studies.storage.store import StoreError

    try:
        before = study.store.meta("study")
        base = None if before is None else before["base"]
    except (StoreError, TypeError, KeyError):
        print(f"needlepoint: {path} had a damaged definition of its study, which is replaced.", file=sys.stderr)
    else:
        if base is not None and base != study.definition.to_json()["base"]:
            print(f"needlepoint: {path} was another study's; its points stay there.", file=sys.stderr)
    older = _older(study.store.counts())
    if older:
        print(
            f"needlepoint: {path} has {older} points of another version of the numbers; this study's are computed "
            f"again, and `needlepoint study prune {path}` removes the old ones.",
            file=sys.stderr,
        )


def _older(counts: dict[tuple[str, str], int]) -> int:
    return sum(n for (state, _), n in counts.items() if state == "older")


def _confirm(points: int, limit: int, yes: bool) -> None:
    if points <= limit or yes:
        return
    question = f"{points:,} points are more than {limit:,}"
    if not sys.stdin.isatty():
        raise InvalidParameter(f"{question}; if that is meant, say --yes.")
    if not typer.confirm(f"{question}. Go on?", err=True):
        raise InvalidParameter("nothing was computed.")


def _summary(study: Study, path: Path, tally: Tally, plot: Path | None, as_json: bool) -> None:
    failures = study.failures() if tally.failed else []
    worst = study.worst if study.definition.also else None
    if as_json:
        shown = {k: getattr(tally, k) for k in ("total", "done", "reused", "failed", "flagged")}
        where = [{"at": {k: _plain(v) for k, v in at.items()}, "message": why} for at, why in failures]
        print(dumps({"store": str(path), **shown, "largest_z": worst, "failures": where}))
    else:
        print(study)
        if worst is not None:
            print(f"  largest |z|   {worst:.2f}")
        for at, why in failures[:5]:
            print(f"  failed        {at}: {why}")
        print("\n".join(str(p) for p in (path, plot) if p is not None))
    if tally.failed or tally.flagged:
        raise typer.Exit(NOT_CONVERGED)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str)) else repr(value)


def _draw(study: Study, drawing: dict[str, Any], path: Path) -> None:
    from needlepoint.plotting.studies.pictures import plot

    plot(study, **drawing, path=path)


@study_app.command("ls", epilog=below("study ls"))
def ls(
    folder: Annotated[Path, typer.Argument(help="Where to look for stores")] = Path(),
    as_json: AsJson = False,
) -> None:
    """The stores in a folder."""
    from needlepoint.studies.storage.store import Store

    if not folder.is_dir():
        raise InvalidParameter(f"there is no folder {folder}.")
    rows = []
    for path in sorted(folder.glob("*.sqlite")):
        row: dict[str, Any] = {"file": str(path), "bytes": path.stat().st_size}
        try:
            with Store(path, create=False, readonly=True) as store:
                counts = store.counts()
                for kind in ("done", "failed", "older", "damaged"):
                    row[kind] = sum(n for (state, _), n in counts.items() if state == kind)
                document = store.meta("study")
                row["over"] = None if document is None else _paths(document, path)
        except NeedlepointError as error:
            row["trouble"] = one_line(error)
        rows.append(row)
    if as_json:
        print(dumps(rows))
        return
    for row in rows:
        over = "over " + ", ".join(row["over"]) if row.get("over") else "points of figures"
        held = [f"{row.get('done')} done", f"{row.get('failed')} failed"]
        held += [f"{row['older']} of another version of the numbers"] if row.get("older") else []
        held += [f"{row['damaged']} damaged"] if row.get("damaged") else []
        print(f"{row['file']}: " + row.get("trouble", ", ".join([*held, over])))


def _paths(document: Any, path: Path) -> list[str]:
    """Return the swept paths of a study from its stored definition."""
    from needlepoint.studies.storage.store import StoreError

    paths = document.get("paths") if isinstance(document, dict) else None
    if not isinstance(paths, list) or not all(isinstance(p, str) for p in paths):
        raise StoreError(f"{path} is damaged: the definition of its study cannot be read.")
    return paths


@study_app.command("show", epilog=below("study show"))
def show(path: StoreFile, activations: Activations = None, as_json: AsJson = False) -> None:
    """A study, how far it is, and what failed."""
    from needlepoint.studies.study import open_study

    run_activations(activations)
    with open_study(path, readonly=True) as study:
        failures = study.failures()
        seconds, older = study.store.seconds(), _older(study.store.counts())
        if as_json:
            where = [{"at": {k: _plain(v) for k, v in at.items()}, "message": why} for at, why in failures]
            counts = [{"state": a, "status": b, "points": n} for (a, b), n in study.store.counts().items()]
            shown = {"study": study.definition.to_json(), "counts": counts, "failures": where, "seconds": seconds}
            print(dumps({**shown, "older": older}))
            return
        print(study)
        print(f"  computed in   {seconds:.1f} s")
        if older:
            print(f"  older         {older} points are of another version of the numbers: study retry, study prune")
        for at, why in failures[:20]:
            print(f"  no result     {at}: {why}")
        if len(failures) > 20:
            print(f"  ... and {len(failures) - 20} more")


@study_app.command("export", epilog=below("study export"))
def export(
    path: StoreFile,
    out: Annotated[Path, typer.Argument(help="A .csv, .nc, .png, .pdf or .svg file")],
    activations: Activations = None,
) -> None:
    """Write a study as a table (.csv), as labelled arrays (.nc) or as a picture."""
    from needlepoint.studies.study import open_study

    check_target(out, (".csv", ".nc", *PICTURES))
    run_activations(activations)
    with open_study(path, readonly=True) as study:
        if out.suffix.lower() == ".csv":
            study.to_csv(out)
        elif out.suffix.lower() == ".nc":
            study.to_netcdf(out)
        else:
            _draw(study, _kept_drawing(study), out)
    print(out)


def _kept_drawing(study: Study) -> dict[str, Any]:
    """Return the arguments of `plot` that the study's file gave, from the store."""
    from needlepoint.studies.files import PLOT
    from needlepoint.studies.storage.store import StoreError

    kept = study.store.meta("plot") or {}
    if not isinstance(kept, dict) or not set(kept) <= set(PLOT):
        raise StoreError(f"{study.store.path} is damaged: how it is drawn cannot be read; run its sweep again.")
    return kept


@study_app.command("prune", epilog=below("study prune"))
def prune(path: StoreFile, as_json: AsJson = False) -> None:
    """Remove the points of other versions of the numbers; those of this version stay."""
    from needlepoint.studies.storage.store import Store

    with Store(path, create=False) as store:
        removed = store.prune()
    print(dumps({"removed": removed}) if as_json else f"{path}: {removed} points removed")


@study_app.command("retry", epilog=below("study retry"))
def retry(
    path: StoreFile,
    executor: How = "serial",
    workers: Workers = None,
    memory: Memory = None,
    address: Address = None,
    activations: Activations = None,
    as_json: AsJson = False,
) -> None:
    """Compute again what failed, is damaged or of another version of the numbers, and what is missing."""
    from needlepoint.studies.execution.executors import executor_named
    from needlepoint.studies.study import open_study

    run_activations(activations)
    chosen = executor_named(executor, workers=workers, memory=memory, address=address)
    with open_study(path) as study:
        with interruptible(path) as check:
            tally = study.run(chosen, retry=True, report=lambda _: check(), progress=True)
        _summary(study, path, tally, None, as_json)
