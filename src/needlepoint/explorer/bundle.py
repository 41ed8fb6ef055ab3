"""The page's modules as one script, for a notebook and for a page that is saved to a file.

There is no build step: modules are put one after the other in the order of their imports, each in a function of its own
that returns what it exports. The modules keep to two forms for that: `import { a, b } from "./x.js";` on one line, and
`export` before a function, a class or a constant.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent / "page"
PLOTLY = PAGE / "vendor" / "charts" / "plotly" / "plotly-cartesian.min.js"
KATEX = PAGE / "vendor" / "math" / "katex" / "katex.min.js"
_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const)) (\w+)", re.MULTILINE)


def bundled(*names: str) -> str:
    """Return one script in which everything that the modules `names` export is known by its name."""
    order: list[Path] = []
    for name in names:
        _collect(PAGE / "js" / name, order, ())
    parts = [_wrapped(path, order) for path in order]
    opened = [f"const {{ {', '.join(_exports(p))} }} = m{order.index(p)};" for p in (PAGE / "js" / n for n in names)]
    return "\n".join([*parts, *opened])


def _collect(path: Path, order: list[Path], above: tuple[Path, ...]) -> None:
    """Put what a module imports before it."""
    if path in above:
        raise ValueError(f"{path.name} imports itself by way of {above[-1].name}")
    if path in order:
        return
    for _, source in _IMPORT.findall(path.read_text(encoding="utf-8")):
        _collect((path.parent / source).resolve(), order, (*above, path))
    order.append(path)


def _exports(path: Path) -> list[str]:
    return [name for _, name in _EXPORT.findall(path.read_text(encoding="utf-8"))]


def _wrapped(path: Path, order: list[Path]) -> str:
    text = path.read_text(encoding="utf-8")
    number = order.index(path)

    def taken(found: re.Match[str]) -> str:
        names = found[1].replace(" as ", ": ")
        return f"const {{ {names} }} = m{order.index((path.parent / found[2]).resolve())};\n"

    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(taken, text))
    return f"const m{number} = (() => {{\n{body}\nreturn {{ {', '.join(_exports(path))} }};\n}})();"
