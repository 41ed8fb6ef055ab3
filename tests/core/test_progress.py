"""Progress: only after two seconds, one display at a time, never on standard output, and nothing left behind."""

import io
import subprocess
import sys
import threading

import pytest

import needlepoint as ndl
from needlepoint.core import progress
from needlepoint.core.progress import Bar, Lines, Watch, duration, in_notebook, on_terminal, summary, watched, watching


@pytest.fixture(autouse=True)
def loud(monkeypatch):
    """The suite silences progress, because a busy machine would write lines that tests do not expect."""
    monkeypatch.delenv(progress.SILENCE)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Display:
    def __init__(self):
        self.seen, self.ended = [], []

    def show(self, text, fraction, seconds):
        self.seen.append((text, fraction, seconds))

    def close(self, text, seconds, done):
        self.ended.append((text, seconds, done))


def watch(display):
    clock = Clock()
    return Watch("predict", lambda: display, clock), clock


# --- when something is shown ---------------------------------------------------------------------


def test_nothing_appears_within_two_seconds():
    display = Display()
    one, clock = watch(display)
    clock.now += 1.99
    one.tick()
    one.close(done=True)
    assert (display.seen, display.ended) == ([], [])


def test_after_two_seconds_it_appears_with_what_is_known():
    display = Display()
    one, clock = watch(display)
    clock.now += 2.0
    one.tick()
    one.update(0.25)
    clock.now += 1.0
    one.tick()
    one.update(2.0, "drawing")  # a fraction beyond 1 is 1
    one.tick()
    one.close(done=True)
    assert display.seen == [("predict", None, 2.0), ("predict", 0.25, 3.0), ("drawing", 1.0, 3.0)]
    assert display.ended == [("drawing", 3.0, True)]


def test_lines_come_every_five_seconds_and_end():
    stream, clock = io.StringIO(), Clock()
    one = Watch("simulate d=40", lambda: Lines(stream), clock)
    for _ in range(48):  # twelve seconds
        clock.now += 0.25
        one.update((clock.now - 100.0) / 20)
        one.tick()
    one.close(done=True)
    assert stream.getvalue().splitlines() == [
        "needlepoint: simulate d=40: 10 %, 2 s, about 18 s left",
        "needlepoint: simulate d=40: 35 %, 7 s, about 13 s left",
        "needlepoint: simulate d=40: 60 %, 12 s, about 8 s left",
        "needlepoint: simulate d=40: done after 12 s",
    ]


def test_a_reader_that_has_gone_stops_nothing():
    closed = io.StringIO()
    closed.close()
    Lines(closed).show("predict", 0.5, 9.0)
    assert not on_terminal(closed)
    assert not on_terminal(None)


def test_a_bar_is_drawn_on_its_stream_and_leaves_nothing():
    stream = Terminal()
    bar = Bar(stream)
    bar.show("predict", None, 2.0)
    bar.show("predict [1/3]", 0.5, 4.0)
    bar.close("predict", 4.0, done=True)
    shown = stream.getvalue()
    assert "predict [1/3]: 50 %, 4 s, about 4 s left" in shown
    assert shown.rstrip().endswith(("\x1b[2K", "\x1b[?25h"))  # the line is cleared and the cursor shown again


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (12.4, "12 s"), (185, "3 min 05 s"), (7620, "2 h 07 min"), (59.7, "1 min 00 s")],
)
def test_durations_are_words(seconds, words):
    assert duration(seconds) == words


def test_little_is_said_while_little_is_known():
    assert summary("predict", None, 3.0) == "predict, 3 s"
    assert summary("predict", 0.01, 3.0) == "predict: 1 %, 3 s"
    assert summary("predict", 1.0, 3.0) == "predict: 100 %, 3 s"


# --- who sees it ---------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """Displays that open at once, recorded."""
    made = []

    def make(stream):
        made.append(Display())
        return made[-1]

    monkeypatch.setattr(progress, "TIMING", progress.Timing(patience=0.0, tick=0.01))
    monkeypatch.setattr(progress, "_display", make)
    return made


def opened(made):
    """Wait until a display is open."""
    while not made or not made[-1].seen:
        threading.Event().wait(0.005)


def test_true_shows_and_false_does_not(quick):
    with watched("predict", True) as update:
        update(0.5)
        opened(quick)
    assert len(quick) == 1
    assert quick[0].ended[0][2] is True
    with watched("predict", False) as update:
        update(0.5)
    assert len(quick) == 1


def test_a_variable_silences_everything(quick, monkeypatch):
    monkeypatch.setenv(progress.SILENCE, "off")
    with watched("predict", True) as update:
        update(0.5)
    assert quick == []


