r"""Docstrings of the package as reStructuredText: `name` is code, $x$ an equation, eq:label a link, >>> an example.

The docstrings are written to be read as they are, in a terminal; this turns their few habits into what Sphinx knows.
A run of lines `name   meaning`, where at least two blanks part the two, becomes a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_TOKENS = re.compile(r"``(?P<plain>[^`]+)``|`(?P<code>[^`]+)`|\$(?P<tex>[^$]+)\$|(?P<label>\beq:[a-z0-9-]+)")
_ROW = re.compile(r"(?P<name>[\w, |*\"]*?\w[\w,|*\"]*) {2,}(?P<meaning>\S.*)")
_SPECIAL = re.compile(r"([\\*|_<>`])")


def restructured(text: str, public: Iterable[str] = (), labels: Mapping[str, str] | None = None) -> str:
    """Return a docstring as reStructuredText; names in `public` and labels of equations become links.

    `labels` has the address of the page on which an equation is derived, by the label of the equation.
    """
    names, pages = set(public), labels or {}
    return "\n\n".join(_block(block, names, pages) for block in re.split(r"\n\s*\n", text.strip("\n"))) + "\n"


def _block(block: str, public: set[str], labels: Mapping[str, str]) -> str:
    lines = block.split("\n")
    start = next((i for i, line in enumerate(lines) if line.lstrip().startswith(">>>")), None)
    if start == 0:
        return block
    if start is not None:
        return _block("\n".join(lines[:start]), public, labels) + "\n\n" + "\n".join(lines[start:])
    rows = _rows(lines)
    if rows:
        return _table([[_inline(f"`{name}`", public, labels), _inline(said, public, labels)] for name, said in rows])
    return _inline(" ".join(line.strip() for line in lines), public, labels)


def _rows(lines: list[str]) -> list[tuple[str, str]]:
    """Return (name, meaning) if all lines are rows of a table or their continuation, otherwise nothing."""
    found: list[list[str]] = []
    for line in lines:
        match = _ROW.fullmatch(line)
        if match:
            found.append([match["name"].strip(), match["meaning"]])
        elif found and line.startswith("   "):
            found[-1][1] += " " + line.strip()
        else:
            return []
    return [(name, meaning) for name, meaning in found] if len(found) > 1 else []


def _table(rows: list[list[str]]) -> str:
    body = "\n".join(f"   * - {name}\n     - {meaning}" for name, meaning in rows)
    return f".. list-table::\n   :widths: auto\n\n{body}"


def _inline(text: str, public: set[str], labels: Mapping[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        if match["label"]:
            label = match["label"]
            anchor = "equation-" + label.replace(":", "-")
            return f"`{label} <{labels[label]}#{anchor}>`__" if label in labels else f"``{label}``"
        if match["tex"]:
            return f":math:`{match['tex'].strip()}`"
        code = match["code"] or match["plain"]
        name = code.removeprefix("ndl.")
        return f":py:obj:`{code} <needlepoint.{name}>`" if name in public else f"``{code}``"

    parts, end = [], 0
    for match in _TOKENS.finditer(text):
        parts += [_SPECIAL.sub(r"\\\1", text[end : match.start()]), _apart(text, match, one(match))]
        end = match.end()
    return "".join([*parts, _SPECIAL.sub(r"\\\1", text[end:])])


def _apart(text: str, match: re.Match[str], markup: str) -> str:
    """Return the markup with escaped blanks where it touches a letter, which reStructuredText does not allow."""
    before, after = text[: match.start()][-1:], text[match.end() :][:1]
    return (
        (r"\ " if before and not before.isspace() else "") + markup + (r"\ " if after and not after.isspace() else "")
    )


def setup(app: Any) -> dict[str, Any]:
    import needlepoint as ndl

    public = set(ndl.__all__)

    def convert(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        lines[:] = restructured("\n".join(lines), public, app.config.equation_pages).split("\n")

    def signature(
        app: Any, what: str, name: str, obj: Any, options: Any, given: str | None, returns: str | None
    ) -> Any:
        """Leave out the signature of what only the library makes; its arguments are not for a caller."""
        return ("", returns) if given and "<factory>" in given else (given, returns)

    app.connect("autodoc-process-signature", signature)
    app.add_config_value("equation_pages", {}, "env")
    app.connect("autodoc-process-docstring", convert)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
