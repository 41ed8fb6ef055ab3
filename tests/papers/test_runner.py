"""The serial runner: equal points are computed once, and what is written are the records' numbers."""

import csv
import dataclasses
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.papers.figures import Figure, Point, Record
from needlepoint.papers.runner import agreement, compute, reproduce, writable, write_agreement, write_csv
from needlepoint.studies.storage.store import Store

TASK = ndl.SpikedSLR(2, 1.0, noise=0.3)
LINEAR = (TASK, ndl.LinearRegression(), ndl.Population())
ERF = ndl.KeyValueAttention(ndl.Erf(0.5), unit_norm=True)
CHEAP = {"d": 4, "repeats": 4, "samples": 100, "seed": 1}


def read(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


# --- compute -----------------------------------------------------------------------------------


def test_equal_points_share_one_answer(monkeypatch):
    calls = []
    honest = ndl.predict
    monkeypatch.setattr(ndl, "predict", lambda *a, **o: calls.append(a) or honest(*a, **o))
    other = (ndl.SpikedSLR(3, 1.0), *LINEAR[1:])
    points = [
        Point("predict", *LINEAR, label="a", x=1.0),
        Point("predict", *other),
        Point("predict", *LINEAR, label="b"),
        Point("predict", ndl.SpikedSLR(2.0, 1, 1, 0.3), *LINEAR[1:]),  # another spelling of the first
        Point("predict", *LINEAR, options={"seed": 3}),
    ]
    records = compute(points)
    assert calls == [LINEAR, other, LINEAR]
    assert [r.point for r in records] == points
    assert records[2].result is records[0].result is records[3].result
    assert records[4].result.seed == 3
    assert records[1].result.task == other[0]


@pytest.mark.parametrize("size", [3, 60])
@pytest.mark.parametrize("change", [1e-12, 0.5])
def test_points_that_differ_in_one_array_entry_do_not_share(size, change):
    """What NumPy prints of an array is not what is in it."""
    key, value = np.meshgrid(*[np.linspace(-0.9, 0.9, size)] * 2)
    moved = key.copy()
    moved[size // 2, 0] += change
    points = [Point("vector_field", TASK, ERF, options={"key": k, "value": value}) for k in (key, moved)]
    first, second = (r.result[0] for r in compute(points))
    np.testing.assert_array_equal(first, ndl.vector_field(TASK, ERF, key, value)[0])
    np.testing.assert_array_equal(second, ndl.vector_field(TASK, ERF, moved, value)[0])


def test_progress_rises_to_one(tiny):
    said = []
    compute(tiny.points("quick"), lambda text, fraction: said.append((text, fraction)))
    fractions = [f for _, f in said]
    assert fractions == sorted(fractions)
    assert (fractions[0], said[-1]) == (0.0, ("drawing", 1.0))
    assert {"predict linear", "predict Bayes", "simulate linear"} <= {t for t, _ in said}


def test_a_failure_stays_a_record():
    diverging = ndl.ProjectedDescent(1e300, 2, "sphere", d=8, runs=2)
    (record,) = compute([Point("predict", TASK, ERF, diverging)])
    assert record.result.status is ndl.Status.DIVERGED


def test_follow_measures_what_the_prediction_chose():
    free = (TASK, ndl.KeyValueAttention(ndl.Erf(scale=None), unit_norm=True), ndl.Population())
    chosen, measured = compute([Point("predict", *free), Point("simulate", *free, options=CHEAP, follow=True)])
    assert measured.result.model == chosen.result.resolved[1]
    assert measured.result.overlaps == chosen.result.overlaps
    assert {r.metric for r in agreement([chosen, measured])} == {"risk", "excess_risk"}


def test_following_nothing_is_refused():
    with pytest.raises(ValueError, match="'late' follows a prediction that does not come before it"):
        compute([Point("simulate", *LINEAR, options=CHEAP, label="late", follow=True), Point("predict", *LINEAR)])


# --- agreement ---------------------------------------------------------------------------------


def test_agreement_pairs_predictions_with_measurements(tiny):
    records = compute(tiny.points("quick"))
    rows = agreement(records)
    expected = []
    for snr in (1.0, 4.0):
        of = {r.point.verb: r.result for r in records if r.point.x == snr and r.point.label == "linear"}
        about = {"point": "linear", "x": snr, "prediction": "CONVERGED"}
        about["question"] = f"SpikedSLR(tokens=2, snr={snr}, noise=0.3); LinearRegression(); Population()"
        expected += [{**vars(row), **about} for row in ndl.compare(of["predict"], of["simulate"]).rows]
    assert [vars(row) for row in rows] == expected
    assert len(rows) == 4
    assert agreement(records[::-1])[2:] == rows[:2]  # the order of prediction and measurement does not matter


def test_agreement_needs_both_sides():
    records = compute([Point("predict", *LINEAR), Point("simulate", *LINEAR, options=CHEAP)])
    assert agreement(records[:1]) == []
    assert agreement(records[1:]) == []
    elsewhere = dataclasses.replace(records[0].point, task=ndl.SpikedSLR(5, 1.0))
    assert agreement([Record(elsewhere, records[0].result), records[1]]) == []


# --- files -------------------------------------------------------------------------------------


def test_reproduce_writes_the_numbers_of_the_records(tiny, tmp_path):
    done = reproduce(tiny, "quick", tmp_path / "new" / "folder")
    png, pdf, table = done.files
    assert [f.name for f in done.files] == ["tiny.png", "tiny.pdf", "tiny-curves.csv"]
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert pdf.read_bytes().startswith(b"%PDF-")
    assert sorted(p.name for p in png.parent.iterdir()) == sorted(f.name for f in done.files)
    records = compute(tiny.points("quick"))
    head, *rows = read(table)
    assert head == ["label", "source", "snr", "excess_risk", "error"]
    got = {(label, source, float(x)): (float(v), float(e)) for label, source, x, v, e in rows}
    assert len(got) == len(rows) == len(records)
    for r in records:
        e = r.result.excess_risk
        # to the last digit: a table is read again by other programs
        assert got[r.point.label, r.point.verb[0].replace("p", "t"), r.point.x] == (e.value, e.error)
    assert done.agreement == tuple(agreement(records))
    assert done.troubles == ()
    assert done.figure is tiny
    assert done.seconds > 0


def test_reproduce_names_what_did_not_converge(tiny, tmp_path):
    diverging = ndl.ProjectedDescent(1e300, 2, "sphere", d=8, runs=2)

    def points(size):
        return [*tiny.points(size), Point("predict", TASK, ERF, diverging, label="too fast")]

    done = reproduce(Figure("odd", "Odd", tiny.paper, "Odd.", points, tiny.draw), "quick", tmp_path)
    (trouble,) = done.troubles
    assert trouble.startswith("predict too fast: DIVERGED, the iteration left the finite numbers")
    assert len(done.agreement) == 4


def test_agreement_csv_has_every_row_of_compare(tiny, tmp_path):
    done = [reproduce(tiny, size, tmp_path) for size in ("quick", "full")]
    write_agreement(tmp_path / "agreement.csv", done)
    head, *rows = read(tmp_path / "agreement.csv")
    assert head[0] == "figure"
    expected = [row for r in done for row in r.agreement]
    assert len(rows) == len(expected) == 8
    for line, row in zip(rows, expected, strict=True):
        fields = dict(zip(head, line, strict=True))
        assert fields.pop("figure") == "tiny"
        judgement = [fields.pop(name) for name in ("verdict", "reason", "z_extrapolated")]
        assert judgement == (
            ["agrees", "", ""] if abs(row.z) < 4 else ["disagrees", "the theory is exact at this d", ""]
        )
        assert set(fields) == set(vars(row))
        for name, value in vars(row).items():
            assert type(value)(fields[name]) == value if type(value) is not bool else fields[name] == str(value)
    assert {int(dict(zip(head, line, strict=True))["repeats"]) for line in rows} == {4, 8}


def test_csv_keeps_floats_commas_and_lines(tmp_path):
    rows = [["a, b", 0.1 + 0.2, math.pi], ['say "x"\ny', 5e-324, -0.0]]
    write_csv(tmp_path / "x.csv", ["name", "x", "y"], rows)
    head, *back = read(tmp_path / "x.csv")
    assert head == ["name", "x", "y"]
    assert [[n, float(x), float(y)] for n, x, y in back] == rows


def test_writable_makes_the_folder_and_leaves_nothing_in_it(tmp_path):
    writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ndl.InvalidParameter, match=r"cannot write to the folder .*file"):
        writable(tmp_path / "file" / "b")


# --- with a store ------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """The tasks and verbs that are computed, in order."""
    calls = []

    def watched(verb, honest):
        def call(task, *args, **options):
            calls.append((verb, task.snr))
            return honest(task, *args, **options)

        return call

    for verb in ("predict", "simulate"):
        monkeypatch.setattr(ndl, verb, watched(verb, getattr(ndl, verb)))
    return calls


def numbers(records):
    return [r.result.to_json() for r in records]


def curve(*snrs, follow=False):
    points = []
    for snr in snrs:
        question = (ndl.SpikedSLR(2, snr, noise=0.3), ndl.LinearRegression(), ndl.Population())
        points.append(Point("predict", *question, label=f"snr {snr:g}", x=snr))
        points.append(Point("simulate", *question, options=CHEAP, label=f"snr {snr:g}", x=snr, follow=follow))
    return points


@pytest.mark.parametrize("after", [1, 3, 4, 5])
def test_an_interrupted_figure_goes_on_where_it_was(tmp_path, asked, after):
    points = curve(1.0, 2.0, 4.0, follow=True)
    undisturbed = compute(points)
    asked.clear()

    def stop(text, fraction):
        if fraction >= after / 6:
            raise KeyboardInterrupt

    path = tmp_path / "points.sqlite"
    with Store(path) as store, pytest.raises(KeyboardInterrupt):
        compute(points, stop, store)
    assert len(asked) == after
    with Store(path) as store:
        records = compute(points, store=store)
    assert len(asked) == 6
    assert len(set(asked)) == 6  # nothing twice
    assert numbers(records) == numbers(undisturbed)


def test_a_figure_that_is_stored_is_not_computed_again(tmp_path, tiny, asked):
    first = reproduce(tiny, "quick", tmp_path, store=Store())
    with Store(tmp_path / "points.sqlite") as store:
        compute(tiny.points("quick"), store=store)
    asked.clear()
    said = []
    with Store(tmp_path / "points.sqlite") as store:
        again = reproduce(tiny, "quick", tmp_path, lambda text, fraction: said.append(fraction), store)
    assert asked == []
    assert again.agreement == first.agreement
    assert (said[0], said[-1]) == (0.0, 1.0)


def test_a_larger_set_takes_what_quick_has_computed(tmp_path, asked):
    quick, full = curve(1.0, 4.0), curve(1.0, 2.0, 4.0, 8.0)
    expected = numbers(compute(full))
    asked.clear()
    with Store(tmp_path / "points.sqlite") as store:
        compute(quick, store=store)
        assert len(asked) == 4
        asked.clear()
        records = compute(full, store=store)
    assert sorted(asked) == [("predict", 2.0), ("predict", 8.0), ("simulate", 2.0), ("simulate", 8.0)]
    assert numbers(records) == expected


def test_the_predictions_of_quick_serve_the_full_figure(tmp_path, tiny, asked):
    with Store(tmp_path / "points.sqlite") as store:
        compute(tiny.points("quick"), store=store)
        asked.clear()
        compute(tiny.points("full"), store=store)
    assert asked == [("simulate", 1.0), ("simulate", 4.0)]  # these have other repeats


def test_a_failed_point_is_one_sentence_with_its_label_and_stays_in_the_store(tmp_path, monkeypatch):
    honest = ndl.predict

    def unlucky(task, *args, **options):
        if task.snr == 2.0:
            raise ZeroDivisionError("no\nluck")
        return honest(task, *args, **options)

    with Store(tmp_path / "points.sqlite") as store:
        with monkeypatch.context() as patch:
            patch.setattr(ndl, "predict", unlucky)
            with pytest.raises(ndl.InvalidParameter) as caught:
                compute(curve(1.0, 2.0, 4.0), store=store)
        assert str(caught.value).startswith("predict snr 2 failed: ")
        assert str(caught.value).endswith("ZeroDivisionError: no luck")
        assert "\n" not in str(caught.value)
        assert store.counts() == {("done", "CONVERGED"): 5, ("failed", "ZeroDivisionError"): 1}
        (row,) = store.rows("state = 'failed'")
        assert (row["verb"], row["message"]) == ("predict", "ZeroDivisionError: no luck")


def test_a_failed_point_is_tried_again_by_the_next_run(tmp_path, monkeypatch):
    """A worker that was lost or memory that ran out must not spoil a folder for good."""

    def broken(*args, **options):
        raise MemoryError

    with Store(tmp_path / "points.sqlite") as store:
        with monkeypatch.context() as patch:
            patch.setattr(ndl, "predict", broken)
            with pytest.raises(ndl.InvalidParameter, match="snr 1 failed"):
                compute(curve(1.0), store=store)
        assert numbers(compute(curve(1.0), store=store)) == numbers(compute(curve(1.0)))
