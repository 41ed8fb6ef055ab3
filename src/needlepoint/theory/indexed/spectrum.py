"""The spectrum of the learned query-key matrix, and what it says about stability."""

from __future__ import annotations

import numpy as np

from needlepoint.core.answers.spectra import Spectrum
from needlepoint.numerics.free_atoms import Atoms
from needlepoint.numerics.freeprob import FreeSum

LEVELS = (np.arange(1025) + 0.5) / 1025
"""Probabilities at which quantiles are tabulated."""


def spectrum(law: FreeSum, delta: float, eps: float | None, eta: float) -> Spectrum:
    r"""eq:learned-spectrum. Return the law of $\eta(x - \epsilon)_+$ with $x$ from $\mu_\delta$; that of $\eta x$ if
    `eps` is None."""
    nodes, pieces = law.nodes(delta), law.support(delta)
    cut = -np.inf if eps is None else eps
    shift = 0.0 if eps is None else eps
    kept = nodes.x > cut
    edges = eta * (np.maximum(pieces[pieces[:, 1] > cut], cut) - shift)
    outliers = law.outliers(delta) if isinstance(law, Atoms) else np.empty(0)
    atom = 0.0 if eps is None else float(np.clip(1 - law.truncated(delta, eps).above, 0.0, 1.0))
    values = eta * (np.maximum(law.quantiles(LEVELS, delta), cut) - shift)
    order = np.argsort(nodes.x[kept])
    return Spectrum(
        eta * (nodes.x[kept][order] - shift),
        nodes.density[kept][order] / eta,
        atom,
        edges,
        eta * (outliers[outliers > cut] - shift),
        LEVELS,
        values,
    )


def spread(law: FreeSum, delta: float, eps: float | None) -> float:
    r"""eq:cut-spread. Return $\int\int\left[\frac{(x - \epsilon)_+ - (y - \epsilon)_+}{x - y}\right]^2$ over
    $\mu_\delta$ twice: how strongly the cut matrix changes with the matrix. Pairs above the cut count 1, pairs below 0;
    without a cut (`eps` None) it is 1."""
    if eps is None:
        return 1.0
    nodes = law.nodes(delta, (eps,))
    high, low = nodes.x > eps, nodes.x < eps
    share = (nodes.x[high, None] - eps) / (nodes.x[high, None] - nodes.x[None, low])
    above = float(law.truncated(delta, eps).above)
    return above**2 + 2 * float(nodes.mass[high] @ share**2 @ nodes.mass[low])
