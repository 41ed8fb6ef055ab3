"""Every shared layer on every family of tasks: sweep, store, pooling, compare, tables, plot, report, CLI, cite.

The table of questions is in questions.py. A layer that works for one family and not for another fails here.
"""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core import dispatch, specs
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.text.digits import with_error
from needlepoint.papers.figures import Drawing, Figure, Point
from needlepoint.papers.report import write_report
from needlepoint.papers.runner import reproduce, write_agreement
from needlepoint.studies.storage.codec import encode

from questions import QUESTIONS

REPEATS = 3
# one of each kind of result where compilation is short; the others with the long checks
QUICK = ("spiked, regression, population", "two tokens, tied, ridge")


def params(quick=QUICK):
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.slow) for name in QUESTIONS]


@pytest.fixture(scope="module", params=params())
def question(request):
    return QUESTIONS[request.param]


@pytest.fixture(scope="module")
def file(question, tmp_path_factory):
    """The question as a file of a study: what the command line reads."""
    path = tmp_path_factory.mktemp("family") / "study.toml"
    parts = zip(("task", "model", "learner"), question.specs, strict=True)
    lines = [f'{name} = """{value!r}"""' for name, value in parts if value is not None]
    lines += ["[over]", *(f'"{p}" = {v}' for p, v in question.over.items())]
    lines += ["[also]", *(f"{k} = {v}" for k, v in question.simulation.items()), f"repeats = {REPEATS}"]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def study(question, file):
    """A sweep kept in a file, of two places with three seeds each."""
    also = ndl.Simulation(repeats=REPEATS, **question.simulation)
    with ndl.sweep(*question.specs, question.over, also=also, store=file.with_suffix(".sqlite")) as made:
        yield made


@pytest.fixture(scope="module")
def points(study):
    return list(study.points())


def bits(value):
    arrays = {}
    return json.dumps(encode(value, arrays)), {n: (a.dtype, a.shape, a.tobytes()) for n, a in arrays.items()}


# --- sweep and store -----------------------------------------------------------------------------


def test_every_place_has_its_prediction_and_its_measurement(study, points, question):
    assert study.failures() == []
    assert study.store.counts() == {("done", question.status.name): 2 + 2 * REPEATS}
    for point in points:
        assert (point.prediction.status, point.message) == (question.status, "")
        (m,) = point.measurements
        assert (m.status, m.d, m.repeats) == (question.status, question.simulation["d"], REPEATS)
        assert "risk" in m.metrics
        assert all(e.finite for e in m.metrics.values())


def test_what_is_read_again_is_what_was_computed(study, points, question):
    with ndl.open_study(study.store.path, readonly=True) as again:
        assert again.definition == study.definition
        assert [bits(p.prediction) for p in again.points()] == [bits(p.prediction) for p in points]
        assert [bits(p.measurements) for p in again.points()] == [bits(p.measurements) for p in points]
    place = points[0].at
    asked = [
        specs.assign(s, p.partition(".")[2], v)
        for s in question.specs
        if s
        for p, v in place.items()
        if p.startswith(s.family)
    ]
    assert asked[0] in (points[0].prediction.task, points[0].prediction.model, points[0].prediction.learner)


# --- pooling -------------------------------------------------------------------------------------


def seeds(study):
    """The measurements of every seed at the first place."""
    definition = study.definition
    at = next(iter(definition.axes.points()))
    (jobs,) = definition.simulations(at, definition.prediction(at))
    return [study.store.get(job.id).result for job in jobs]


def held(m):
    """The fields of a measurement that have something in them."""
    empty = (None, {}, (), "", 0)
    return {
        f.name
        for f in dataclasses.fields(Measurement)
        if not any(getattr(m, f.name) is e for e in empty)
        and not (hasattr(getattr(m, f.name), "__len__") and len(getattr(m, f.name)) == 0)
    }


def test_pooling_drops_nothing(study, points):
    parts, (m,) = seeds(study), points[0].measurements
    assert len(parts) == REPEATS
    wanted = set.intersection(*map(held, parts)) - {"branch"}
    assert wanted <= held(m)
    assert list(m.metrics) == list(parts[0].metrics)
    assert type(m.overlaps) is type(parts[0].overlaps)
    for name, x in parts[0].values.items():
        assert m.values[name].shape == (REPEATS * len(x), *x.shape[1:])
    if m.spectrum is not None:
        assert m.spectrum.eigenvalues.shape == m.spectrum.target.shape == (REPEATS, m.d)
    if m.trajectory is not None:
        assert m.trajectory.runs == sum(p.trajectory.runs for p in parts)


