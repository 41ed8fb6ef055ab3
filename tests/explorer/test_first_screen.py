"""The first screen in a real browser: numbers of the page are Python's, training streams and stops, history works."""

import contextlib
import io
import shlex
from pathlib import Path

import pytest

import needlepoint as ndl

from browsing import settled
from waiting import until

IDLE = "document.getElementById('state').dataset.busy === 'false'"


def row(page, model):
    """The numbers of a model, as text of the table's row and the value behind it."""
    return f"document.querySelector('#numbers tr[data-model=\"{model}\"]')"


def solved(page, explorer, model="linear"):
    """Wait until a row is the solver's, then stop what else is under way."""
    page.until(f"{row(page, model)}.dataset.source === 'live'", f"{model} solved", explorer[0].pid)
    page.js("document.getElementById('cancel')?.click()")
    page.until(IDLE, "the end of the work", explorer[0].pid)


def alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_the_token_is_out_of_the_address(page):
    assert "token" not in page.driver.current_url
    assert page.driver.get_cookies() == []


def test_a_slider_moves_the_curve_to_what_python_says(page, explorer):
    page.set("snr", 4)
    page.set("alpha", 3)
    solved(page, explorer)
    expected = ndl.predict(
        ndl.SpikedSLR(2, 4.0, noise=0.3), ndl.KeyValueAttention(ndl.Linear()), ndl.Ridge(3.0, "optimal")
    )
    assert float(page.js(f"return {row(page, 'linear')}.dataset.risk")) == expected.risk.value
    drawn = page.js(
        "const t = document.querySelector('.plot').data.find((t) => t.name === 'linear' && t.mode === 'markers');"
        "return [t.x[0], t.y[0]]"
    )
    assert drawn == [3, expected.risk.value]


def test_the_penalty_slider_asks_for_that_penalty(page, explorer):
    page.set("penalty", 2)
    page.until(f"{row(page, 'linear')}.dataset.other", "the risk at twice the penalty", explorer[0].pid)
    task, model = ndl.SpikedSLR(2, 4.0, noise=0.3), ndl.KeyValueAttention(ndl.Linear())
    best = ndl.predict(task, model, ndl.Ridge(3.0, "optimal"))
    there = ndl.predict(task, model, ndl.Ridge(3.0, tuple(2 * x for x in best.resolved[2].lam)))
    found = float(page.js(f"return {row(page, 'linear')}.dataset.other"))
    assert found == pytest.approx(there.risk.value, abs=2 * there.risk.error)
    page.js("document.getElementById('cancel')?.click()")
    page.until(IDLE, "the end of the work", explorer[0].pid)


def test_the_code_that_is_shown_gives_the_number(page, call):
    code = page.text("#python")
    assert "ndl.SpikedSLR(tokens=2, snr=4.0, noise=0.3)" in code
    scope = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, scope)
    assert scope["found"].best.prediction.risk.value == float(page.js(f"return {row(page, 'linear')}.dataset.risk"))
    _, *words = shlex.split(page.text("#command").replace("\\\n", " "))
    exit_code, out, _ = call(*words)
    assert exit_code == 0
    assert out.strip() == str(scope["found"]).replace("linear", "Linear").strip()


def test_back_and_forward_restore_the_state(page):
    page.set("tokens", 3)
    page.js(
        "const e = document.querySelector('#select-task'); e.value = 'MaxSLR'; e.dispatchEvent(new Event('change'))"
    )
    assert "task=MaxSLR" in page.driver.current_url
    page.driver.back()
    page.until("document.getElementById('select-task').value === 'SpikedSLR'", "back")
    assert page.js("return document.getElementById('number-tokens').value") == "3"
    page.driver.back()
    page.until("document.getElementById('number-tokens').value === '2'", "back again")
    page.driver.forward()
    page.until("document.getElementById('number-tokens').value === '3'", "forward")
    page.driver.back()
    page.until("document.getElementById('number-tokens').value === '2'", "back to where it was")


def test_training_streams_is_cancelled_and_its_worker_is_gone(page, explorer):
    page.js("document.getElementById('check-model').value = 'linear'; document.getElementById('check-d').value = '50'")
    page.click("#check")
    page.until("document.querySelector('[data-repeats]')?.dataset.repeats >= 3", "three seeds", explorer[0].pid)
    assert "z = " in page.text("#check-said")
    worker = int(page.js("return document.querySelector('[data-worker]').dataset.worker"))
    assert alive(worker)
    page.click("#check-cancel")
    until(lambda: not alive(worker), "the end of the worker", explorer[0].pid)
    settled(page)
    assert "stopped" in page.text("#check-said")
    assert page.js("return document.getElementById('check').disabled") is False


def test_nothing_uploads_and_nothing_leaves_the_machine(page, explorer):
    own = explorer[1].partition("/#")[0]
    assert {a for a in page.addresses() if not a.startswith((own + "/", "data:", "blob:"))} == set()
    text = page.js("return document.body.innerHTML")
    assert "share" not in text.lower()
    assert "cloud" not in text.lower()
    assert page.errors() == []


def test_the_page_refuses_to_ask_without_the_token(explorer, page):
    sentence = page.js(
        "return fetch('/ask', {method: 'POST', body: '{}', headers: {'content-type':"
        " 'application/json'}}).then((r) => r.json()).then((r) => r.sentence)"
    )
    assert "whole address" in sentence
    page.errors()  # the browser notes the 401
