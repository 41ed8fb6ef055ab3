"""report.html: one self-contained page that lists what was reproduced and marks what disagrees."""

import base64
import contextlib
import dataclasses
import io
import json
import math
import re
import signal
import sqlite3
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from needlepoint.cli import run
from needlepoint.cli.figures import agreement_line
from needlepoint.core.text.digits import with_error
from needlepoint.papers import figures as registry
from needlepoint.papers.folder import everything, strangers
from needlepoint.papers.report import plain, write_report
from needlepoint.papers.runner import compute, reproduce
from needlepoint.papers.trends import FAR
from needlepoint.studies.storage.store import Store


class Page(HTMLParser):
    """The tags with their attributes, the cells of each table row, and the text of the page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append([dict(attrs).get("class"), ""])

    def handle_data(self, data):
        self.text += data
        if self.rows and self.rows[-1] and self.lasttag == "td":
            self.rows[-1][-1][1] += data

    def handle_endtag(self, tag):
        if tag == "tr":
            self.lasttag = tag  # what follows the last cell of a row is not in it

    def of(self, name):
        return [attrs for tag, attrs in self.tags if tag == name]

    def cells(self):
        return [row for row in self.rows if row]


@pytest.fixture(scope="module")
def done(tiny, tmp_path_factory):
    return reproduce(tiny, "quick", tmp_path_factory.mktemp("out"))


def write(path, done):
    write_report(path / "report.html", done, "1.2.3")
    text = (path / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


def test_the_page_is_self_contained(done, tmp_path):
    text, page = write(tmp_path, [done])
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", text)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", text)
    assert not page.of("link")
    assert page.of("script") == [{}]  # inline
    (picture,) = (attrs["src"] for attrs in page.of("img"))
    head, _, data = picture.partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as shown, Image.open(done.files[0]) as whole:
        assert shown.size == whole.size
        gap = np.abs(np.asarray(shown.convert("RGB"), float) - np.asarray(whole.convert("RGB"), float))
    assert gap.mean() < 1  # of 255: fewer colours, the same picture


def test_links_of_the_contents_lead_to_sections(done, tmp_path):
    _, page = write(tmp_path, [done, dataclasses.replace(done, size="full", files=())])
    links = [attrs["href"] for attrs in page.of("a")]
    sections = [f"#{attrs['id']}" for attrs in page.of("h2")]
    assert links == sections == ["#tiny", "#tiny-full"]


def test_the_page_lists_the_figure_and_every_row(done, tmp_path):
    text, page = write(tmp_path, [done])
    assert page.of("h2") == [{"id": "tiny"}]
    assert "Tiny &lt;figure&gt;" in text
    assert "Tiny <figure>" in page.text
    assert done.figure.caption in page.text
    assert "arXiv 2410.01537" in page.text
    assert all(f.name in page.text for f in done.files)
    assert "needlepoint 1.2.3" in page.text
    assert "quick size" in page.text
    shown = [[value for _, value in row] for row in page.cells()]
    assert len(shown) == len(done.agreement) == 4
    for cells, row in zip(shown, done.agreement, strict=True):
        assert cells[:5] == [row.point, f"{row.x:.4g}", row.metric, str(row.d), "exact"]
        assert math.isclose(float(cells[5]), row.predicted, rel_tol=1e-4)
        assert cells[6] == with_error(row.measured, row.measured_error)
        assert math.isclose(float(cells[7]), row.z, abs_tol=0.005)
        assert cells[8:] == ["", "agrees"]
    asked = json.loads(re.search(r"const questions = (\[.*?\]);", text)[1])
    numbers = [attrs["data-q"] for attrs in page.of("td") if "data-q" in attrs]
    assert [asked[int(i)] for i in numbers] == [row.question for row in done.agreement]
    assert len(asked) == len(set(asked))


def test_columns_can_be_sorted_and_dark_screens_are_thought_of(done, tmp_path):
    text, page = write(tmp_path, [done])
    assert len(page.of("th")) == 10
    assert len(page.of("thead")) == len(page.of("tbody")) == 1
    assert "aria-sort" in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(
    ("z", "far"),
    [(0.0, False), (3.99, False), (-3.99, False), (FAR, True), (-FAR, True), (math.inf, True), (math.nan, True)],
)
def test_an_exact_theory_that_is_missed_is_red(done, tmp_path, z, far):
    rows = tuple(dataclasses.replace(row, z=z if i == 1 else 0.5) for i, row in enumerate(done.agreement))
    _, page = write(tmp_path, [dataclasses.replace(done, agreement=rows)])
    marked = [[cls for cls, _ in row].count("disagrees") for row in page.cells()]
    assert marked == [0, int(far), 0, 0]
    assert f"{int(far)} disagree" in page.text
    values = [0.5, 0.5, 0.5] + ([z] if math.isfinite(z) else [])
    rms = math.sqrt(sum(v * v for v in values) / len(values))
    share = "3 of 4 numbers" if far else "all 4 numbers"
    assert f"{share} agree within 4 standard errors (root mean square z {rms:.2f}; 1 is chance alone)." in page.text
    assert ({"open": None} in page.of("details")) == far  # its table is open


def at_sizes(done, gaps, error=0.01, repeats=1000):
    """One row of the figure as a limit, at several d with these gaps; many repeats, so that z is gap over error."""
    first = done.agreement[0]
    kinds = {"predicted_error": 0.0, "measured_error": error, "exact": False, "repeats": repeats}
    return tuple(
        dataclasses.replace(first, d=d, predicted=1.0, measured=1 + gap, gap=gap, z=gap / error, **kinds)
        for d, gap in gaps.items()
    )


def test_a_gap_that_shrinks_is_the_size(done, tmp_path):
    rows = at_sizes(done, {20: 0.2, 40: 0.1})
    _, page = write(tmp_path, [dataclasses.replace(done, agreement=rows)])
    assert [row[-1] for row in page.cells()] == [
        ["size", "finite size: shrinks like 1/d: +20 % at d = 20, +10 % at d = 40"]
    ] * 2
    assert (
        "0 of 2 numbers agree, 2 differ by a gap that shrinks with d as a finite size does (typically 15 %)"
        in page.text
    )
    assert "and none disagrees." in page.text


@pytest.mark.negative
def test_a_gap_that_stays_is_a_disagreement(done, tmp_path):
    rows = at_sizes(done, {20: 0.1, 40: 0.1})
    _, page = write(tmp_path, [dataclasses.replace(done, agreement=rows)])
    assert [row[-1] for row in page.cells()] == [
        ["disagrees", "disagrees: does not shrink: +10 % at d = 20, +10 % at d = 40"]
    ] * 2
    assert "0 of 2 numbers agree and 2 disagree." in page.text
    assert "finite size does (typically" not in page.text


def test_one_size_leaves_the_trend_open(done, tmp_path):
    rows = at_sizes(done, {40: 0.1})
    _, page = write(tmp_path, [dataclasses.replace(done, agreement=rows)])
    assert [row[-1] for row in page.cells()] == [["undecided", "undecided: measured at d = 40 only"]]
    assert "0 of 1 numbers agree, 1 leave the trend open and none disagrees." in page.text


def test_flagged_predictions_are_counted_by_themselves(done, tmp_path):
    rows = tuple(
        dataclasses.replace(row, flagged=i > 1, z=9.0 if i > 1 else 0.5) for i, row in enumerate(done.agreement)
    )
    _, page = write(tmp_path, [dataclasses.replace(done, agreement=rows)])
    assert "all 2 numbers agree within 4 standard errors (root mean square z 0.50; 1 is chance alone)." in page.text
    assert "2 more numbers stand beside predictions that flag themselves as not to be trusted." in page.text
    assert [row[4][1] for row in page.cells()] == ["exact", "exact", "exact, flagged", "exact, flagged"]
    assert [row[9][0] for row in page.cells()] == ["agrees", "agrees", "flagged", "flagged"]


def test_labels_are_read_without_tex():
    assert plain(r"errors, $\lambda$ = 0.02") == "errors, λ = 0.02"
    assert plain(r"temperature, $\beta = \beta^*$ = 2") == "temperature, β = β* = 2"


def test_troubles_are_shown_and_escaped(done, tmp_path):
    text, page = write(tmp_path, [dataclasses.replace(done, troubles=("predict a<b: DIVERGED, it left.",))])
    assert {"class": "trouble"} in page.of("p")
    assert "predict a<b: DIVERGED, it left." in page.text
    assert "a&lt;b" in text


def test_a_page_without_comparisons(done, tmp_path):
    _, page = write(tmp_path, [dataclasses.replace(done, agreement=())])
    assert not page.of("table")
    assert "0 numbers of training or sampling" in page.text


def test_a_registered_figure_is_reproduced_and_reported(with_tiny, tmp_path, capsys):
    """A new figure is one `register` call: listing, files, agreement and report follow."""
    assert run(["figures"]) == 0
    assert "tiny" in capsys.readouterr().out
    assert run(["reproduce", "tiny", "erf-flow", "tiny", "--quick", "--out", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    heads = [line.split(":")[0].split() for line in err.splitlines() if line.startswith("[")]
    assert [number for number, _ in heads] == ["[1/2]", "[2/2]"]
    assert {name for _, name in heads} == {"tiny", "erf-flow"}
    assert err.startswith("2 figures: 15 points to compute by one process, about ")
    assert "4 comparisons, largest |z|" in err
    page = Page((tmp_path / "report.html").read_text())
    assert [h["id"] for h in page.of("h2")] == ["tiny", "erf-flow"]
    assert len(page.of("img")) == 2
    assert len(page.cells()) == len(found["agreement"]) == 4
    lines = (tmp_path / "agreement.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["figure", *["tiny"] * 4]
    assert {row["figure"] for row in found["agreement"]} == {"tiny"}


@pytest.fixture
def two(with_tiny, tiny):
    """The registry with a second cheap figure, which asks for some of the first one's points."""

    def points(size):
        return [p for p in tiny.points(size) if p.x == 1.0] + [
            dataclasses.replace(p, task=p.task.replace(snr=9.0), x=9.0) for p in tiny.points(size) if p.x == 4.0
        ]

    return registry.register(dataclasses.replace(tiny, id="other", title="Other", points=points))


