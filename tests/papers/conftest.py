"""A figure of cheap points, and the registry with it."""

import pytest

import needlepoint as ndl
from needlepoint.papers import figures as registry
from needlepoint.papers.figures import Drawing, Figure, Point
from needlepoint.plotting.curves import Curve, CurvePanel, curve_panels

SNR = (1.0, 4.0)
OPTIONS = {"d": 4, "repeats": 4, "samples": 100, "seed": 1}


def tiny_points(size):
    points = []
    for snr in SNR:
        task = ndl.SpikedSLR(2, snr, noise=0.3)
        points.append(Point("predict", task, ndl.LinearRegression(), ndl.Population(), label="linear", x=snr))
        points.append(Point("predict", task, None, ndl.BayesOptimal(), label="Bayes", x=snr))
        options = {**OPTIONS, "repeats": 4 if size == "quick" else 8}
        points.append(Point("simulate", task, ndl.LinearRegression(), ndl.Population(), options, "linear", snr))
    return points


def tiny_draw(records):
    curves, rows = [], []
    for label in ("linear", "Bayes"):
        mine = [r for r in records if r.point.label == label]
        line = [(r.point.x, r.result.excess_risk) for r in mine if r.point.verb == "predict"]
        dots = [(r.point.x, r.result.excess_risk) for r in mine if r.point.verb == "simulate"]
        curves.append(
            Curve(label, [x for x, _ in line], [e.value for _, e in line], [(x, e.value, e.error) for x, e in dots])
        )
        rows += [[label, source, x, e.value, e.error] for source, s in (("t", line), ("s", dots)) for x, e in s]
    figure = curve_panels([CurvePanel("tiny", "snr", curves)], "excess risk", (1e-3, 2.0))
    return Drawing(figure, {"curves": (["label", "source", "snr", "excess_risk", "error"], rows)})


@pytest.fixture(scope="session")
def tiny():
    return Figure("tiny", "Tiny <figure>", "2410.01537", "Linear & Bayes at two snr.", tiny_points, tiny_draw)


@pytest.fixture
def with_tiny(tiny, monkeypatch):
    """The registry with the tiny figure in it, for one test."""
    registry.figures()  # the package's own come first, else they would be lost with the copy
    monkeypatch.setattr(registry, "_FIGURES", dict(registry._FIGURES))
    return registry.register(tiny)
