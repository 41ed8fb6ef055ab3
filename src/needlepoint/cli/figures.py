"""The commands `figures`, `reproduce` and `cite`."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.cli.interrupts import interruptible
from needlepoint.cli.options import NOT_CONVERGED, Address, AsJson, Memory, Workers
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import dumps

if TYPE_CHECKING:
    from needlepoint.cli.watching import Watch
    from needlepoint.core.answers.comparison import Row
    from needlepoint.papers.figures import Figure
    from needlepoint.papers.runner import Reproduced
    from needlepoint.papers.work import Queue
    from needlepoint.studies.execution.executors import Executor


def figures(as_json: AsJson = False) -> None:
    """The figures that `reproduce` draws."""
    from needlepoint.checkpoints.figures import REAL
    from needlepoint.papers.figures import figures as registered

    every = [*registered().values(), *REAL.values()]
    rows = [{"id": f.id, "paper": f.paper, "title": f.title, "caption": f.caption} for f in every]
    if as_json:
        print(dumps(rows))
        return
    width = max(len(r["id"]) for r in rows)
    for r in rows:
        print(f"{r['id']:<{width}}  {r['title']}  (arXiv {r['paper']})")


def agreement_line(rows: Sequence[Row]) -> str:
    """Return one line about a figure's comparisons: their number and the largest |z|; a NaN counts as the largest."""
    firm = [row for row in rows if not row.flagged]
    others = f"; {len(rows) - len(firm)} beside flagged predictions" if len(rows) > len(firm) else ""
    if not firm:
        return others
    worst = max(firm, key=lambda row: math.inf if math.isnan(row.z) else abs(row.z))
    kind = "" if worst.exact else f" (of a limit, at d = {worst.d})"
    return f", {len(firm)} comparisons, largest |z| {abs(worst.z):.2f}{kind}{others}"


FEW = 20
"""Units up to which figures are computed in this process: two workers take some five seconds of their own to start."""

Where = Annotated[str | None, typer.Option("--executor", help="serial, processes or dask; by itself all cores")]


def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Figures to draw; none is all")] = None,
    full: Annotated[bool, typer.Option("--full/--quick", help="The papers' sizes, or reduced ones")] = False,
    out: Annotated[Path, typer.Option(help="Folder for pictures, numbers and the report")] = Path("out"),
    executor: Where = None,
    workers: Workers = None,
    memory: Memory = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Draw figures with training over theory, and write report.html and agreement.csv.

    All cores compute, and the report is written after every figure. Finished points are kept in points.sqlite in the
    folder: an interrupted run goes on where it was, and the report covers everything that is there, whichever run has
    computed it.
    """
    from needlepoint.papers.figures import figure, headlines_first
    from needlepoint.papers.figures import figures as registered

    ids, real = _apart(ids)
    known = {name: one for name, one in registered().items() if full or not one.aside}
    wanted = [figure(name) for name in dict.fromkeys(ids if ids is not None else headlines_first(known))]
    from needlepoint.cli.drawing import Drawer, write_pages
    from needlepoint.cli.watching import Watch, watched
    from needlepoint.papers.folder import everything, strangers
    from needlepoint.papers.runner import writable
    from needlepoint.papers.work import Asked, Queue, compute_all
    from needlepoint.studies.execution.executors import started
    from needlepoint.studies.storage.store import Store

    writable(out)
    size = "full" if full else "quick"
    every = [*wanted, *(f for f in registered().values() if f not in wanted)]
    kept = out / "points.sqlite"
    with interruptible(kept) as check, Store(kept) as store:
        queue = Queue([Asked(one.points(size), one, size) for one in wanted], store)
        chosen = _executor(executor, queue, workers=workers, memory=memory, address=address)
        watch = Watch(len(wanted), getattr(chosen, "workers", None) or 1)
        watch.show(queue)
        with watched(watch) as say:
            say(_plan(queue, watch))

            def tell(one: Reproduced) -> None:
                watch.drawn += 1
                head = f"[{watch.drawn}/{len(wanted)}] {one.figure.id}"
                say("\n  ".join([f"{head}: {one.seconds:.1f} s{agreement_line(one.agreement)}", *one.troubles]))

            def stored(queue: Queue) -> None:
                watch.show(queue)
                drawer.check()
                check()

            with started(chosen), Drawer(kept, out, every, tell) as drawer:
                compute_all(queue, store, chosen, drawer.draw, stored)
        done = sorted(drawer.done, key=lambda one: wanted.index(one.figure)) + _real_figures(real, out)
        shown = everything(store, every, out, done) + [one for one in done if one.figure in real]
        write_pages(out, shown, strangers(store, every))
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


def _apart(ids: list[str] | None) -> tuple[list[str] | None, list[Figure]]:
    """Return the ids of computed figures (None: all) and the figures of real models among those asked for.

    Of all figures, those whose model is not there are left out with a sentence; one that is named is refused."""
    from needlepoint.checkpoints.figures import REAL, missing

    if not ids:
        found = []
        for one in REAL.values():
            if why := missing(one):
                print(f"{one.id} is skipped: {why}", file=sys.stderr)
            else:
                found.append(one)
        return None, found
    named = [REAL[name] for name in dict.fromkeys(ids) if name in REAL]
    for one in named:
        if why := missing(one):
            raise InvalidParameter(f"{one.id} cannot be drawn: {why}.")
    return [name for name in ids if name not in REAL], named


def _real_figures(wanted: list[Figure], out: Path) -> list[Reproduced]:
    from needlepoint.checkpoints.figures import draw_real
    from needlepoint.papers.runner import Reproduced

    found = []
    for one in wanted:
        files, seconds = draw_real(one, out)
        print(f"{one.id}: {seconds:.1f} s", file=sys.stderr)
        found.append(Reproduced(one, files, (), (), seconds))
    return found


def _executor(name: str | None, queue: Queue, **options: Any) -> Executor:
    """Return the executor asked for; if none is, all cores, or this process where there is little to compute."""
    from needlepoint.studies.execution.executors import executor_named
    from needlepoint.studies.execution.machine import cores

    if name is None:
        given = any(value is not None for value in options.values())
        name = "processes" if given or (queue.units > FEW and cores() > 1) else "serial"
    return executor_named(name, **options)


def _plan(queue: Queue, watch: Watch) -> str:
    """Return the first line that is shown: what will be done, by how many, and how long it takes, roughly."""
    from needlepoint.cli.watching import duration

    figures = f"{watch.figures} figure{'s' * (watch.figures > 1)}"
    if not queue.total:
        return f"{figures}: all points are there, so that they are only drawn."
    hands = f"{watch.workers} processes" if watch.workers > 1 else "one process"
    return f"{figures}: {queue.total:,} points to compute by {hands}, about {duration(watch.left)}."


def cite(
    what: Annotated[str | None, typer.Argument(help="A paper's arXiv number; none is all")] = None,
    as_json: AsJson = False,
) -> None:
    """BibTeX of this library and the papers behind it."""
    from needlepoint.papers.citations import cite as citation

    text = citation(what)
    print(dumps({"bibtex": text}) if as_json else text)