def pages(folder):
    """The sections of the report, and the rows of the agreement by figure."""
    page = Page((folder / "report.html").read_text())
    lines = (folder / "agreement.csv").read_text().splitlines()[1:]
    return [h["id"] for h in page.of("h2")], Counter(line.split(",")[0] for line in lines), page


@pytest.mark.usefixtures("two")
def test_the_report_covers_everything_in_the_folder(tmp_path, capsys):
    """Whichever run has computed it; the picture of the first figure is that of the first run."""
    assert run(["reproduce", "tiny", "--out", str(tmp_path)]) == 0
    first = (tmp_path / "agreement.csv").read_text().splitlines()
    assert run(["reproduce", "other", "--out", str(tmp_path)]) == 0
    sections, rows, page = pages(tmp_path)
    assert sections == ["other", "tiny"]  # those of this run come first
    assert rows == {"tiny": 4, "other": 4}
    assert len(page.of("img")) == 2
    assert set(first) <= set((tmp_path / "agreement.csv").read_text().splitlines())
    # again, with nothing computed
    assert run(["reproduce", "other", "--out", str(tmp_path)]) == 0
    assert pages(tmp_path)[:2] == (sections, rows)
    capsys.readouterr()


@pytest.mark.usefixtures("two")
@pytest.mark.slow
def test_both_sizes_are_covered_and_nothing_twice(tmp_path, capsys):
    assert run(["reproduce", "tiny", "--out", str(tmp_path)]) == 0
    assert run(["reproduce", "tiny", "--full", "--out", str(tmp_path)]) == 0
    sections, rows, page = pages(tmp_path)
    assert sections == ["tiny", "tiny-quick"]
    assert rows == {"tiny": 8}  # four repeats and eight; the other figure has nothing of its own
    assert len(page.of("img")) == 1  # the file has the picture of the full size
    assert "full and quick size" in page.text
    capsys.readouterr()


