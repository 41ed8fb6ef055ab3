"""How an answer shows itself: as a table in a notebook, as a data frame, as JSON, as a picture."""

from __future__ import annotations

import html
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.drawing import draw
from needlepoint.core.text.jsonio import dumps


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = (), caption: str = "") -> str:
    """Return an HTML table of these texts, escaped, with its caption above; the first column names the row."""
    style = ' style="text-align:left;vertical-align:top"'
    parts = ["<table>"]
    if caption:
        parts.append(f'<caption style="text-align:left">{html.escape(caption)}</caption>')
    if head:
        parts.append("<tr>" + "".join(f"<th{style}>{html.escape(name)}</th>" for name in head) + "</tr>")
    for first, *others in rows:
        cells = "".join(f"<td{style}>{html.escape(text)}</td>" for text in others)
        parts.append(f"<tr><th{style}>{html.escape(first)}</th>{cells}</tr>")
    return "".join([*parts, "</table>"])


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a pandas.DataFrame of these rows."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise InvalidParameter("this needs pandas: pip install 'needlepoint[tables]'.") from None
    return pandas.DataFrame(list(rows))


class Showing:
    """What answers share: `plot`, `to_dataframe` and `to_json` with text. A class has `_document` and `_records`."""

    def _document(self) -> dict[str, Any]:
        """Return everything as plain data."""
        raise NotImplementedError

    def _records(self) -> list[dict[str, Any]]:
        """Return the rows of the data frame."""
        raise NotImplementedError

    def to_json(self, *, text: bool = False) -> Any:
        """Return everything as plain data that JSON can hold: a dict, or with `text` one JSON document as a string."""
        document = self._document()
        return dumps(document) if text else document

    def to_dataframe(self) -> Any:
        """Return the numbers as a pandas.DataFrame."""
        return data_frame(self._records())

    def plot(self, *args: Any, ax: Any = None, **options: Any) -> Any:
        """Draw it, on `ax` if that is given: the same as `ndl.plot(self, ...)`."""
        return draw(self, *args, ax=ax, **options)
