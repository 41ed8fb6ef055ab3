"""Every tab in a real browser: it loads, answers with Python's numbers, and says nothing on the console."""

import math

import pytest

import needlepoint as ndl
from needlepoint.checkpoints.examples import tiny_checkpoint

from browsing import browser, need_browser, server

MINE = """
import jax.numpy as jnp
import needlepoint as ndl

@ndl.activation("mine", form="elementwise")
def mine(scores):
    return 1 + jnp.tanh(scores)
"""
TASK, LINEAR = ndl.SpikedSLR(2, snr=1.0), ndl.KeyValueAttention(ndl.Linear())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    need_browser()
    pytest.importorskip("uvicorn", reason="no uvicorn: pip install 'needlepoint[explorer]'")
    found = tmp_path_factory.mktemp("shelf")
    tiny_checkpoint(found, "bert").rename(found / "my-model")
    ndl.sweep(TASK, LINEAR, ndl.Population(), {"task.snr": [1.0, 2.0, 4.0]}, store=found / "study.sqlite").close()
    (found / "mine.py").write_text(MINE)
    return found


@pytest.fixture(scope="module")
def tabs(folder):
    """A function that opens a tab of an explorer with a folder and a theory, and the page."""
    with server(folder, "--theory", folder / "mine.py") as (process, address), browser() as page:

        def open_tab(query, ready):
            if page.driver.current_url.startswith("http"):
                page.js(
                    "history.pushState(null, '', arguments[0]); dispatchEvent(new PopStateEvent('popstate'))", query
                )
            else:
                page.open(address.replace("/#", f"/{query}#"))
            page.until(ready, f"{query}: {ready}", process.pid)
            return page

        yield open_tab, process


@pytest.fixture
def quiet(tabs):
    """The page says nothing on the console, and asks nothing of any other address."""
    yield
    page = tabs[0]("?tab=own", "document.getElementById('own')")
    assert page.errors() == []
    own = page.js("return location.origin") + "/"
    assert [a for a in page.addresses() if not a.startswith((own, "data:", "blob:"))] == []


@pytest.mark.usefixtures("quiet")
def test_dynamics_run_as_python_says(tabs):
    open_tab, process = tabs
    page = open_tab("?tab=dynamics&steps=400&key=0.3&value=0.2", "document.getElementById('verdict')?.dataset.key")
    task, model = ndl.SpikedSLR(3, 4.0), ndl.KeyValueAttention(ndl.Erf(scale=0.4), unit_norm=True)
    start = ndl.Overlaps(key=0.3, value=0.2)
    found = ndl.predict(task, model, ndl.ProjectedDescent(0.02, 400, start, record_every=2)).trajectory
    assert float(page.data("#verdict", "key")) == found.end().key
    page.until(
        "document.querySelector('.plot').data?.some((t) => t.name === 'minimum')", "the fixed points", process.pid
    )
    name = page.js(
        "const p = document.querySelector('.plot').data.find((t) => t.name === 'minimum'); return [p.x[0], p.y[0]]"
    )
    assert name == [1, 1]


@pytest.mark.usefixtures("quiet")
def test_a_spectrum_is_what_python_says_and_own_eigenvalues_are_drawn(tabs, tmp_path):
    open_tab, process = tabs
    page = open_tab("?tab=spectra", "document.getElementById('verdict')?.dataset.atom")
    task = ndl.AttentionIndexed(2, ndl.Wishart(0.5), noise_var=0.1)
    law = ndl.predict(task, ndl.TiedAttention(), ndl.Ridge(0.3, 0.02)).spectrum
    assert float(page.data("#verdict", "atom")) == law.atom
    matrix = tmp_path / "matrix.txt"
    matrix.write_text("1 2\n2 1\n")
    page.one("#own-file").send_keys(str(matrix))
    page.until("document.querySelector('[data-own]')", "the eigenvalues", process.pid)
    own = page.js(
        "const t = document.querySelector('.plot').data.find((t) => t.name === 'your own'); return t.y.some(Boolean)"
    )
    assert own


@pytest.mark.usefixtures("quiet")
def test_a_map_opens_a_point(tabs):
    open_tab, process = tabs
    page = open_tab("?tab=maps&map=indexed&points=4&levels=0", "document.querySelector('[data-points=\"16\"]')")
    page.js("const p = document.querySelector('.plot'); p.emit('plotly_click', {points: [{customdata: 5}]})")
    page.until("document.getElementById('open-point')", "the point", process.pid)
    page.click("#open-point")
    page.until("document.getElementById('verdict')?.dataset.atom", "the spectrum there", process.pid)
    x = float(page.js("return new URLSearchParams(location.search).get('alpha')"))
    assert math.isclose(x, 0.05 * 40 ** (1 / 3))


@pytest.mark.usefixtures("quiet")
def test_heads_of_a_checkpoint(tabs, folder):
    open_tab, process = tabs
    page = open_tab("?tab=heads", "document.querySelector('[data-head=\"0.0\"]')")
    page.js("[...document.querySelectorAll('.grid button')].find((b) => b.textContent === '1.2').click()")
    page.until("document.querySelector('[data-head=\"1.2\"]')", "the head", process.pid)
    drawn = page.js("return document.querySelectorAll('.plot')[1].data[0].y")
    report = ndl.heads(ndl.read_checkpoint(folder / "my-model"), layer=1, head=2)
    assert drawn == report.heads[0].values.tolist()


@pytest.mark.usefixtures("quiet")
def test_a_study_is_drawn(tabs, folder):
    before = (folder / "study.sqlite").read_bytes()
    page = tabs[0]("?tab=study", "document.getElementById('verdict')?.dataset.rows === '3'")
    drawn = page.js("return document.querySelector('.plot').data[0].y")
    assert drawn == [
        ndl.predict(ndl.SpikedSLR(2, snr), LINEAR, ndl.Population()).excess_risk.value for snr in (1, 2, 4)
    ]
    assert (folder / "study.sqlite").read_bytes() == before


@pytest.mark.usefixtures("quiet")
def test_a_theory_of_ones_own_is_asked(tabs):
    open_tab, process = tabs
    page = open_tab("?tab=own&learner=Population()", "document.getElementById('own')")
    assert "mine" in page.text("#own")
    page.click("#predict")
    page.until("document.getElementById('verdict').dataset.risk", "the answer", process.pid)
    assert "KeyValueAttention(activation=mine())" in page.text("#answer")


def test_a_saved_study_opens_from_disk(folder, tmp_path):
    path = ndl.explore(folder / "study.sqlite", export=tmp_path / "page.html")
    with browser() as page:
        page.open(path.as_uri())
        page.until("document.getElementById('verdict')?.dataset.rows === '3'", "the study")
        page.until("document.querySelector('.plot').data?.length", "the picture")
        assert page.errors() == []
        assert [a for a in page.addresses() if not a.startswith(("data:", "blob:"))] == [path.as_uri()]
    assert path.stat().st_size < 2e6
