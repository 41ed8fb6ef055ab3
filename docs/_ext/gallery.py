"""The gallery: `examples/*.py` as pages with what they print and draw, and as notebooks.

An example is a Python file in cells: `# %% [markdown]` begins text (the word `long` after it marks an example that the
slow tests run), `# %%` begins code. As in a notebook, the last expression of a cell and figures of pyplot are shown.
What the cells print and draw is recorded in `docs/_gallery`, because running all of them takes minutes; a page whose
example has changed since is refused, and the tests run the examples and compare.

    python docs/_ext/gallery.py            # run and record the examples that have changed
    python docs/_ext/gallery.py NAME ...   # these, whether or not they have changed
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
RECORDED = ROOT / "docs" / "_gallery"
NOTEBOOKS = EXAMPLES / "notebooks"
COMMITTED_NOTEBOOKS = ("best_penalty", "interpolation", "my_attention")
DPI = 110  # of recorded pictures, as in a notebook; all of them together stay below two megabytes
COLOURS = 64  # of their palette; lines and letters need few

_MARK = re.compile(r"# %%(?P<text> \[markdown\])?(?P<tag> long)?")


class Stale(ValueError):
    """What was recorded of an example is of another version of it."""


@dataclass(frozen=True)
class Cell:
    """A piece of an example: text (Markdown, without comment signs) or code."""

    text: bool
    source: str


@dataclass(frozen=True)
class Shown:
    """What a code cell prints, and the pictures it shows, as PNG files."""

    printed: str
    pictures: tuple[bytes, ...]


@dataclass(frozen=True)
class Example:
    """One file of `examples`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def long(self) -> bool:
        return self.source.split("\n", 1)[0].endswith(" long")

    @property
    def digest(self) -> str:
        """Return a hash of the cells, which says whether what was recorded is of this version."""
        return hashlib.sha256(repr([(cell.text, cell.source) for cell in self.cells]).encode()).hexdigest()

    @property
    def title(self) -> str:
        return self.cells[0].source.split("\n")[0].removeprefix("# ")

    @property
    def summary(self) -> str:
        """Return the first paragraph of the text."""
        return " ".join(self.cells[0].source.split("\n\n")[1].split())

    @property
    def cells(self) -> tuple[Cell, ...]:
        cells: list[tuple[bool, list[str]]] = []
        for line in self.source.rstrip().split("\n"):
            mark = _MARK.fullmatch(line)
            if mark:
                cells.append((bool(mark["text"]), []))
            elif not cells:
                raise ValueError(f"{self.path.name}: begins outside a cell; the first line must be '# %% [markdown]'")
            else:
                text, lines = cells[-1]
                if text and line.strip() and not line.startswith("#"):
                    raise ValueError(f"{self.path.name}: code in a cell of text: {line!r}")
                lines.append(re.sub(r"^# ?", "", line) if text else line)
        return tuple(Cell(text, "\n".join(lines).strip("\n")) for text, lines in cells)


def examples() -> list[Example]:
    """Return all examples, in the order in which `examples/README.md` lists them; others follow."""
    listed = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    found = sorted(EXAMPLES.glob("*.py"), key=lambda p: (listed.index(p.name) if p.name in listed else len(listed), p))
    return [Example(path) for path in found]


# ------------------------------------------------------------------------------------------------ running
def run(example: Example) -> Iterator[Shown]:
    """Run an example cell by cell, in an empty folder; yield what each code cell shows."""
    import matplotlib

    matplotlib.use("Agg")
    scope: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in example.cells:
            if not cell.text:
                yield _run_cell(cell.source, scope, example.path.name)


def _run_cell(source: str, scope: dict[str, Any], name: str) -> Shown:
    from matplotlib import pyplot

    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    pictures = []
    with contextlib.redirect_stdout(out):
        exec(compile(tree, name, "exec"), scope)
        value = eval(compile(last, name, "eval"), scope) if last else None
        if hasattr(value, "savefig"):
            pictures.append(_png(value))
        elif value is not None:
            print(value)
    pictures += [_png(pyplot.figure(number)) for number in pyplot.get_fignums()]
    pyplot.close("all")
    return Shown(out.getvalue().rstrip(), tuple(pictures))


