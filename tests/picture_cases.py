"""Studies that are drawn in tests."""

import io
import itertools
import re

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.results import Measurement, Prediction
from needlepoint.plotting.studies.pictures import plot
from needlepoint.studies.points import StudyPoint

TASK, MODEL, LEARNER = ndl.SpikedSLR(2, 1.0), ndl.KeyValueAttention(ndl.Softmax()), ndl.Population()


OK, MAX_STEPS, DIVERGED = ndl.Status.CONVERGED, ndl.Status.MAX_STEPS, ndl.Status.DIVERGED


class Study:
    """What `plot` reads of a study."""

    def __init__(self, axes, points, grid=True):
        self.axes, self.grid, self._points = axes, grid, list(points)

    def points(self):
        return iter(self._points)


def prediction(value, error=0.0, status=OK, metric="excess_risk", **more):
    return Prediction(TASK, MODEL, LEARNER, {metric: ndl.Estimate(value, error)}, status=status, **more)


def measurement(value, error=0.01, d=100, status=OK, metric="excess_risk", **more):
    estimate = ndl.Estimate(value, error, "stderr")
    return Measurement(TASK, MODEL, LEARNER, {metric: estimate}, status=status, d=d, repeats=2000, **more)


def grid(make, grid=True, **axes):
    """A study over the product of the axes; `make(**values)` gives a StudyPoint's arguments or a prediction."""
    paths = {name.replace("__", "."): values for name, values in axes.items()}
    points = []
    for values in itertools.product(*axes.values()):
        made = make(*values)
        made = made if isinstance(made, tuple) else (made,)
        points.append(StudyPoint(dict(zip(paths, values, strict=True)), *made))
    return Study(paths if grid else {}, points, grid)


def render(figure):
    """Draw it for real: some warnings come only then."""
    figure.savefig(io.BytesIO(), format="png", dpi=30)
    return figure


def texts(figure):
    return [t.get_text() for legend in figure.legends for t in legend.get_texts()]


def labelled(axis, label):
    return [line for line in axis.lines if line.get_label() == label]


def xy(line):
    return np.column_stack(line.get_data())


def refuses(sentence, *args, **kwargs):
    with pytest.raises(ndl.InvalidParameter, match=re.escape(sentence)) as caught:
        plot(*args, **kwargs)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
