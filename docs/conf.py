"""Sphinx configuration. Reference, figure pages, gallery and notation are written from the code at build time."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.errors import ConfigError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from needlepoint.core.symbols import notation_table  # noqa: E402

from gallery import Stale, write_gallery  # noqa: E402 (from _ext)
from pages import write, write_figures, write_reference  # noqa: E402

project = "needlepoint"
author = "The needlepoint developers"
copyright = author
release = version = installed_version("needlepoint")

extensions = ["myst_parser", "sphinx.ext.autodoc", "katex_math", "docstrings"]
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated", "_gallery"]
math_number_all = False
math_eqref_format = "({number})"

autodoc_preserve_defaults = True  # a default is shown as it is written, not as the address of a function
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries = False
# where the equations are derived that docstrings name, seen from the pages of the reference
equation_pages = {
    label: f"../theory/{page.stem}.html"
    for page in sorted(HERE.glob("theory/*.md"))
    for label in re.findall(r"^:label: (eq:\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
}

html_theme = "furo"
html_title = "needlepoint"
html_static_path = ["_static", "../src/needlepoint/explorer/page/vendor/math"]  # KaTeX, which the explorer has too
html_math_renderer = "bundled"
html_copy_source = False
html_show_sourcelink = False

write(HERE / "_generated" / "notation.md", notation_table() + "\n")
write_reference(HERE / "reference")
write_figures(HERE / "figures")
try:
    write_gallery(HERE / "gallery")
except Stale as error:
    raise ConfigError(str(error)) from None