def test_by_default_it_is_shown_on_a_terminal_only(quick, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with watched("predict") as update:
        update(0.5)
    assert quick == []
    monkeypatch.setattr(sys, "stderr", Terminal())
    with watched("predict"):
        opened(quick)
    assert len(quick) == 1


def test_what_is_nested_shows_one(quick):
    with watched("compare", True) as outer:
        outer(0.1)
        opened(quick)
        with watched("predict", True) as inner:
            inner(0.9)
    assert len(quick) == 1
    assert all(fraction in (None, 0.1) for _, fraction, _ in quick[0].seen)
    with watched("predict", True):
        opened(quick[1:] or quick)  # and afterwards the next one may show
    assert not progress._showing.locked()


def test_an_error_ends_the_display(quick):
    before = threading.active_count()

    def fail():
        with watched("predict", True):
            opened(quick)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert quick[0].ended[0][2] is False
    assert threading.active_count() == before
    assert not progress._showing.locked()


def test_a_display_that_fails_does_not_stop_the_computation(quick, monkeypatch):
    def broken(stream):
        raise RuntimeError("no display")

    monkeypatch.setattr(progress, "_display", broken)
    with watched("predict", True) as update:
        update(1.0)
    assert not progress._showing.locked()


def test_a_function_is_called_and_nothing_is_shown(quick):
    seen = []
    task = ndl.SpikedSLR(2, snr=2.0)
    ndl.simulate(task, None, ndl.BayesOptimal(), d=8, repeats=3, samples=50, progress=seen.append)
    assert seen[-1] == 1.0
    assert seen == sorted(seen)
    assert quick == []


VERBS = {
    "predict": lambda p: ndl.predict(ndl.SpikedSLR(2, 2.0), None, ndl.BayesOptimal(), progress=p),
    "simulate": lambda p: ndl.simulate(
        ndl.SpikedSLR(2, 2.0), None, ndl.BayesOptimal(), d=8, repeats=2, samples=20, progress=p
    ),
    "sweep": lambda p: ndl.sweep(
        ndl.SpikedSLR(2, 2.0), None, ndl.BayesOptimal(), {"task.snr": [1.0, 2.0]}, progress=p
    ).close(),
    "bayes_scan": lambda p: ndl.bayes_scan(ndl.SpikedSLR(2, 4.0, noise=0.2), [1.0], progress=p),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_long_verb_takes_progress(verb, capfd):
    seen = []
    for value in (None, True, False, seen.append):
        VERBS[verb](value)
    assert seen
    assert seen[-1] == pytest.approx(1.0)
    assert capfd.readouterr().out == ""
    with pytest.raises(ndl.InvalidParameter, match=r"progress must be None \(shown if you are watching\)"):
        VERBS[verb]("yes")


def test_compare_follows_the_repeats():
    asked = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.04), ndl.TiedAttention(), ndl.Ridge(0.5, 0.1)
    measured = [ndl.simulate(*asked, d=d, repeats=2, samples=20) for d in (6, 8)]
    seen = []
    ndl.compare(ndl.predict(*asked), measured, progress=seen.append)
    assert seen == [0.0, 0.25, 0.5, 0.75]


def test_a_sweep_counts_the_points_under_way():
    over = {"learner.alpha": [1.0, 2.0, 4.0, 8.0]}
    asked = ndl.SpikedSLR(2, 3.0, noise=0.1), ndl.KeyValueAttention(ndl.Linear()), ndl.Ridge(4.0, 0.3)
    seen = []
    ndl.sweep(*asked, over, progress=seen.append).close()
    assert seen == sorted(seen)
    assert {0.25, 0.5, 0.75, 1.0} <= set(seen)


def test_the_decorator_takes_what_verbs_take():
    @watching("count")
    def count(n, *, progress):
        for i in range(n):
            progress((i + 1) / n)
        return n

    seen = []
    assert count(2, progress=seen.append) == 2
    assert seen == [0.5, 1.0]
    assert count(2) == 2


def test_this_is_no_notebook():
    assert not in_notebook()


# --- a pipe --------------------------------------------------------------------------------------

SLOW = """
import time
import needlepoint.core.progress as progress
progress.TIMING = progress.Timing(patience=0.05, tick=0.01, line=0.05)
with progress.watched("predict", {asked}) as update:
    for i in range(20):
        time.sleep(0.02)
        update((i + 1) / 20)
print("answer")
"""


def piped(asked):
    return subprocess.run([sys.executable, "-c", SLOW.format(asked=asked)], capture_output=True, text=True, check=True)


def test_a_pipe_has_lines_on_standard_error_only():
    done = piped("True")
    assert done.stdout == "answer\n"
    lines = done.stderr.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("needlepoint: predict") for line in lines)
    assert "done after" in lines[-1]
    assert "\x1b" not in done.stderr


def test_a_pipe_is_silent_unless_asked():
    done = piped("None")
    assert (done.stdout, done.stderr) == ("answer\n", "")


def test_nothing_is_imported_for_it():
    code = (
        "import sys, needlepoint as ndl\n"
        "ndl.predict(ndl.SpikedSLR(2, 2.0), None, ndl.BayesOptimal(), progress=True)\n"
        "assert not {'rich', 'IPython'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
