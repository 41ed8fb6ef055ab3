"""One self-contained HTML page of what was reproduced: how well it agrees in words, pictures, and every comparison."""

from __future__ import annotations

import base64
import functools
import html
import io
import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from needlepoint.core.text.digits import with_error
from needlepoint.papers.citations import PAPERS
from needlepoint.papers.runner import Agreement, Reproduced, judged, replacing
from needlepoint.papers.trends import AGREES, FAR, FLAGGED, OPEN, SIZE, WORDS, WRONG, Verdict

COLOURS = 40
"""Colours of a picture in the page; the files beside it have all of them. A page of all figures stays below 2 MB."""

_CLASS = {AGREES: "agrees", SIZE: "size", OPEN: "undecided", FLAGGED: "flagged", WRONG: "disagrees"}
_SAID = {**{word: word for word in WORDS}, AGREES: "agree", WRONG: "disagree"}
_HEADS = ("point", "at", "metric", "d", "theory", "predicted", "measured", "z", "z at 1/d → 0", "verdict")


def write_report(path: Path, done: Sequence[Reproduced], version: str, strangers: int = 0) -> None:
    """Write the page of all figures; `strangers` is how many points in the store belong to none of them."""
    verdicts = [judged(one.agreement) for one in done]
    rows = [pair for one, mine in zip(done, verdicts, strict=True) for pair in zip(one.agreement, mine, strict=True)]
    style, script = (
        files("needlepoint.papers").joinpath(f"report.{kind}").read_text("utf-8") for kind in ("css", "js")
    )
    names = _anchors(done)
    questions: dict[str, int] = {}  # each is written once: many rows share one
    sections = "\n".join(_section(*each, questions) for each in zip(done, verdicts, names, strict=True))
    known = json.dumps(list(questions)).replace("<", "\\u003c")
    lead = "".join(f'<p class="lead">{html.escape(sentence)}</p>' for sentence in summary(done, rows))
    more = f"<p>{strangers} points in the store belong to no figure of this version and are not shown.</p>"
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>needlepoint report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head><body>'
        f"<h1>needlepoint: theory against training</h1>{lead}{_counts(rows)}{more if strangers else ''}"
        f"{_contents(done, verdicts, names)}{sections}{_footer(version)}"
        f"<script>const questions = {known};\n{script}</script></body></html>\n"
    )
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")


def summary(done: Sequence[Reproduced], rows: Sequence[tuple[Agreement, Verdict]]) -> list[str]:
    """Return three sentences: what was computed, how well exact theories agree, and how well limits do."""
    sizes = " and ".join(dict.fromkeys(one.size for one in done)) or "no"
    papers = len({one.figure.paper for one in done})
    what = (
        f"{_number(len(done), 'figure')} of {_number(papers, 'paper')} ({sizes} size): theory computed from its "
        f"equations, and {len(rows):,} numbers of training or sampling at finite size d put beside it."
    )
    exact = [(row, verdict) for row, verdict in rows if row.exact and not row.flagged]
    limits = [(row, verdict) for row, verdict in rows if not row.exact and not row.flagged]
    flagged = len(rows) - len(exact) - len(limits)
    return [what, _of_exact(exact), _of_limits(limits, flagged)]


def _of_exact(rows: Sequence[tuple[Agreement, Verdict]]) -> str:
    if not rows:
        return "None of these theories is exact at the simulated size."
    good = sum(verdict.word == AGREES for _, verdict in rows)
    finite = [row.z for row, _ in rows if math.isfinite(row.z)]
    rms = math.sqrt(sum(z * z for z in finite) / len(finite)) if finite else math.nan
    return (
        f"Where theory is exact at the simulated size, {_share(good, len(rows))} agree within {FAR:g} standard errors "
        f"(root mean square z {rms:.2f}; 1 is chance alone)."
    )


def _of_limits(rows: Sequence[tuple[Agreement, Verdict]], flagged: int) -> str:
    words = Counter(verdict.word for _, verdict in rows)
    beside = f"{_number(flagged, 'more number')} stand beside predictions that flag themselves as not to be trusted"
    if not rows:
        return f"{beside}." if flagged else "No theory here is a limit of large d."
    parts = [f"Where theory is the limit of large d, {_share(words[AGREES], len(rows))} agree"]
    if words[SIZE]:
        gaps = [abs(row.gap / row.predicted) for row, verdict in rows if verdict.word == SIZE and row.predicted]
        typical = f" (typically {100 * statistics.median(gaps):.2g} %)" if gaps else ""
        parts.append(f"{words[SIZE]:,} differ by a gap that shrinks with d as a finite size does{typical}")
    if words[OPEN]:
        parts.append(f"{words[OPEN]:,} leave the trend open")
    parts.append(f"{words[WRONG]:,} disagree" if words[WRONG] else "none disagrees")
    return f"{', '.join(parts[:-1])} and {parts[-1]}{'; ' + beside if flagged else ''}."


def _share(some: int, every: int) -> str:
    return f"all {every:,} numbers" if some == every else f"{some:,} of {every:,} numbers"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _counts(rows: Sequence[tuple[Agreement, Verdict]]) -> str:
    """Return the number of rows of each verdict with what it means."""
    words = Counter(verdict.word for _, verdict in rows)
    cells = [
        f'<li><b class="{_CLASS[word] if words[word] else "none"}">{words[word]:,} {_SAID[word]}</b>{meaning}</li>'
        for word, meaning in WORDS.items()
        if words[word] or word in (AGREES, WRONG)
    ]
    return f'<ul class="counts">{"".join(cells)}</ul>' if rows else ""


