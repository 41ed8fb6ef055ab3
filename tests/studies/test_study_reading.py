"""A study that was computed: refinement, its report, opening it again, points and tables."""

import csv
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.studies.execution.running import Tally
from needlepoint.studies.storage.store import Store

from study_cases import ALSO, HARD, LEARNER, LINEAR, SOFTMAX, TASK, documents, swept

CONTOUR = ndl.Refine("excess_risk", levels=4, level=0.3)


@pytest.mark.exact
def test_refinement_finds_a_contour(computed):
    snr = [0.5, 1.0, 2.0, 4.0, 8.0]
    study = swept({"task.snr": snr, "task.tokens": [2, 3]}, refine=CONTOUR)
    assert len(computed) == 10 + 2 * 4 == len(study)  # one new point a level and slice; the full grid has 130
    assert not study.grid
    points = list(study.points())
    assert [p.at["task.snr"] for p in points[:10:2]] == snr
    for tokens in (2, 3):
        mine = sorted(
            (p.at["task.snr"], p.prediction.excess_risk.value) for p in points if p.at["task.tokens"] == tokens
        )
        below = max(x for x, risk in mine if risk > 0.3)
        above = min(x for x, risk in mine if risk <= 0.3)
        assert above / below == pytest.approx(2 ** (1 / 16), rel=1e-9)
        assert [x for x, _ in mine if below < x < above] == []


def test_a_refined_study_goes_on_and_is_read_again(path, computed):
    over = {"task.snr": [0.5, 1.0, 2.0, 4.0]}

    def stop(tally):
        if tally.done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept(over, refine=CONTOUR, store=path, report=stop)
    with swept(over, refine=CONTOUR, store=path) as study:
        assert len(computed) == 4 + 4
        assert documents(study) == documents(swept(over, refine=CONTOUR))
    computed.clear()
    with ndl.open_study(path) as again:
        assert again.definition == study.definition
        assert len(again) == 8
        tally = again.run()
        assert (tally.total, tally.done, tally.reused, computed) == (8, 8, 8, [])


def test_refined_points_are_not_told_to_lack_simulations():
    study = swept({"task.snr": [0.5, 1, 2, 4]}, refine=CONTOUR, also=ndl.Simulation(d=5, repeats=2, samples=50))
    assert study.failures() == []


def test_the_tally_counts_every_job_once(path):
    seen = []

    def report(tally):
        seen.append((tally.done, tally.total, tally.reused, tally.failed, tally.flagged, tally.last))
        assert tally.job is not None

    over = {"task.snr": [1, math.inf, 2]}
    also = ndl.Simulation(d=5, repeats=2, samples=50)
    swept(over, HARD, also=also, store=path, report=report).close()
    assert [s[0] for s in seen] == list(range(1, 10))
    assert {s[1] for s in seen} == {9}
    assert seen[-1][2:5] == (0, 2, 0)  # two seeds without weights to measure at; the infimum itself is known
    assert seen[1][5] == "UNBOUNDED"
    seen.clear()
    with ndl.open_study(path) as study:
        tally = study.run(report=report)
    assert (tally.done, tally.reused, tally.failed, tally.flagged) == (9, 9, 2, 0)
    assert seen[-1][:5] == (9, 9, 9, 2, 0)


def test_rate_and_time_left():
    tally = Tally(10, began=0.0)
    assert tally.left == math.inf
    tally.done, tally.reused = 4, 4
    assert tally.left == math.inf  # what was found says nothing about how long the rest takes
    tally.done = 6
    assert tally.rate > 0
    assert tally.left == pytest.approx(4 / tally.rate, rel=1e-3)


def test_a_study_as_text():
    study = swept(
        {"task.snr": np.linspace(1, 2, 9), "model": [SOFTMAX, LINEAR]},
        also=ndl.Simulation(d=5, repeats=1, samples=50, at={"task.snr": [1]}),
    )
    assert str(study).splitlines() == [
        f"Study: {TASK!r}, {SOFTMAX!r}, {LEARNER!r}",
        "  over          task.snr: 1, 1.125, ..., 2 (9 values)",
        f"  over          model: {SOFTMAX!r}, {LINEAR!r}",
        f"  also          {study.definition.also}",
        "  done          20 CONVERGED",
    ]
    assert repr(study) == str(study)
    refined = swept({"task.snr": [0.5, 8]}, refine=CONTOUR)
    assert f"  refine        {CONTOUR}" in str(refined)


