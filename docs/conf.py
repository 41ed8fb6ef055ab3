"""Sphinx configuration; the notation table is written from the code at build time."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from pathlib import Path

from needlepoint.core.symbols import notation_table

project = "needlepoint"
author = "The needlepoint developers"
copyright = author
release = version = installed_version("needlepoint")

extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated"]
math_number_all = False
math_eqref_format = "({number})"

html_theme = "furo"
html_title = "needlepoint"

_generated = Path(__file__).parent / "_generated"
_generated.mkdir(exist_ok=True)
(_generated / "notation.md").write_text(notation_table() + "\n", encoding="utf-8")
