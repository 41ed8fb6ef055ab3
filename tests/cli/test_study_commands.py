"""The commands sweep and study: interruption, stores, and what study shows."""

import csv
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import needlepoint as ndl
from needlepoint.cli import interrupts as cli_interrupts
from needlepoint.cli import run
from needlepoint.studies.execution import executors
from needlepoint.studies.storage.store import Store
from needlepoint.studies.sweeps import Sweep

import waiting
from studies_cli_cases import ALSO, HARD, HEAD, OVER, refused
from waiting import until


def test_an_interrupted_sweep_says_what_is_kept_and_goes_on(call, document, written, monkeypatch):
    file = written(HEAD + OVER)
    honest, asked = executors.solve, []

    def interrupted(unit, *args):
        asked.append(unit)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return honest(unit, *args)

    with monkeypatch.context() as patch:
        patch.setattr(executors, "solve", interrupted)
        code, out, err = call("sweep", file)
    store = file.with_suffix(".sqlite")
    assert (code, out) == (130, "")
    sentence = f"needlepoint: interrupted; what is done is kept in {store}, and the same command goes on.\n"
    assert err.endswith(sentence)
    found = document("sweep", file)
    assert (found["done"], found["reused"]) == (3, 2)


def test_ctrl_c_as_a_program(tmp_path):
    """A real signal: the program ends within seconds, and the store is whole."""
    file = tmp_path / "study.toml"
    file.write_text(
        HEAD.replace("KeyValueAttention(Softmax())", "LinearRegression()")
        + OVER
        + "[also]\nd = 5\nrepeats = 100000\nsamples = 50\n"
    )
    store = tmp_path / "study.sqlite"
    # what is started in the background may be told to ignore the signal
    start = "import signal as s; s.signal(s.SIGINT, s.default_int_handler); from needlepoint.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", start, "sweep", file, "--yes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        until(lambda: count(store) >= 4, "points", program.pid)
        program.send_signal(signal.SIGINT)
        waiting.ended(program)  # 300,000 simulations would take hours
        out, err = program.communicate()
    assert (program.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("needlepoint: interrupted; what is done is kept in ")
    assert "Traceback" not in err
    with Store(store) as kept:
        assert kept._one("PRAGMA integrity_check") == "ok"
        assert sum(kept.counts().values()) >= 4


def test_the_listener_closes_its_socket(monkeypatch):
    made = []
    honest = socket.socketpair

    def watched():
        made.append(honest())
        return made[-1]

    monkeypatch.setattr(cli_interrupts.socket, "socketpair", watched)
    with cli_interrupts.stopping("stopped"):
        pass
    (pair,) = made
    assert [end.fileno() for end in pair] == [-1, -1]


def test_a_computation_that_stops_by_itself_is_not_killed(monkeypatch):
    """An interrupt is raised where it is asked for, not where it arrives."""
    killed = []
    monkeypatch.setattr(cli_interrupts, "_GRACE", 60.0)
    monkeypatch.setattr(cli_interrupts.os, "_exit", killed.append)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with cli_interrupts.stopping("stopped") as check:
            check()
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                check()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert killed == []  # the listener has ended with the block


@pytest.mark.parametrize("presses", [1, 2])
def test_a_computation_that_does_not_stop_is_ended(monkeypatch, capsys, presses):
    """After the grace, or at once when Ctrl-C is pressed again."""
    killed = []
    monkeypatch.setattr(cli_interrupts, "_GRACE", 0.01 if presses == 1 else 1e6)
    monkeypatch.setattr(cli_interrupts.os, "_exit", killed.append)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with cli_interrupts.stopping("stopped, and kept."):
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)
                heard = list(killed)
                if presses == 2 and not heard:
                    time.sleep(0.2)  # two that come together are one
            until(lambda: killed, "the end")
    finally:
        signal.signal(signal.SIGINT, before)
    assert killed == [130]
    assert capsys.readouterr().err == "needlepoint: stopped, and kept.\n"


