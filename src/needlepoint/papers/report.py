"""One self-contained HTML page of what was reproduced: pictures, comparisons with training, and computing times."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Sequence
from pathlib import Path

from needlepoint.core.answers.comparison import Row
from needlepoint.papers.citations import PAPERS
from needlepoint.papers.runner import Reproduced, replacing

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1rem; }
img { max-width: 100%; } .caption { color: #444; } .trouble { color: #a00; }
table { border-collapse: collapse; font-size: 14px; margin: 1rem 0; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #eee; }
th:first-child, td:first-child { text-align: left; } .far { color: #a00; font-weight: 600; }
footer { margin-top: 3rem; color: #777; font-size: 14px; }
"""
FAR = 4.0
"""|z| from which on a row is shown in red."""


def write_report(path: Path, done: Sequence[Reproduced], version: str, strangers: int = 0) -> None:
    """Write the page of all figures; `strangers` is how many points in the store belong to none of them."""
    rows = [row for r in done for row in r.agreement]
    flagged = sum(row.flagged for row in rows)
    exact, limits = ([row for row in rows if row.exact is kind and not row.flagged] for kind in (True, False))
    summary = f"{len(done)} figures. Theory that is exact at the simulated size: {_counted(exact)}."
    if limits:
        summary += (
            f" Limits of large d beside one finite d: {_counted(limits)}; such a gap also holds the effect of the "
            "size, which compare takes away by extrapolation from three sizes on."
        )
    if flagged:
        summary += f" {flagged} more are beside predictions that say they are not to be trusted."
    if strangers:
        summary += f" {strangers} points in the store belong to no figure of this version and are not shown."
    size = " and ".join(dict.fromkeys(r.size for r in done)) or "no"
    body = "\n".join(_section(r) for r in done)
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>needlepoint report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>needlepoint</h1><p>Theory against training at finite size ({html.escape(size)} size).</p>"
        f"<p><strong>{html.escape(summary)}</strong></p>{body}"
        f"<footer>needlepoint {html.escape(version)}. A z-score is the gap over the joined standard error, the "
        f"numerical error of the theory subtracted, Student for few repeats.</footer></body></html>\n"
    )
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")


def _counted(rows: Sequence[Row]) -> str:
    finite = [row.z for row in rows if math.isfinite(row.z)]
    far = sum(not (abs(row.z) < FAR) for row in rows)
    size = f"root mean square z {math.sqrt(sum(z * z for z in finite) / len(finite)):.2f}, " if finite else ""
    return f"{len(rows)} comparisons, {size}{far} with |z| of {FAR:g} or more"


def _section(done: Reproduced) -> str:
    figure = done.figure
    pictures = [base64.b64encode(f.read_bytes()).decode() for f in done.files if f.suffix == ".png"]
    shown = "".join(f'<img alt="{html.escape(figure.title)}" src="data:image/png;base64,{p}">' for p in pictures)
    if done.missing:
        shown += f'<p class="trouble">{done.missing} points of this figure ({done.size} size) are not computed yet.</p>'
    elif not pictures:
        shown += f"<p>All points of the {done.size} size are there; there is no picture of it.</p>"
    about = PAPERS[figure.paper]["title"] if figure.paper in PAPERS else ""
    troubles = "".join(f'<p class="trouble">{html.escape(t)}</p>' for t in done.troubles)
    files = ", ".join(html.escape(f.name) for f in done.files)
    return (
        f'<h2 id="{html.escape(figure.id)}">{html.escape(figure.title)}</h2>'
        f'<p class="caption">{html.escape(figure.caption)} '
        f"<em>{html.escape(about)}, arXiv {html.escape(figure.paper)}.</em></p>{troubles}"
        f"{shown}{_table(done.agreement)}<p><small>{files + '; ' if files else ''}{done.seconds:.1f} s.</small></p>"
    )


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{c}</th>" for c in ("metric", "d", "predicted", "measured", "error", "z", "theory"))
    cells = []
    for row in rows:
        far = ' class="far"' if not abs(row.z) < FAR else ""
        values = (
            html.escape(row.metric),
            row.d,
            f"{row.predicted:.6g}",
            f"{row.measured:.6g}",
            f"{row.measured_error:.1e}",
        )
        tail = f"<td{far}>{row.z:+.2f}</td><td>{row.theory}</td>"
        cells.append("<tr>" + "".join(f"<td>{v}</td>" for v in values) + tail + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(cells)}</table>"