def test_a_study_is_opened_as_it_was_written(path):
    with swept(also=ALSO, store=path, seed=3) as study:
        table, shown = list(csv_rows(study, path.with_suffix(".csv"))), str(study)
    for readonly in (False, True):
        with ndl.open_study(path, readonly=readonly) as again:
            assert again.definition == study.definition
            assert str(again) == shown
            assert list(csv_rows(again, path.with_suffix(".csv"))) == table
            assert again.paths == ("task.snr", "task.noise")
            assert again.axes == {"task.snr": (1.0, 2.0, 5.0), "task.noise": (0.1, 0.3)}


def test_what_is_no_study_is_refused(path, tmp_path):
    with pytest.raises(ndl.InvalidParameter, match=r"there is no store .*study\.sqlite"):
        ndl.open_study(path)
    Store(path).close()
    with pytest.raises(ndl.InvalidParameter, match="has points but no study"):
        ndl.open_study(path)


def test_a_half_finished_study_can_be_read(path):
    def stop(tally):
        if tally.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept(store=path, report=stop)
    with ndl.open_study(path) as study:
        points = list(study.points())
        assert [p.prediction is not None for p in points].count(True) == 2
        assert {p.message for p in points if p.prediction is None} == {"not computed yet."}
        table = study.to_dataframe()
        assert list(table["status"]).count("MISSING") == 4
        assert (study.to_xarray()["status"].values == -1).sum() == 4


def csv_rows(study, path):
    study.to_csv(path)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def table_study():
    """A grid with simulations at some places, a point that is not attained, and several sizes."""
    also = ndl.Simulation(d=(5, 6), repeats=2, samples=50, at={"task.noise": [0.3]})
    return ndl.sweep(*HARD, {"task.snr": [1, math.inf, 2], "task.noise": [0, 0.3]}, also=also)


def expected_rows(study):
    """The long table from the points, written independently."""
    for p in study.points():
        for m in p.measurements or [None]:
            row = {"status": p.prediction.status.name, "risk": p.prediction.risk.value, **p.at}
            row["risk_error"] = p.prediction.risk.error
            if p.prediction.overlaps is not None:
                row["overlaps.key"] = p.prediction.overlaps.key
            if m is not None:
                z = next(r.z for r in p.comparison.rows if (r.metric, r.d) == ("risk", m.d))
                row |= {"d": m.d, "repeats": 2, "measured_risk": m.risk.value, "measured_risk_error": m.risk.error}
                row |= {"z_risk": z, "measured_status": "CONVERGED"}
            yield row


def test_csv_has_every_number_to_the_last_digit(table_study, tmp_path):
    rows, expected = csv_rows(table_study, tmp_path / "x.csv"), list(expected_rows(table_study))
    assert len(rows) == len(expected) == 8  # 6 points, two of which have two sizes
    for row, want in zip(rows, expected, strict=True):
        for name, value in want.items():
            assert type(value)(row[name]) == value, name
        for name in set(row) & {"d", "measured_risk", "overlaps.key"} - set(want):
            assert row[name] == ""
    assert [row["message"] for row in rows if row["status"] == "UNBOUNDED"] == [
        "the Bayes risk, approached as the norm of the key goes to infinity.",
        "2 of 2 seeds: its prediction is UNBOUNDED and has no weights to measure at.",
    ]


def test_data_frames_have_the_same_rows(table_study):
    frame, expected = table_study.to_dataframe(), list(expected_rows(table_study))
    assert len(frame) == len(expected)
    for i, want in enumerate(expected):
        for name, value in want.items():
            assert frame[name][i] == value, name
        for name in {"d", "measured_risk", "overlaps.key"} - set(want):
            assert math.isnan(frame[name][i])