def _png(figure: Any) -> bytes:
    """Return a picture as a PNG file with few colours, a third as large as with all of them."""
    from PIL import Image

    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=DPI)
    Image.open(raw).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


# ------------------------------------------------------------------------------------------------ recording
def recorded(example: Example) -> dict[str, Any] | None:
    """Return what was recorded for an example: its digest, and text and pictures of every code cell."""
    path = RECORDED / f"{example.name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def record(example: Example) -> None:
    """Run an example and write down what its cells show."""
    RECORDED.mkdir(exist_ok=True)
    before = time.process_time()
    cells = []
    for old in RECORDED.glob(f"{example.name}-*.png"):
        old.unlink()
    count = 0
    for shown in run(example):
        files = []
        for picture in shown.pictures:
            count += 1
            files.append(f"{example.name}-{count}.png")
            (RECORDED / files[-1]).write_bytes(picture)
        cells.append({"printed": shown.printed, "pictures": files})
    seconds = time.process_time() - before
    document = {"digest": example.digest, "cells": cells}
    (RECORDED / f"{example.name}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"{example.name}: {seconds:.0f} s of CPU", flush=True)


# ------------------------------------------------------------------------------------------------ pages, notebooks
def page(example: Example) -> str:
    """Return the page of an example; raises if what was recorded belongs to another version of it."""
    found = recorded(example)
    if found is None or found["digest"] != example.digest:
        raise Stale(f"examples/{example.path.name} has changed since it was recorded: run make gallery")
    shown = iter(found["cells"])
    parts = []
    for cell in example.cells:
        if cell.text:
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        output = next(shown)
        if output["printed"]:
            parts.append(f"```text\n{output['printed']}\n```")
        parts += [f"![What the cell above draws](../_gallery/{file})" for file in output["pictures"]]
    parts.append(
        f"---\n\nThis page is `examples/{example.path.name}`; it can be had as "
        f"{{download}}`a Python file <../../examples/{example.path.name}>` or as "
        f"{{download}}`a notebook <../_generated/{example.name}.ipynb>`."
    )
    return "\n\n".join(parts) + "\n"


def notebook(example: Example) -> str:
    """Return an example as a notebook without outputs."""
    cells = []
    for i, cell in enumerate(example.cells):
        lines = cell.source.splitlines(keepends=True)
        common = {"id": f"{example.name}-{i}".replace("_", "-"), "metadata": {}, "source": lines}
        more = {"cell_type": "markdown"} if cell.text else {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append({**common, **more})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def write_gallery(folder: Path) -> None:
    """Write the pages of the gallery, and every example as a notebook to download."""
    from pages import write, write_all

    pages: dict[Path, str] = {}
    cards = []
    for example in examples():
        write(folder.parent / "_generated" / f"{example.name}.ipynb", notebook(example))
        pages[folder / f"{example.name}.md"] = page(example)
        pictures = [file for cell in (recorded(example) or {})["cells"] for file in cell["pictures"]]
        image = f"[![{example.title}](../_gallery/{pictures[-1]})]({example.name}.md)\n\n" if pictures else ""
        cards.append(f":::{{container}}\n{image}[{example.title}]({example.name}.md)\n\n{example.summary}\n:::\n")
    toc = "\n".join(path.stem for path in pages)
    pages[folder / "index.md"] = (
        "# Gallery\n\nEach page is a file of `examples/` with what it prints and draws, and the tests run them. "
        "The first three answer what newcomers have asked; they are in `examples/notebooks` too.\n\n"
        "::::{container} cards\n" + "\n".join(cards) + f"::::\n\n```{{toctree}}\n:hidden:\n\n{toc}\n```\n"
    )
    write_all(pages, folder)


def main(names: list[str]) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    known = {example.name: example for example in examples()}
    stale = [e.name for e in known.values() if (recorded(e) or {}).get("digest") != e.digest]
    for name in names or stale:
        record(known[name])
    NOTEBOOKS.mkdir(exist_ok=True)
    for name in COMMITTED_NOTEBOOKS:
        (NOTEBOOKS / f"{name}.ipynb").write_text(notebook(known[name]), encoding="utf-8")


if __name__ == "__main__":
    main([Path(argument).stem for argument in sys.argv[1:]])
