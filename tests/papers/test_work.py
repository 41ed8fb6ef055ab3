"""The computing of several figures from one queue: order, completeness, other processes, and what is seen of it."""

import dataclasses
import io
import re
import sys
import time

import pytest

import needlepoint as ndl
from needlepoint.cli import run, watching
from needlepoint.cli.watching import Watch, duration, watched
from needlepoint.papers import figures as registry
from needlepoint.papers.figures import HEADLINES, Point, figures, headlines_first
from needlepoint.papers.work import Asked, Queue, compute_all
from needlepoint.studies.execution.executors import Processes, Serial, started
from needlepoint.studies.storage.store import Store

CHEAP = {"d": 4, "repeats": 4, "samples": 100, "seed": 1}


def question(snr):
    return ndl.SpikedSLR(2, snr, noise=0.3), ndl.LinearRegression(), ndl.Population()


def following(*snrs):
    """A prediction for each snr, and a simulation that follows it."""
    points = [Point("predict", *question(snr), label="linear", x=snr) for snr in snrs]
    return points + [Point("simulate", *question(snr), CHEAP, "linear", snr, follow=True) for snr in snrs]


def test_simulations_wait_for_what_they_follow():
    with Store() as store:
        queue = Queue([Asked(following(1.0, 2.0))], store)
        first, second = next(queue), next(queue)
        assert [u.jobs[0].verb for u in (first, second)] == ["predict", "predict"]
        with pytest.raises(StopIteration):
            next(queue)
        assert queue.finish(second.jobs[0]) == []
        third = next(queue)  # it goes on after it has stopped
        assert (third.jobs[0].verb, third.jobs[0].question[0].snr) == ("simulate", 2.0)
        with pytest.raises(StopIteration):
            next(queue)


def test_figures_are_complete_when_their_last_point_is_there():
    one, two = Asked(following(1.0)), Asked(following(1.0, 2.0))
    order, progress = [], []
    with Store() as store:
        queue = Queue([one, two], store)
        assert (queue.total, queue.units) == (4, 4)  # what they share is computed once
        compute_all(queue, store, Serial(), order.append, lambda q: progress.append(q.spent / q.cost))
        assert order == [one, two]
        assert progress == sorted(progress)
        assert progress[-1] == pytest.approx(1.0)
        assert [len(a.records(store)[0]) for a in order] == [2, 4]
        again = Queue([Asked(following(1.0, 2.0))], store)
        assert again.total == 0
        done = []
        compute_all(again, store, Serial(), done.append)
        assert done == list(again.asked)


def test_predictions_of_a_curve_are_solved_together():
    """One unit, whose answers are those of `predict` alone, within their errors."""
    task, model = ndl.SpikedSLR(2, 2.0, noise=0.1), ndl.KeyValueAttention(ndl.Linear())
    points = [Point("predict", task, model, ndl.Ridge(a, 0.5), {"tol": 0.05}, "linear", a) for a in (4.0, 1.0, 2.0)]
    other = Point("predict", task, model, ndl.Ridge(3.0, 0.5), {"tol": 0.04}, "linear", 3.0)
    with Store() as store:
        asked = Asked([*points, other])
        queue = Queue([asked], store)
        units = list(queue)
        assert [[job.question[2].alpha for job in unit.jobs] for unit in units] == [[1.0, 2.0, 4.0], [3.0]]
        compute_all(Queue([asked], store), store, Serial(), lambda one: None)
        records, seconds = asked.records(store)
    assert [r.point for r in records] == [*points, other]
    assert seconds > 0
    alone = ndl.predict(*points[1].question, tol=0.05).excess_risk
    together = records[1].result.excess_risk
    assert abs(together.value - alone.value) <= together.error + alone.error


def test_processes_give_the_same_numbers_as_one(tiny, tmp_path):
    def numbers(executor, path):
        asked = Asked(tiny.points("quick"), tiny)
        with Store(path) as store, started(executor):
            done = []
            compute_all(Queue([asked], store), store, executor, done.append)
            assert done == [asked]
            return [r.result.to_json() for r in asked.records(store)[0]]

    assert numbers(Processes(2), tmp_path / "a.sqlite") == numbers(Serial(), tmp_path / "b.sqlite")


@pytest.mark.usefixtures("with_tiny")
def test_the_command_computes_on_processes_when_told(tmp_path, capsys):
    assert run(["reproduce", "tiny", "--executor", "processes", "--workers", "2", "--out", str(tmp_path)]) == 0
    err = capsys.readouterr().err
    assert err.startswith("1 figure: 6 points to compute by 2 processes, about ")
    assert "[1/1] tiny: " in err
    assert len((tmp_path / "agreement.csv").read_text().splitlines()) == 5


@pytest.mark.usefixtures("with_tiny")
def test_the_report_is_there_after_each_figure(tiny, tmp_path, monkeypatch, capsys):
    """When a figure is announced its section and its rows are in the files."""
    registry.register(dataclasses.replace(tiny, id="other", title="Other"))
    seen = []
    from needlepoint.cli import figures as command

    line = command.agreement_line

    def said(rows):
        text = (tmp_path / "report.html").read_text()
        seen.append((len(re.findall("<section>", text)), (tmp_path / "agreement.csv").read_text().count("\n") - 1))
        return line(rows)

    monkeypatch.setattr(command, "agreement_line", said)
    assert run(["reproduce", "tiny", "other", "--out", str(tmp_path)]) == 0
    assert seen == [(1, 4), (2, 8)]
    capsys.readouterr()


# --- what is seen --------------------------------------------------------------------------------


def test_headlines_are_first_and_one_of_each_body_of_work():
    order = headlines_first(figures())
    assert tuple(order[:3]) == HEADLINES
    assert {figures()[name].paper for name in HEADLINES} == {"2410.01537", "2509.21936", "2509.24914"}
    assert sorted(order) == sorted(figures())
    costs = [figures()[name].cost for name in order[3:]]
    assert costs == sorted(costs, reverse=True)


def test_a_pipe_gets_a_line_every_few_seconds(monkeypatch):
    monkeypatch.setattr(watching, "LINES", 0.02)
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    watch = Watch(3, 2)
    with Store() as store, watched(watch) as say:
        watch.show(Queue([Asked(following(1.0))], store))
        say("hello")
        for _ in range(200):
            if text.getvalue().count("\n") > 3:
                break
            time.sleep(0.02)
    lines = text.getvalue().splitlines()
    assert lines[0] == "hello"
    assert re.fullmatch(r" +0:\d\d   0 %, 0 of 3 figures, about 10 s left; .*", lines[1])


def test_the_time_left_follows_the_rate(monkeypatch):
    watch = Watch(2, 2)
    watch._spent, watch._cost = 0.0, 120.0
    monkeypatch.setattr(Watch, "elapsed", 0.0)
    assert watch.left == pytest.approx(60.0)  # two cores
    watch._spent = 60.0
    monkeypatch.setattr(Watch, "elapsed", 3000.0)  # a busy machine: 60 of cost took 3,000 s
    assert 1000 < watch.left < 3000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "10 s"), (34, "30 s"), (58, "1 min 00 s"), (94, "1 min 30 s"), (299, "5 min 00 s"), (1000, "17 min")],
)
def test_durations_are_as_a_person_says_them(seconds, text):
    assert duration(seconds) == text