def _anchors(done: Sequence[Reproduced]) -> list[str]:
    """Return the name of each section: the figure's id, with its size where both sizes are shown."""
    twice = Counter(one.figure.id for one in done)
    first = {one.figure.id: one for one in reversed(done)}
    return [
        one.figure.id if twice[one.figure.id] == 1 or first[one.figure.id] is one else f"{one.figure.id}-{one.size}"
        for one in done
    ]


def _contents(done: Sequence[Reproduced], verdicts: Sequence[Sequence[Verdict]], names: Sequence[str]) -> str:
    papers: dict[str, list[str]] = {}
    for one, mine, name in zip(done, verdicts, names, strict=True):
        link = f'<a href="#{html.escape(name)}">{html.escape(one.figure.title)}</a>'
        papers.setdefault(one.figure.paper, []).append(f"<li>{link} <small>{_tally(mine)}</small></li>")
    parts = [
        f"<h3>{html.escape(_title(paper))} <small class='about'>arXiv {html.escape(paper)}</small></h3>"
        f"<ul>{''.join(links)}</ul>"
        for paper, links in papers.items()
    ]
    return f"<nav>{''.join(parts)}</nav>"


def _title(paper: str) -> str:
    return PAPERS[paper]["title"] if paper in PAPERS else ""


def _tally(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts of a figure in words: "12 agree, 4 finite size"."""
    words = Counter(verdict.word for verdict in verdicts)
    shown = [f'<span class="{_CLASS[word]}">{words[word]} {_SAID[word]}</span>' for word in WORDS if words[word]]
    return ", ".join(shown)


def _section(done: Reproduced, verdicts: Sequence[Verdict], name: str, questions: dict[str, int]) -> str:
    """Return the section of a figure; questions of its rows are added to `questions` with a number each."""
    figure, title = done.figure, html.escape(done.figure.title)
    about = f'<span class="about">{html.escape(_title(figure.paper))}, arXiv {html.escape(figure.paper)}.</span>'
    pictures = [picture(f) for f in done.files if f.suffix == ".png"]
    shown = "".join(f'<img alt="{title}" src="data:image/png;base64,{p}">' for p in pictures)
    if done.missing:
        shown += f'<p class="trouble">{done.missing} points of this figure ({done.size} size) are not computed yet.</p>'
    elif not pictures:
        shown += f"<p>All points of the {done.size} size are there; there is no picture of it.</p>"
    troubles = "".join(f'<p class="trouble">{html.escape(t)}</p>' for t in done.troubles)
    written = ", ".join(html.escape(f.name) for f in done.files)
    return (
        f'<section><h2 id="{html.escape(name)}">{title}</h2>'
        f'<p class="caption">{html.escape(figure.caption)} {about}</p>{troubles}'
        f"{shown}{_table(done.agreement, verdicts, questions)}"
        f'<p class="files">{written + "; " if written else ""}{done.seconds:.1f} s of computing.</p></section>'
    )


def picture(path: Path) -> str:
    """Return a PNG file in `COLOURS` colours as base64, which makes it a third as large."""
    state = path.stat()
    return _picture(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=64)  # the page is written after every figure, with the pictures of all before it
def _picture(path: Path, *_: int) -> str:
    from PIL import Image  # comes with matplotlib

    with Image.open(path) as image, io.BytesIO() as small:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(small, format="PNG", optimize=True)
        return base64.b64encode(small.getvalue()).decode()


def _table(rows: Sequence[Agreement], verdicts: Sequence[Verdict], questions: dict[str, int]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{c}</th>" for c in _HEADS)
    body = "".join(_row(row, verdict, questions) for row, verdict in zip(rows, verdicts, strict=True))
    unrest = any(verdict.word == WRONG for verdict in verdicts)
    return (
        f"<details{' open' if unrest else ''}><summary>{_number(len(rows), 'comparison')}: {_tally(verdicts)}</summary>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>'
    )


def _row(row: Agreement, verdict: Verdict, questions: dict[str, int]) -> str:
    at = "" if row.x is None else f"{row.x:.4g}"
    far = verdict.z_extrapolated
    values = (
        at,
        html.escape(row.metric),
        row.d,
        row.theory,
        f"{row.predicted:.5g}",
        with_error(row.measured, row.measured_error),
        f"{row.z:+.2f}" if math.isfinite(row.z) else str(row.z),
        "" if far is None else f"{far:+.1f}",
    )
    point = f'<td data-q="{questions.setdefault(row.question, len(questions))}">{html.escape(plain(row.point))}</td>'
    said = f"{verdict.word}{': ' + verdict.reason if verdict.reason else ''}"
    last = f'<td class="{_CLASS[verdict.word]}">{html.escape(said)}</td>'
    return f"<tr>{point}{''.join(f'<td>{v}</td>' for v in values)}{last}</tr>"


_LETTERS = {r"\alpha": "α", r"\beta": "β", r"\gamma": "γ", r"\lambda": "λ", "^*": "*", "_0": "₀", "$": ""}


def plain(label: str) -> str:
    """Return a label without TeX.

    >>> plain(r"errors, $\\lambda$ = 0.02")
    'errors, λ = 0.02'
    """
    for tex, letter in _LETTERS.items():
        label = label.replace(tex, letter)
    return label


_READING = """z is the gap over the joined standard error, the numerical error of the theory subtracted, Student for few
repeats. Where theory is a limit, the gaps at several d are compared with c/d (finite size) and with a constant
(disagreement); z at 1/d → 0 is that of a straight line in 1/d. Hold the pointer over a point to see its question; click
on a column to sort by it."""


def _footer(version: str) -> str:
    return f"<footer>needlepoint {html.escape(version)}. {_READING}</footer>"