def count(path):
    try:
        with Store(path, create=False, readonly=True) as store:
            return sum(store.counts().values())
    except ndl.NeedlepointError:
        return 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two stores and a file that is none."""
    path = tmp_path_factory.mktemp("stores")
    text = {"good": HEAD + OVER + ALSO, "hard": HARD + ALSO.replace("[1, 5]", "[1, inf]")}
    for name, content in text.items():
        (path / f"{name}.toml").write_text(content)
        assert run(["sweep", str(path / f"{name}.toml")]) in (0, 3)
    (path / "broken.sqlite").write_text("nothing of the kind\n" * 100)
    Store(path / "figures.sqlite").close()
    return path


def test_study_ls(document, call, folder):
    rows = document("study", "ls", folder)
    assert [Path(r["file"]).name for r in rows] == ["broken.sqlite", "figures.sqlite", "good.sqlite", "hard.sqlite"]
    broken, figures, good, hard = rows
    assert "it is not a sqlite file" in broken["trouble"]
    assert (figures["done"], figures["over"]) == (0, None)
    assert (good["done"], good["failed"], good["over"]) == (7, 0, ["task.snr"])
    assert (hard["done"], hard["failed"]) == (4, 2)
    assert good["bytes"] == (folder / "good.sqlite").stat().st_size
    code, out, err = call("study", "ls", folder)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[1] == f"{folder / 'figures.sqlite'}: 0 done, 0 failed, points of figures"
    assert lines[2] == f"{folder / 'good.sqlite'}: 7 done, 0 failed, over task.snr"
    assert lines[0].startswith(f"{folder / 'broken.sqlite'}: StoreError: cannot open the store")
    refused(call("study", "ls", folder / "none"), "there is no folder")


def test_study_ls_of_an_empty_folder(document, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert document("study", "ls") == []
    assert call("study", "ls") == (0, "", "")


def test_study_show(document, call, folder):
    found = document("study", "show", folder / "hard.sqlite")
    assert found["failures"] == [
        {
            "at": {"task.snr": "inf"},
            "message": "2 of 2 seeds: its prediction is UNBOUNDED and has no weights to measure at.",
        }
    ]
    counts = {(c["state"], c["status"]): c["points"] for c in found["counts"]}
    assert counts == {("done", "CONVERGED"): 3, ("done", "UNBOUNDED"): 1, ("failed", "NoPrediction"): 2}
    with ndl.open_study(folder / "hard.sqlite", readonly=True) as study:
        assert Sweep.from_json(found["study"]) == study.definition
        assert found["seconds"] == pytest.approx(sum(row["seconds"] for row in study.store.rows()))
        shown = str(study)
    code, out, err = call("study", "show", folder / "hard.sqlite")
    assert (code, err) == (0, "")
    assert out.startswith(f"{shown}\n  computed in   ")
    assert "  no result     {'task.snr': inf}: 2 of 2 seeds" in out


def test_study_export(call, folder, tmp_path):
    import xarray

    store = folder / "good.sqlite"
    assert call("study", "export", store, tmp_path / "x.csv") == (0, f"{tmp_path / 'x.csv'}\n", "")
    assert call("study", "export", store, tmp_path / "x.nc") == (0, f"{tmp_path / 'x.nc'}\n", "")
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with ndl.open_study(store, readonly=True) as study:
        points = list(study.points())
        assert [float(r["risk"]) for r in rows] == [p.prediction.risk.value for p in points]
        assert [r["measured_risk"] for r in rows] == [
            repr(p.measurements[0].risk.value) if p.measurements else "" for p in points
        ]
        with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as data:
            assert data.load().equals(study.to_xarray())


BAD_STUDIES = {
    "no store": (["show", "none.sqlite"], "there is no store"),
    "no study": (["show", "figures.sqlite"], "has points but no study"),
    "not a store": (["show", "broken.sqlite"], "it is not a sqlite file"),
    "unknown kind": (["export", "good.sqlite", "x.xlsx"], "the name must end in one of .csv, .nc, .png, .pdf, .svg."),
    "no folder": (["export", "good.sqlite", "none/x.csv"], "cannot write"),
    "no folder, nc": (["export", "good.sqlite", "none/x.nc"], "cannot write"),
    "retry without a store": (["retry", "none.sqlite"], "there is no store"),
    "retry with an unknown executor": (["retry", "good.sqlite", "--executor", "x"], "unknown executor 'x'"),
    "unknown command": (["shwo", "good.sqlite"], "No such command"),
}


@pytest.mark.parametrize("case", BAD_STUDIES)
def test_bad_study_commands_are_one_sentence(call, folder, monkeypatch, case):
    args, phrase = BAD_STUDIES[case]
    monkeypatch.chdir(folder)
    before = (folder / "good.sqlite").read_bytes()
    refused(call("study", *args), phrase)
    assert (folder / "good.sqlite").read_bytes() == before
    assert not (folder / "none.sqlite").exists()


def test_study_retry_computes_what_failed_and_what_is_missing(call, document, written, monkeypatch):
    file = written(HEAD + OVER)
    honest, asked = ndl.predict, []

    def unlucky(task, *args, **options):
        asked.append(task.snr)
        if task.snr == 2.0 and len(asked) < 4:
            raise ndl.InvalidParameter("not today.")
        return honest(task, *args, **options)

    monkeypatch.setattr(ndl, "predict", unlucky)
    found = document("sweep", file, code=3)
    assert found["failures"] == [{"at": {"task.snr": 2.0}, "message": "not today."}]
    store = file.with_suffix(".sqlite")
    with Store(store) as kept:
        row = next(r for r in kept.rows() if json.loads(r["task"])["snr"] == 5.0)
        kept._db.execute("DELETE FROM points WHERE id = ?", (row["id"],))
    asked[:] = [0.0] * 4
    again = document("study", "retry", store)
    assert asked[4:] == [2.0, 5.0]
    assert (again["done"], again["reused"], again["failed"], again["failures"]) == (3, 1, 0, [])
    code, out, _ = call("study", "retry", store)
    assert code == 0
    assert out.endswith(f"  done          3 CONVERGED\n{store}\n")
    assert len(asked) == 6


def test_a_retried_sweep(document, written, monkeypatch):
    file = written(HEAD + OVER)
    honest = ndl.predict
    with monkeypatch.context() as patch:

        def broken(task, *args, **options):
            if task.snr == 2.0:
                raise ndl.InvalidParameter("not today.")
            return honest(task, *args, **options)

        patch.setattr(ndl, "predict", broken)
        document("sweep", file, code=3)
    assert document("sweep", file, code=3)["failed"] == 1
    found = document("sweep", file, "--retry")
    assert (found["failed"], found["reused"]) == (0, 2)


@pytest.mark.parametrize(
    "command", [["sweep"], ["study", "ls"], ["study", "show"], ["study", "export"], ["study", "retry"]]
)
def test_help_of_every_command(call, command):
    code, out, err = call(*command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: needlepoint {' '.join(command)} [OPTIONS]")


def test_study_without_a_command_lists_them(call):
    code, out, err = call("study")
    assert code in (0, 2)
    assert all(name in out + err for name in ("ls", "show", "export", "retry"))


def test_help_and_stored_studies_are_light(tmp_path):
    """Neither the help nor a list of stores loads what computes."""
    script = (
        "import sys\nfrom needlepoint.cli import run\n"
        "for args in (['--help'], ['sweep', '--help'], ['study', '--help'], ['study', 'show', '--help']):\n"
        "    assert run(args) == 0\n"
        "heavy = {'jax', 'xarray', 'pandas', 'distributed', 'dask', 'matplotlib', 'scipy', 'h5netcdf'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        f"assert run(['study', 'ls', {os.fspath(tmp_path)!r}]) == 0\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nan_is_null_in_documents(document, written):
    """One repeat has no standard error: no z."""
    file = written(HEAD + OVER + ALSO.replace("repeats = 2", "repeats = 1"))
    assert document("sweep", file)["largest_z"] is None
    assert math.isnan(ndl.open_study(file.with_suffix(".sqlite")).worst)
