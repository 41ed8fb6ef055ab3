"""How answers show themselves: tables in a notebook, data frames, JSON, pictures; every family of tasks."""

import json

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.text.showing import data_frame, table


def test_a_table_escapes_what_it_shows():
    shown = table([("a < b", "<script>")], ("x", "y"), caption="1 & 2")
    assert "&lt;script&gt;" in shown
    assert "a &lt; b" in shown
    assert "1 &amp; 2" in shown
    assert "<script>" not in shown


def test_a_missing_pandas_is_one_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ndl.InvalidParameter, match=r"pip install 'needlepoint\[tables\]'"):
        data_frame([{"a": 1}])


@pytest.fixture(scope="module")
def bayes():
    task, learner = ndl.SpikedSLR(2, snr=2.0), ndl.BayesOptimal()
    prediction = ndl.predict(task, None, learner)
    return prediction, ndl.simulate(task, None, learner, d=12, repeats=4, samples=100)


@pytest.fixture(scope="module")
def indexed():
    asked = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.04), ndl.TiedAttention(), ndl.Ridge(0.5, 0.1)
    return ndl.predict(*asked), ndl.simulate(*asked, d=8, repeats=2, samples=50)


FAMILIES = pytest.mark.parametrize("family", ["bayes", "indexed"])


@FAMILIES
def test_results_are_tables_frames_and_json(family, request):
    for result in request.getfixturevalue(family):
        shown = result._repr_html_()
        assert shown.startswith("<table>")
        assert result.status.name in shown
        frame = result.to_dataframe()
        assert list(frame["metric"]) == list(result.metrics)
        assert np.array_equal(frame["value"], [float(e) for e in result.metrics.values()])
        assert json.loads(result.to_json(text=True)) == json.loads(json.dumps(result.to_json()))
        assert set(result.metrics) <= set(dir(result))


@FAMILIES
def test_comparisons_are_tables_frames_and_json(family, request):
    found = ndl.compare(*request.getfixturevalue(family))
    shown = found._repr_html_()
    assert all(row.metric in shown for row in found.rows)
    assert len(found.to_dataframe()) == len(found.rows)
    assert json.loads(found.to_json(text=True))["rows"][0]["metric"] == found.rows[0].metric


def test_spectra_are_short_and_whole(indexed):
    prediction, trained = indexed
    assert len(repr(prediction.spectrum)) < 200
    assert "% zeros" in repr(prediction.spectrum)
    assert len(prediction.spectrum.to_dataframe()) == len(prediction.spectrum.x)
    assert len(repr(trained.spectrum)) < 200
    frame = trained.spectrum.to_dataframe()
    assert np.array_equal(frame["eigenvalue"].to_numpy().reshape(2, 8), trained.spectrum.eigenvalues)


@FAMILIES
def test_a_picture_is_an_image_in_a_notebook(family, request):
    result = request.getfixturevalue(family)[0]
    assert result.plot()._repr_png_().startswith(b"\x89PNG")


def test_a_picture_is_below_the_table_where_there_is_one(bayes, indexed, monkeypatch):
    """Of a spectrum, a trajectory or a study, which are there to be drawn; a curve would have to be computed."""
    model = ndl.KeyValueAttention(ndl.Erf(scale=0.4), unit_norm=True)
    descent = ndl.predict(ndl.SpikedSLR(2, 4.0), model, ndl.ProjectedDescent(0.01, 20, ndl.Overlaps(0.3, 0.4)))
    prediction, trained = indexed
    for shown in (prediction, prediction.spectrum, trained, trained.spectrum, descent):
        assert shown._repr_html_().startswith("<table>")
        assert shown._repr_html_().count("data:image/png;base64,") == 1
    assert "<img" not in bayes[0]._repr_html_()
    monkeypatch.setattr("needlepoint.core.text.showing.draw", lambda *_, **__: 1 / 0)
    assert "<img" not in prediction._repr_html_()  # a picture that fails does not cost the numbers
    assert "<table>" in prediction._repr_html_()


def test_a_study_shows_itself():
    study = ndl.sweep(ndl.SpikedSLR(2, snr=1.0), None, ndl.BayesOptimal(), {"task.snr": [1.0, 2.0, 3.0]})
    shown = study._repr_html_()
    assert "task.snr" in shown
    assert "SpikedSLR" in shown
    assert "data:image/png;base64," in shown
    assert study.plot()._repr_png_().startswith(b"\x89PNG")