@pytest.mark.usefixtures("two")
def test_after_ctrl_c_what_is_finished_is_in_the_report(tmp_path, capsys, monkeypatch):
    from needlepoint.studies.execution import executors

    honest, solved = executors.solve, []

    def interrupted(unit, *args):
        if len(solved) == 7:  # six points are the first figure's, and three more the second's
            signal.raise_signal(signal.SIGINT)
        solved.append(unit)
        return honest(unit, *args)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(executors, "solve", interrupted)
            assert run(["reproduce", "tiny", "other", "--out", str(tmp_path)]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    kept = tmp_path / "points.sqlite"
    said = f"needlepoint: interrupted; what is done is kept in {kept}, and the same command goes on."
    assert capsys.readouterr().err.splitlines()[-1] == said
    sections, rows, page = pages(tmp_path)
    assert sections == ["tiny"]
    assert rows == {"tiny": 4}
    assert len(page.of("img")) == 1
    assert run(["reproduce", "tiny", "other", "--out", str(tmp_path)]) == 0
    assert pages(tmp_path)[1] == {"tiny": 4, "other": 4}
    assert not list(tmp_path.glob(".*.new"))
    capsys.readouterr()


def test_what_there_is_of_an_unfinished_figure_is_shown(tiny, tmp_path):
    with Store(tmp_path / "points.sqlite") as store:
        compute([p for p in tiny.points("quick") if p.x == 1.0], store=store)
        assert everything(store, [tiny], tmp_path, [], thorough=False) == []
        (one,) = everything(store, [tiny], tmp_path, [])
        assert (len(one.agreement), one.files, one.missing) == (2, (), 3)
        assert strangers(store, []) == 3
    assert "3 points of this figure (quick size) are not computed yet." in write(tmp_path, [one])[1].text


@pytest.mark.usefixtures("two")
@pytest.mark.slow
def test_points_of_no_figure_are_counted(tmp_path, capsys, monkeypatch):
    assert run(["reproduce", "tiny", "other", "--out", str(tmp_path)]) == 0
    monkeypatch.delitem(registry._FIGURES, "other")
    assert run(["reproduce", "tiny", "--out", str(tmp_path)]) == 0
    sections, _, page = pages(tmp_path)
    assert sections == ["tiny"]
    assert "3 points in the store belong to no figure of this version" in page.text
    capsys.readouterr()


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("value", ["'{'", "NULL"])
@pytest.mark.slow
def test_what_a_store_remembers_of_a_figure_may_be_damaged(tmp_path, capsys, value):
    assert run(["reproduce", "tiny", "--out", str(tmp_path)]) == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "points.sqlite", isolation_level=None)) as db:
        db.execute(f"UPDATE meta SET value = {value} WHERE key LIKE 'figure %' OR key LIKE 'drawn %'")
    assert run(["reproduce", "other", "--out", str(tmp_path)]) == 0
    assert pages(tmp_path)[1] == {"tiny": 2, "other": 4}  # the rest of the first one's points are the second's too
    capsys.readouterr()


def test_a_file_that_cannot_be_written_is_one_sentence(with_tiny, tmp_path, capsys):
    """The folder is writable but the report's name is taken by a folder."""
    (tmp_path / "report.html").mkdir()
    assert run(["reproduce", "tiny", "--quick", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    *_, last = err.splitlines()
    assert last.startswith("needlepoint: ")
    assert "report.html" in last


def test_a_line_says_what_a_figure_comes_to(done):
    def line(**change):
        return agreement_line([dataclasses.replace(row, **change) for row in done.agreement])

    assert line(z=-2.0) == ", 4 comparisons, largest |z| 2.00"
    assert line(z=5.0, exact=False, d=40) == ", 4 comparisons, largest |z| 5.00 (of a limit, at d = 40)"
    assert line(flagged=True) == "; 4 beside flagged predictions"
    assert "nan" in agreement_line([*done.agreement, dataclasses.replace(done.agreement[0], z=math.nan)])
    assert agreement_line([]) == ""