def check_arrays(data, study):
    assert dict(data.sizes) == {"task.snr": 3, "task.noise": 2, "d": 2}
    np.testing.assert_array_equal(data["task.snr"], [1.0, math.inf, 2.0])
    np.testing.assert_array_equal(data["d"], [5, 6])
    for p in study.points():
        here = data.sel(dict(p.at))
        assert float(here["risk"]) == p.prediction.risk.value
        assert float(here["risk_error"]) == p.prediction.risk.error
        assert int(here["status"]) == p.prediction.status.value
        assert str(here["branch"].values) == (p.prediction.branch or "")
        assert str(here["message"].values) == (p.message or " ".join(p.prediction.notes))
        if p.prediction.overlaps is None:
            assert math.isnan(here["overlaps.key"])
        else:
            assert float(here["overlaps.key"]) == p.prediction.overlaps.key
        found = {m.d: m for m in p.measurements}
        for d in (5, 6):
            cell = here.sel(d=d)
            if d in found:
                assert float(cell["measured_risk"]) == found[d].risk.value
                assert float(cell["measured_excess_risk_error"]) == found[d].excess_risk.error
                assert int(cell["measured_status"]) == 0
            else:
                assert math.isnan(cell["measured_risk"])
                assert int(cell["measured_status"]) == -1
    assert data.attrs["task"] == repr(HARD[0])
    assert "4 UNBOUNDED" in data.attrs["status_codes"]


def test_labelled_arrays(table_study):
    check_arrays(table_study.to_xarray(), table_study)


def test_netcdf_read_again(table_study, tmp_path):
    import xarray

    table_study.to_netcdf(tmp_path / "x.nc")
    with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as data:
        check_arrays(data.load(), table_study)
        assert data.equals(table_study.to_xarray())


def test_lists_and_refined_studies_have_one_dimension(tmp_path):
    import xarray

    listed = swept([{"task.snr": 3, "model": SOFTMAX}, {"task.snr": 1, "model": LINEAR}])
    refined = swept({"task.snr": [0.5, 8]}, refine=CONTOUR)
    for study, count in ((listed, 2), (refined, 6)):
        data = study.to_xarray()
        assert dict(data.sizes) == {"point": count}
        assert list(data["risk"].values) == [p.prediction.risk.value for p in study.points()]
        assert list(data["task.snr"].values) == [p.at["task.snr"] for p in study.points()]
        study.to_netcdf(tmp_path / "x.nc")
        with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as again:
            assert again.load().equals(data)
    assert list(listed.to_xarray()["model"].values) == [repr(SOFTMAX), repr(LINEAR)]


def test_specs_words_and_free_constants_are_coordinates(tmp_path):
    import xarray

    study = swept({"learner.d": [None, 5]}, (TASK, None, ndl.BayesOptimal()))
    study.to_netcdf(tmp_path / "x.nc")
    with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as data:
        assert list(data["learner.d"].values) == ["None", "5"]
    assert [row["learner.d"] for row in csv_rows(study, tmp_path / "x.csv")] == ["None", "5"]


def test_tables_that_cannot_be_written_are_one_sentence(table_study, tmp_path):
    for write in (table_study.to_csv, table_study.to_netcdf):
        with pytest.raises(ndl.InvalidParameter, match=r"^cannot write .*none.*: "):
            write(tmp_path / "none" / "x")


def test_bad_executors_are_refused_before_anything_is_computed(path):
    for options, phrase in (
        ({"executor": "proceses"}, "unknown executor 'proceses': did you mean 'processes'"),
        ({"workers": 2}, "the serial executor is one process"),
        ({"address": "tcp://x:1"}, "only executor='dask' has an address"),
        ({"executor": "processes", "memory": "1 MB"}, "memory must be at least 700 MB"),
        ({"executor": "processes", "workers": 0}, "workers must be a whole number >= 1"),
    ):
        with pytest.raises(ndl.InvalidParameter, match=phrase):
            swept(store=path, **options)
    with Store(path) as store:
        assert store.counts() == {}


@pytest.mark.parametrize("tol", [-1.0, math.nan, "small"])
def test_a_bad_tolerance_is_refused(tol):
    with pytest.raises(ndl.InvalidParameter, match="tol must be > 0 and finite"):
        swept(tol=tol)


def test_the_worst_of_a_study_is_nan_wherever_the_nan_is(monkeypatch):
    """As `Comparison.worst`: one repeat has no standard error and no z."""
    one, many = (
        list(swept({"task.snr": [1]}, also=ndl.Simulation(d=5, repeats=n, samples=50)).points()) for n in (1, 3)
    )
    found = []
    for points in ([*one, *many], [*many, *one]):
        study = swept({"task.snr": [1]})
        monkeypatch.setattr(study, "points", lambda points=points: iter(points))
        found.append(math.isnan(study.worst))
    assert found == [True, True]