@pytest.mark.exact
def test_pooled_numbers_are_means_over_the_seeds(study, points):
    parts, (m,) = seeds(study), points[0].measurements
    for name, e in m.metrics.items():
        own = np.array([p.metrics[name].value for p in parts])
        assert e.value == pytest.approx(np.mean(own), rel=1e-14)
        if e.kind == "stderr":
            assert e == mean_estimate(own)
    if m.overlaps is not None:
        rows = [dict(p.overlaps.items()) for p in parts]
        for name, value in m.overlaps.items():
            assert value == pytest.approx(np.mean([row[name] for row in rows]), rel=1e-14, abs=1e-300)
    for i, part in enumerate(parts):
        for name, x in part.values.items():
            np.testing.assert_array_equal(m.values[name][i * len(x) : (i + 1) * len(x)], x)
        if part.spectrum is not None:
            np.testing.assert_array_equal(m.spectrum.eigenvalues[i], part.spectrum.eigenvalues[0])
            np.testing.assert_array_equal(m.spectrum.target[i], part.spectrum.target[0])


# --- compare -------------------------------------------------------------------------------------


def test_theory_and_simulation_are_compared_in_every_metric(points):
    for point in points:
        (m,) = point.measurements
        rows = {row.metric: row for row in point.comparison.rows}
        assert set(rows) >= set(point.prediction.metrics) & set(m.metrics)
        if point.prediction.overlaps is not None:
            measured = [name for name, _ in m.overlaps.items() if name in m.overlaps_error]
            assert set(rows) >= {name for name in measured if name in point.prediction.overlaps_error}
        # three seeds at d = 8: far from a limit, but no z beyond what a wrong column would give
        assert all(math.isfinite(row.z) and abs(row.z) < 10 for row in rows.values())
        indexed = type(point.prediction.task).__name__ == "AttentionIndexed"
        assert rows["risk"].realised is indexed


def test_the_pooled_measurement_is_compared_like_one_call(points):
    """`compare` does not mind whether the repeats came from one call or from many."""
    point = points[0]
    (m,) = point.measurements
    once = ndl.compare(point.prediction, dataclasses.replace(m, notes=(), seed=0))
    assert [dataclasses.astuple(r) for r in once.rows] == [dataclasses.astuple(r) for r in point.comparison.rows]


# --- tables --------------------------------------------------------------------------------------


def test_tables_have_every_metric(study, points, tmp_path):
    study.to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as text:
        rows = list(csv.DictReader(text))
    data = study.to_xarray()
    assert len(rows) == len(points)
    for row, point in zip(rows, points, strict=True):
        (m,) = point.measurements
        at = {path: point.at[path] for path in point.at}
        for name, e in point.prediction.metrics.items():
            assert float(row[name]) == e.value
            assert float(data[name].sel(at)) == e.value
        for name, e in m.metrics.items():
            assert float(row[f"measured_{name}"]) == e.value
            assert float(data[f"measured_{name}"].sel(at).sel(d=m.d)) == e.value
        for name, value in point.prediction.overlaps.items() if point.prediction.overlaps else ():
            assert float(row[f"overlaps.{name}"]) == value
        assert float(row["z_risk"]) == next(r.z for r in point.comparison.rows if r.metric == "risk")


# --- plot ----------------------------------------------------------------------------------------


def test_pictures_of_a_study_and_of_its_results(study, points, tmp_path):
    prediction = points[0].prediction
    metrics = [
        None,
        "risk",
        *(f"overlaps.{name}" for name, _ in (prediction.overlaps.items() if prediction.overlaps else ())),
    ]
    for i, metric in enumerate(metrics[:3]):
        path = tmp_path / f"{i}.svg"
        ndl.plot(study, metric, path=path)
        assert path.stat().st_size > 1000
    (m,) = points[0].measurements
    for i, shown in enumerate([(points[0].prediction,), (m,), (points[0].prediction, [m])]):
        ndl.plot(*shown, path=tmp_path / f"result-{i}.svg")


# --- report --------------------------------------------------------------------------------------


