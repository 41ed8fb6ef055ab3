"""The registry: every figure is data that could be computed, stored and cited."""

import json
import math
import pkgutil
from pathlib import Path

import pytest

import needlepoint as ndl
from needlepoint import papers
from needlepoint.core.specs import from_json
from needlepoint.papers.citations import PAPERS
from needlepoint.papers.figures import Point, figure, figures, register

IDS = list(figures())
BOTH = pytest.mark.parametrize("size", ["quick", "full"])
EVERY = pytest.mark.parametrize("name", IDS)


def test_ids_are_unique_and_kept(tiny, with_tiny):
    assert len(set(IDS)) == len(IDS)
    for name, one in figures().items():
        assert one.id == name
        assert figure(name) is one
    with pytest.raises(ValueError, match="two figures are named tiny"):
        register(tiny)


def test_an_unknown_figure_names_the_nearest():
    with pytest.raises(ndl.UnknownName, match=r"^unknown figure 'erf-sdg': did you mean 'erf-sgd'\?$"):
        figure("erf-sdg")


@EVERY
def test_every_figure_says_what_it_is(name):
    one = figure(name)
    assert one.paper in PAPERS
    assert one.caption.endswith(".")
    assert len(one.caption) > 40
    assert one.title
    assert not one.title.endswith(".")
    assert name == name.lower()
    assert "/" not in name  # it is part of file names


@BOTH
@EVERY
def test_points_are_public_questions_that_can_be_stored(name, size):
    points = figure(name).points(size)
    assert points
    for point in points:
        assert isinstance(point, Point)
        assert point.verb in ndl.__all__
        assert callable(getattr(ndl, point.verb))
        for part, family in zip(point.question, ("task", "model", "learner"), strict=True):
            if part is not None:
                assert part.family == family
                assert from_json(json.loads(json.dumps(part.to_json(), allow_nan=False))) == part
        hash(point.question)


@BOTH
@EVERY
def test_every_measurement_has_its_prediction_before_it(name, size):
    """So that nothing simulated stays out of agreement.csv, and `follow` finds what to follow."""
    predicted = set()
    for point in figure(name).points(size):
        if point.verb == "predict":
            predicted.add(point.question)
        elif point.verb == "simulate":
            assert point.question in predicted
            assert {"d", "repeats", "seed"} <= set(point.options)
            assert getattr(point.learner, "d", None) in (None, point.options["d"])
            # prediction and measurement of random runs must not share their random numbers
            assert point.options["seed"] != 0


@EVERY
def test_points_are_the_same_each_time(name):
    first, again = figure(name).points("quick"), figure(name).points("quick")
    assert [p.question for p in first] == [p.question for p in again]
    assert [repr(p.options) for p in first] == [repr(p.options) for p in again]


@EVERY
def test_quick_is_no_more_work_than_full(name):
    def work(size):
        def one(point):
            learner = point.learner
            return getattr(learner, "steps", 1) * (getattr(learner, "d", None) or 1)

        return math.fsum(one(p) for p in figure(name).points(size))

    assert work("quick") <= work("full")


@EVERY
def test_every_figure_stands_in_the_documentation_with_its_place_in_the_paper(name):
    page = (Path(__file__).parents[2] / "docs" / "figures.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `") and f"`{name}`" in line]
    assert len(rows) == 1
    _, _, place, shows, _ = rows[0]
    assert place.strip()
    assert shows.strip()


def test_every_module_of_papers_is_looked_at():
    names = {m.name for m in pkgutil.iter_modules(papers.__path__)}
    assert {"citations", "erf_location", "figures", "report", "runner"} <= names
