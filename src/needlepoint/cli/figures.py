"""The commands `figures`, `reproduce` and `cite`."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.cli.interrupts import interruptible
from needlepoint.cli.options import NOT_CONVERGED, Address, AsJson, How, Memory, Workers, progress_bar
from needlepoint.core.text.jsonio import dumps

if TYPE_CHECKING:
    from needlepoint.core.answers.comparison import Row
    from needlepoint.papers.runner import Reproduced


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


def agreement_line(rows: Sequence[Row]) -> str:
    """Return one line about a figure's comparisons: their number and the largest |z|; a NaN counts as the largest."""
    firm = [row for row in rows if not row.flagged]
    others = f"; {len(rows) - len(firm)} beside flagged predictions" if len(rows) > len(firm) else ""
    if not firm:
        return others
    worst = max(firm, key=lambda row: math.inf if math.isnan(row.z) else abs(row.z))
    kind = "" if worst.exact else f" (of a limit, at d = {worst.d})"
    return f", {len(firm)} comparisons, largest |z| {abs(worst.z):.2f}{kind}{others}"


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
            # the report is written after every figure, so that it has what is finished even if the rest is stopped
            _write_pages(out, everything(store, every, out, done, thorough=False))
            print(f"{head}: {done[-1].seconds:.1f} s{agreement_line(done[-1].agreement)}", file=sys.stderr)
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
    """Write report.html and agreement.csv of everything that the folder holds."""
    from needlepoint import __version__
    from needlepoint.papers.report import write_report
    from needlepoint.papers.runner import write_agreement

    write_agreement(out / "agreement.csv", shown)
    write_report(out / "report.html", shown, __version__, others)


def cite(
    what: Annotated[str | None, typer.Argument(help="A paper's arXiv number; none is all")] = None,
    as_json: AsJson = False,
) -> None:
    """BibTeX of this library and the papers behind it."""
    from needlepoint.papers.citations import cite as citation

    text = citation(what)
    print(dumps({"bibtex": text}) if as_json else text)
