"""Where descent and SGD start, as overlaps."""

from __future__ import annotations

import numpy as np

from needlepoint.learners import GradientFlow, OnlineSGD, ProjectedDescent


def start_overlaps(learner: ProjectedDescent | OnlineSGD, seed: int) -> np.ndarray:
    r"""eq:starts. Return the overlaps (kappa, nu, theta, eta, rho) of the starts, (5, runs).

    "sphere": k and v independent and uniform. "manifold": k uniform orthogonal to $v^*$, then v uniform
    orthogonal to $k^*$ and k, so that kappa and nu alone differ from zero.
    """
    if learner.given:
        return np.repeat(np.stack([o.five() for o in learner.given], axis=1), learner.runs or 1, axis=1)
    d, runs = learner.d, learner.runs
    assert d is not None
    assert runs is not None
    rng = np.random.default_rng([seed, 2])
    if learner.start == "sphere":
        k, v = _uniform(rng, runs, d), _uniform(rng, runs, d)
        return np.stack([k[:, 0], v[:, 1], v[:, 0], k[:, 1], np.sum(k * v, axis=1)])
    # k lives in d - 1 dimensions that contain k*; v in d - 2 dimensions that contain v*
    zero = np.zeros(runs)
    return np.stack([_uniform(rng, runs, d - 1)[:, 0], _uniform(rng, runs, d - 2)[:, 0], zero, zero, zero])


def start_seven(learner: OnlineSGD | GradientFlow, seed: int) -> np.ndarray:
    """Return the overlaps of starts with free norms, (7, runs); a given start once, since its path is deterministic."""
    if learner.given:
        return np.array([[x for _, x in o.items()] for o in learner.given]).T
    assert isinstance(learner, OnlineSGD)
    five = start_overlaps(learner, seed)
    return np.concatenate([five, np.ones((2, five.shape[1]))])


def _uniform(rng: np.random.Generator, runs: int, d: int) -> np.ndarray:
    x = rng.standard_normal((runs, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)
