"""The best possible estimate of the matrix of the attention-indexed model: an explicit curve."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize
from threadpoolctl import threadpool_limits

from needlepoint.core.answers.spectra import Spectrum
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import IndexedOverlaps
from needlepoint.core.results import Measurement, Prediction, Progress, silent
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.numerics.freeprob import FreeSum
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.tasks.targets import Eigenvalues
from needlepoint.theory.indexed.accuracy import ACCURACY
from needlepoint.theory.indexed.doubt import not_gaussian
from needlepoint.theory.indexed.quadrature import losses
from needlepoint.theory.indexed.spectrum import LEVELS


@rule("predict", AttentionIndexed, None, BayesOptimal)
@threadpool_limits.wrap(limits=1, user_api="blas")  # its sums are small, and slower with more threads
def predict_bayes(task: AttentionIndexed, model: None, learner: BayesOptimal, options: PredictionOptions) -> Prediction:
    """Return the errors of the posterior means of S0 and of the labels of a fresh sequence."""
    if learner.d is not None:
        raise InvalidParameter(
            f"{learner!r}: the attention-indexed model has no Bayes answer at finite d; leave d out."
        )
    Q0 = task.target.law.square
    tau = 0.0 if learner.alpha is None else noise_for(task, learner.alpha)
    error = max(least_error(task, tau), 0.0) if tau else 0.0
    rounding = ACCURACY.bayes_rounding * (Q0 + task.noise_var / 2)
    risk, clean = predictive_risks(task, Q0 - error, options.seed)
    notes = ()
    if tau == 0.0 and learner.alpha is not None:
        notes = (
            "the target is known exactly: its eigenvalues are equal."
            if task.target.alike == 1
            else f"the target is known exactly from alpha = {recovery(task):.6g} on.",
        )
    heavy = not_gaussian(task)
    notes += tuple(f"the risks are not to be trusted: {reason}." for reason in heavy)
    return Prediction(
        task,
        model,
        learner,
        {
            "risk": Estimate(risk.value, risk.error + rounding),
            "clean_risk": Estimate(clean.value, clean.error + rounding),
            "estimation_error": Estimate(error, rounding if tau else 0.0),
        },
        status=Status.UNSTABLE if heavy else Status.CONVERGED,
        overlaps=IndexedOverlaps(Q0 - error, Q0 - error),
        overlaps_error={"m": rounding, "q": rounding},
        notes=notes,
        seed=options.seed,
        conjugates={"noise": math.sqrt(tau)},
        spectrum=shrunk(task.target.law, tau) if tau else None,
    )


@rule("realise", AttentionIndexed, None, BayesOptimal)
@threadpool_limits.wrap(limits=1, user_api="blas")
def realise_bayes(
    task: AttentionIndexed,
    model: None,
    learner: BayesOptimal,
    prediction: Prediction,
    measurement: Measurement,
    progress: Progress = silent,
) -> dict[str, np.ndarray]:
    """Return the predicted numbers for every repeat, (repeats,) each: at the eigenvalues that its target has, and with
    its whole number of sequences over d^2."""
    d = measurement.d
    assert learner.alpha is not None
    assert measurement.spectrum is not None
    same = learner.replace(alpha=round(learner.alpha * d * d) / d**2)
    rows = []
    for values in measurement.spectrum.target.tolist():
        progress(len(rows) / len(measurement.spectrum.target))
        found = predict_bayes(
            task.replace(target=Eigenvalues(tuple(values))), None, same, PredictionOptions(prediction.seed)
        )
        assert found.overlaps is not None
        rows.append({**{name: e.value for name, e in found.metrics.items()}, **dict(found.overlaps.items())})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def predictive_risks(task: AttentionIndexed, q: float, seed: int) -> tuple[Estimate, Estimate]:
    r"""eq:indexed-bayes-risk. Return the risks on noisy and on clean labels, $\frac12E|A(z) - A(z')|^2$ over two draws
    from the posterior. Their scores have covariance $2q$ and variance $2Q_0 + \Delta$ (noisy) or $2Q_0$ (clean)."""
    Q0 = task.target.law.square
    noisy, _ = losses(task, task.beta_star, q, Q0 + task.noise_var / 2, seed)
    _, clean = losses(task, task.beta_star, q, Q0, seed)
    return Estimate(noisy.value / 2, noisy.error / 2), Estimate(clean.value / 2, clean.error / 2)


def shrunk(law: FreeSum, tau: float) -> Spectrum:
    r"""eq:bayes-spectrum. Return the spectrum of the posterior mean: it has the eigenvectors of $S_0 + \sqrt\tau Z$ and
    moves the eigenvalues from $x$ to $x - 2\tau\mathrm{Re}\,g(x)$."""
    delta = math.sqrt(tau)
    x = law.quantiles(LEVELS, delta)
    values = x - 2 * tau * law.resolvent(x, delta).real
    density = np.gradient(LEVELS, values)
    return Spectrum(values, density, 0.0, np.array([[values[0], values[-1]]]), np.empty(0), np.asarray(LEVELS), values)


def samples_for(task: AttentionIndexed, tau: float) -> float:
    r"""eq:indexed-bayes. Return the $\alpha$ at which data are worth as much as $S_0$ seen through noise of variance
    $\tau$: $2N\alpha = 1 - \frac{4\pi^2}3\tau\int\rho_\tau^3 + \frac\Delta{2\tau}$, with $\rho_\tau$ the density of the
    eigenvalues of $S_0 + \sqrt\tau Z$."""
    nodes = task.target.law.nodes(math.sqrt(tau))
    cube = float(nodes.dx @ nodes.density**3)
    return (1 - 4 * math.pi**2 / 3 * tau * cube + task.noise_var / (2 * tau)) / (2 * task.components)


def least_error(task: AttentionIndexed, tau: float) -> float:
    r"""Return the best denoiser's error, $\tau - \frac{4\pi^2}3\tau^2\int\rho_\tau^3 = 2N\alpha\tau - \Delta/2$."""
    return 2 * task.components * samples_for(task, tau) * tau - task.noise_var / 2


def noise_for(task: AttentionIndexed, alpha: float) -> float:
    """Return tau of eq:indexed-bayes at alpha; 0 where nothing is left to learn, as when all eigenvalues are equal."""
    law: FreeSum = task.target.law
    if task.target.alike == 1 or (task.noise_var == 0 and alpha >= recovery(task)):
        return 0.0

    def gap(log_tau: float) -> float:
        return math.log(samples_for(task, math.exp(log_tau)) / alpha)

    low = high = math.log(law.square)
    while gap(high) > 0 and high < math.log(ACCURACY.widest * law.square):
        high += 2.0
    while gap(low) < 0:
        low -= 2.0
    return math.exp(optimize.root_scalar(gap, bracket=(low, high), xtol=1e-14, rtol=1e-14).root)


def recovery(task: AttentionIndexed) -> float:
    r"""eq:bayes-recovery. Return $\alpha = \frac{1 - \sum_iw_i^2}{2N}$, with $w_i$ the shares of equal eigenvalues
    (zeros are one group): one equation for each degree of freedom of a symmetric matrix with known eigenvalues."""
    return (1 - task.target.alike) / (2 * task.components)


def curve(task: AttentionIndexed, taus: np.ndarray) -> np.ndarray:
    """Return (alpha, error) along the explicit curve, (len(taus), 2)."""
    alphas = np.array([samples_for(task, float(t)) for t in taus])
    return np.stack([alphas, 2 * task.components * alphas * taus - task.noise_var / 2], axis=1)
