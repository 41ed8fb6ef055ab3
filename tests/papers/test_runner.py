"""The serial runner: equal points are computed once, and what is written are the records' numbers."""

import csv
import dataclasses
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.papers.figures import Figure, Point, Record
from needlepoint.papers.runner import agreement, compute, reproduce, writable, write_agreement, write_csv

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
        expected += ndl.compare(of["predict"], of["simulate"]).rows
    assert rows == expected
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
