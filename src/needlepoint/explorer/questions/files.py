"""Files in the folders that the explorer was started with: which there are, and a study that is only read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needlepoint.core.errors import InvalidParameter
from needlepoint.explorer.questions.asking import Emit
from needlepoint.explorer.questions.reading import Reader

MOST = 500
"""Files that are listed of one folder."""

ROWS = 5000
"""Rows of a study that are sent; a page cannot show more."""

STUDIES, CHECKPOINTS = (".sqlite",), (".safetensors", ".gguf")


@dataclass(frozen=True)
class Files:
    """The names of studies and checkpoints."""

    @classmethod
    def read(cls, reader: Reader) -> Files:
        return cls()

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        found = listed(folders)
        emit({"event": "files", "studies": list(found[0]), "checkpoints": list(found[1])})


def listed(folders: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Return name -> path of the studies, and of the checkpoints, in folders or given themselves.

    A name is what the page says; a path that it has not been told of cannot be asked for.
    """
    studies: dict[str, str] = {}
    checkpoints: dict[str, str] = {}
    for folder in map(Path, folders):
        inside = [folder] if _is_file(folder) or _is_checkpoint(folder) else sorted(folder.iterdir())[:MOST]
        for path in inside:
            name = path.name if path == folder else f"{folder.name}/{path.name}"
            if _is_file(path) and path.suffix in STUDIES:
                studies[name] = str(path)
            elif _is_checkpoint(path):
                checkpoints[name] = str(path)
    return studies, checkpoints


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_checkpoint(path: Path) -> bool:
    if path.is_symlink():
        return False
    if path.is_dir():
        return (path / "config.json").is_file() or any((path / f"model{end}").is_file() for end in CHECKPOINTS)
    return _is_file(path) and path.suffix in CHECKPOINTS


def named(name: str, known: dict[str, str], what: str) -> Path:
    """Return the path of a listed file; raise one sentence for any other name."""
    if name not in known:
        few = ", ".join(list(known)[:5]) or "none; start it as `needlepoint explore FOLDER`"
        raise InvalidParameter(f"there is no {what} {name!r} in the folders of this explorer; it has {few}.")
    return Path(known[name])


@dataclass(frozen=True)
class StudyFile:
    """A study: what was asked, its axes, and a row for each point, as `study export` writes them."""

    name: str

    @classmethod
    def read(cls, reader: Reader) -> StudyFile:
        return cls(reader.text("name"))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        emit({"event": "study", **study_document(named(self.name, listed(folders)[0], "study"), self.name)})


def study_document(path: Path, name: str) -> dict[str, Any]:
    """Return a study as the page shows it, with at most `ROWS` rows; infinities and what is not known are null."""
    import needlepoint as ndl
    from needlepoint.studies.tables import columns, rows

    with ndl.open_study(path, readonly=True) as study:
        table = [row for row, _ in zip(rows(study), range(ROWS), strict=False)]
        axes = {path: [_cell(v) for v in values] for path, values in study.axes.items()}
        head = columns(table)
        return {
            "name": name,
            "text": str(study),
            "axes": axes,
            "columns": head,
            "rows": [[_cell(row.get(column)) for column in head] for row in table],
            "more": max(0, len(study) - len(table)),
        }


def _cell(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return repr(value)
    return number if math.isfinite(number) else None
