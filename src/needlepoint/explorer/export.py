"""A study as one file: a page that opens from disk, needs no server and no network, and can stand beside a paper."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import dumps
from needlepoint.explorer.bundle import PAGE, PLOTLY, bundled
from needlepoint.explorer.questions.files import study_document

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""What the file may do: run what it carries, and load nothing from anywhere."""

START = """
const given = JSON.parse(document.getElementById("study").textContent);
const ask = frozen("This page was saved: it has the study and no solver. `needlepoint explore` opens one that has.");
const extra = { study: given };
mount(document.getElementById("explorer"), { ask, table: new Table(null), tabs: [study], address: false, extra });
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
<style id="plotly.js-style-global"></style>
</head>
<body>
<div id="explorer" class="needlepoint"></div>
<!-- plotly.js, MIT licence, Copyright Plotly, Inc. -->
<script>{plotly}</script>
<script type="application/json" id="study">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def export_study(paths: Sequence[Path], target: Path) -> Path:
    """Write the one study given to a single file and return its path; the study is only read."""
    if len(paths) != 1 or not paths[0].is_file():
        raise InvalidParameter("explore --export page.html takes the one study to write, such as study.sqlite.")
    document = study_document(paths[0], paths[0].name)
    plotly = PLOTLY.read_text(encoding="utf-8").replace("</script", "<\\/script")
    text = _PAGE.format(
        policy=POLICY,
        title=html.escape(f"{paths[0].name} · needlepoint"),
        style=(PAGE / "style.css").read_text(encoding="utf-8"),
        plotly=plotly,
        # a JSON text in a page must not have an angle bracket that could end its element
        data=dumps(document).replace("<", "\\u003c"),
        script=bundled("ask.js", "table.js", "explorer.js", "tabs/study.js") + START,
    )
    target.write_text(text, encoding="utf-8")
    return target
