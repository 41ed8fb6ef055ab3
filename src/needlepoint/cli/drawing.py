"""Drawing figures while others are still computed: a thread draws, compares, and writes the report after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from needlepoint.papers.figures import Figure
    from needlepoint.papers.runner import Reproduced
    from needlepoint.papers.work import Asked


class Drawer:
    """Draws figures one after another in a thread of its own, so that workers get their next points meanwhile.

    After each figure report.html and agreement.csv cover everything that the folder holds; `tell` is called with what
    came of it. The thread opens the store by itself, because sqlite ties a connection to a thread.
    """

    def __init__(self, store: Path, out: Path, every: Sequence[Figure], tell: Callable[[Reproduced], None]):
        self.done: list[Reproduced] = []
        self._store, self._out, self._every, self._tell = store, out, every, tell
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drawing")
        self._drawn: list[Future[None]] = []

    def draw(self, asked: Asked) -> None:
        """Queue a figure whose points are all in the store."""
        self._drawn.append(self._thread.submit(self._draw, asked))

    def _draw(self, asked: Asked) -> None:
        from needlepoint.papers.folder import everything, remember
        from needlepoint.papers.runner import drawn
        from needlepoint.studies.storage.store import Store

        assert asked.figure is not None
        with Store(self._store) as store:
            records, seconds = asked.records(store)
            one = drawn(asked.figure, asked.size, self._out, records, seconds)
            self.done.append(one)
            remember(store, one)
            write_pages(self._out, everything(store, self._every, self._out, self.done, thorough=False))
        self._tell(one)

    def check(self) -> None:
        """Raise the error of a figure that could not be drawn, if there is one."""
        for drawn in self._drawn:
            if drawn.done():
                drawn.result()

    def __enter__(self) -> Drawer:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        # what is complete is drawn even after Ctrl-C; if that takes long, the process is ended (see `interrupts`)
        self._thread.shutdown(wait=True)
        if kind is None:
            self.check()


def write_pages(out: Path, shown: Sequence[Reproduced], others: int = 0) -> None:
    """Write report.html and agreement.csv of everything that the folder holds."""
    from needlepoint import __version__
    from needlepoint.papers.report import write_report
    from needlepoint.papers.runner import write_agreement

    write_agreement(out / "agreement.csv", shown)
    write_report(out / "report.html", shown, __version__, others)