def test_a_figure_of_it_is_reproduced_and_reported(question, tmp_path):
    from matplotlib.figure import Figure as Picture

    options = question.simulation | {"repeats": REPEATS, "seed": 1}
    asked = [
        Point("predict", *question.specs, label="theory"),
        Point("simulate", *question.specs, options, "training", follow=True),
    ]

    def draw(records):
        assert [r.result.status for r in records] == [question.status] * 2
        return Drawing(Picture(), {"risk": (["risk"], [[r.result.risk.value] for r in records])})

    figure = Figure("family", "A family", "2410.01537", "Theory and training.", lambda _: asked, draw)
    done = reproduce(figure, "quick", tmp_path)
    assert done.troubles == ()
    assert {"risk"} <= {row.metric for row in done.agreement}
    write_agreement(tmp_path / "agreement.csv", [done])
    write_report(tmp_path / "report.html", [done], "0")
    page = (tmp_path / "report.html").read_text()
    for row in done.agreement:
        assert with_error(row.measured, row.measured_error) in page


# --- cite ----------------------------------------------------------------------------------------


def test_what_to_cite_follows_the_question(study, points, question):
    text = ndl.cite(points[0].prediction)
    assert text == ndl.cite(points[0].measurements[0]) == ndl.cite(study) == ndl.cite(question.specs)
    indexed = type(question.task).__name__ == "AttentionIndexed"
    assert ("2506.01582" in text) is indexed
    assert ("2509.24914" in text) is (indexed and question.model is not None)
    single = ("2410.01537" in text) or ("2509.21936" in text)
    own = {"Needles": "2603.03993", "PositionalSemantic": "2402.03902"}.get(type(question.task).__name__)
    assert own in text if own else single is not indexed


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.usefixtures("study")
def test_the_command_line_asks_the_same(file, call, document, points, question, tmp_path):
    store = file.with_suffix(".sqlite")
    found = document("sweep", file)
    assert (found["done"], found["reused"], found["failed"]) == (8, 8, 0)  # the same ids: nothing is computed
    assert found["largest_z"] == max(p.comparison.worst for p in points)
    shown = document("study", "show", store)
    assert (shown["failures"], shown["counts"]) == (
        [],
        [{"state": "done", "status": question.status.name, "points": 8}],
    )
    assert document("study", "retry", store)["reused"] == 8
    (row,) = document("study", "ls", file.parent)
    assert (row["done"], row["failed"]) == (8, 0)
    for name in ("table.csv", "picture.svg"):
        assert call("study", "export", store, tmp_path / name)[0] == 0
        assert (tmp_path / name).stat().st_size > 200


def test_predict_and_compare_on_the_command_line(question, document, points, tmp_path):
    names = ("--task", "--model", "--learner")
    words = [w for name, s in zip(names, question.specs, strict=True) if s is not None for w in (name, repr(s))]
    sizes = ("--d", question.simulation["d"], "--repeats", REPEATS, "--samples", question.simulation["samples"])
    found = document("compare", *words, *sizes, "--plot", tmp_path / "picture.svg")
    assert found["prediction"]["status"] == question.status.name
    assert {row["metric"] for row in found["comparison"]["rows"]} == {r.metric for r in points[0].comparison.rows}
    measured = document("predict", *words)
    assert measured["metrics"] == found["prediction"]["metrics"]


# --- the table itself ----------------------------------------------------------------------------


def test_the_table_has_every_family():
    """A rule that is added needs a question here, or none of the shared layers is tested with it."""
    from needlepoint.simulation.simulating import load_rules as load_simulations
    from needlepoint.theory.predicting import load_rules as load_predictions

    load_predictions()
    load_simulations()
    asked = {(type(q.task).__name__, type(q.learner).__name__) for q in QUESTIONS.values()}
    ruled = {(k[1].__name__, k[3].__name__) for k in dispatch.rules() if k[0] == "simulate"}
    assert {pair for pair in ruled if pair[0] in ("SpikedSLR", "MaxSLR", "AttentionIndexed")} <= asked
    tokens = {q.task.tokens for q in QUESTIONS.values() if type(q.task).__name__ == "AttentionIndexed"}
    assert tokens == {1, 2}
    models = {type(q.model).__name__ for q in QUESTIONS.values()}
    assert set(specs.names("model")) <= models
    assert set(QUICK) <= set(QUESTIONS)
