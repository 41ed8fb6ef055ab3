"""How an answer shows itself: as a table in a notebook, as a data frame, as JSON, as a picture."""

from __future__ import annotations

import base64
import html
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.drawing import draw
from needlepoint.core.text.jsonio import dumps

_ONE_LINE = 120  # characters of a caption that stay on one line


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = (), caption: str = "") -> str:
    """Return an HTML table of these texts, escaped, with its caption above; the first column names the row."""
    style = ' style="text-align:left;vertical-align:top"'
    parts = ["<table>"]
    if caption:
        wrapped = "" if len(caption) > _ONE_LINE else ";white-space:nowrap"  # a narrow table would fold it
        parts.append(f'<caption style="text-align:left{wrapped}">{html.escape(caption)}</caption>')
    if head:
        parts.append("<tr>" + "".join(f"<th{style}>{html.escape(name)}</th>" for name in head) + "</tr>")
    for first, *others in rows:
        cells = "".join(f"<td{style}>{html.escape(text)}</td>" for text in others)
        parts.append(f"<tr><th{style}>{html.escape(first)}</th>{cells}</tr>")
    return "".join([*parts, "</table>"])


def picture(shown: Any, **options: Any) -> str:
    """Return the picture of an answer as HTML, for below its table; empty where it cannot be drawn.

    It is for what is there to be drawn: nothing is computed for a picture that nobody has asked for.
    """
    try:
        image = draw(shown, **options)._repr_png_()
    except Exception:  # whatever is wrong with the picture, the numbers are shown
        return ""
    data = base64.b64encode(image).decode()
    return f'<img alt="{html.escape(type(shown).__name__)}" src="data:image/png;base64,{data}">'


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
