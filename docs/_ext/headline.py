"""The picture at the top of the README: one panel for each body of work, training over theory.

`python docs/_ext/headline.py` takes about a minute and writes docs/images/headline.png.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import needlepoint as ndl
from needlepoint.plotting.style import COLOURS, panels, styled

TARGET = Path(__file__).parent.parent / "images" / "headline.png"
DPI = 130


def _descent(axis: Any) -> None:
    """Erf attention finds its key: medians over runs, and the middle half of them."""
    d = 100
    task = ndl.SpikedSLR(tokens=10, snr=d / 2, relevant_std=0.5**0.5, noise=0.1)
    model = ndl.KeyValueAttention(ndl.Erf(scale=0.2), unit_norm=True)
    descent = ndl.ProjectedDescent(lr=4e-3, steps=4000, start="manifold", record_every=50, d=d, runs=200)
    theory = ndl.predict(task, model, descent).trajectory
    training = ndl.simulate(task, model, descent, d=d, repeats=64).trajectory
    assert theory is not None
    assert training is not None
    for name, colour in (("key", COLOURS[0]), ("value", COLOURS[1])):
        low, middle, high = np.quantile(abs(theory.overlaps[name]), (0.25, 0.5, 0.75), axis=0)
        axis.fill_between(theory.steps, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(theory.steps, middle, color=colour, label=name)
        shown = slice(0, None, 8)
        trained = np.median(abs(training.overlaps[name]), axis=0)
        axis.plot(training.steps[shown], trained[shown], "o", mfc="white", mec=colour, ms=4.5)
    axis.set(xlabel="step of gradient descent", ylabel="overlap with the teacher", title="erf attention finds its key")
    axis.legend(loc="lower right")


def _samples(axis: Any) -> None:
    """Softmax against linear attention and the Bayes-optimal predictor, from alpha d samples."""
    task, learner = ndl.SpikedSLR(tokens=2, snr=2, noise=0.1), ndl.Ridge(alpha=4, lam=0.5)
    alphas, trained = [1, 1.4, 2, 2.8, 4, 5.6, 8, 11, 16], [1, 2, 4, 8, 16]
    for activation, colour in ((ndl.Linear(), COLOURS[1]), (ndl.Softmax(), COLOURS[0])):
        model = ndl.KeyValueAttention(activation)
        also = ndl.Simulation(d=100, repeats=16, at={"learner.alpha": trained})
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "s.sqlite"
            with ndl.sweep(task, model, learner, {"learner.alpha": alphas}, also=also, store=file) as study:
                points = list(study.points())
        name = type(activation).__name__.lower()
        axis.plot(alphas, [p.prediction.excess_risk.value for p in points], color=colour, label=name)
        for point in points:
            for measured in point.measurements:
                found = measured.excess_risk
                style = {"fmt": "o", "mfc": "white", "ms": 4.5, "color": colour}
                axis.errorbar(point.at["learner.alpha"], found.value, found.error, **style)
    bayes = [ndl.predict(task, None, ndl.BayesOptimal(alpha=alpha)).excess_risk.value for alpha in alphas]
    axis.plot(alphas, bayes, color="#444444", linestyle="--", label="Bayes-optimal")
    axis.set(xscale="log", xlabel="training sequences over d", ylabel="excess risk", title="what samples are worth")
    axis.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    axis.minorticks_off()
    axis.legend()


def _spectrum(axis: Any) -> None:
    """Eigenvalues of trained query-key matrices under their predicted law."""
    task = ndl.AttentionIndexed(tokens=2, target=ndl.Wishart(0.5), noise_var=0.5)
    question = task, ndl.TiedAttention(), ndl.Ridge(alpha=0.5, lam=0.02)
    law = ndl.predict(*question).spectrum
    trained = ndl.simulate(*question, d=100, repeats=6, samples=200).spectrum
    assert law is not None
    values = trained.eigenvalues.ravel()
    positive = values[values > 1e-3]
    counts, edges = np.histogram(positive, bins=28)
    share = counts / (len(values) * np.diff(edges))
    axis.stairs(share, edges, fill=True, color=COLOURS[1], alpha=0.35, label="trained, d = 100")
    axis.plot(law.x, law.density, color=COLOURS[0], label="predicted law")
    zeros = f"{law.atom:.0%} are zero\n({1 - len(positive) / len(values):.0%} trained)"
    axis.text(0.96, 0.62, zeros, transform=axis.transAxes, ha="right")
    axis.set(xlabel="eigenvalue of the query-key matrix", ylabel="density", title="the matrix that is learned")
    axis.set(xlim=(0, None), ylim=(0, 1.15 * share.max()))
    axis.legend()


@styled
def main() -> None:
    figure, axes = panels(1, 3, 10.5, 3.1)
    for axis, draw in zip(axes[0], (_descent, _samples, _spectrum), strict=True):
        draw(axis)
    figure.savefig(TARGET.with_suffix(".raw.png"), dpi=DPI)
    from pictures import shrink

    shrink(TARGET.with_suffix(".raw.png"), TARGET)
    TARGET.with_suffix(".raw.png").unlink()


if __name__ == "__main__":
    main()
