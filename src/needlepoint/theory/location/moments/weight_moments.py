"""The few means of attention weights that the population risk is made of, and the risk from them.

f(X) is linear in v, and given the scores the value fields are Gaussian. So the risk at any seven overlaps is a
combination of means that depend on the key only through k . k* and |k|^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from needlepoint.core.overlaps import Overlaps
from needlepoint.tasks.single_location import SingleLocation


class SpikedMoments(NamedTuple):
    r"""Means over eq:slr-law, the relevant token first, $\chi_l = \xi_l + m\kappa\delta_{l1}$."""

    weight: Any  # E sigma_1
    weight_xi: Any  # E sigma_1 xi_1
    xi_mu: Any  # E xi_1 sum sigma_l xi_l
    weight_sq: Any  # E sigma_1^2
    others_sq: Any  # E sum_{l > 1} sigma_l^2
    weight_mu: Any  # E sigma_1 sum sigma_l xi_l
    mu_sq: Any  # E (sum sigma_l xi_l)^2

    def excess_risk(self, task: SingleLocation, seven: Sequence[Any]) -> Any:
        r"""eq:field-risk. Return the excess risk of the spiked task, the mean of $(\mu^*_1 - \sigma\cdot\mu)^2 +
        \gamma^2(K_{11} - 2K_{12}\sigma_1) + K_{22}\sum_l s_l^2\sigma_l^2$, with
        $\mu_l = \xi_l\rho/q_k + m\theta\delta_{l1}$ and $\mu^*_l = \xi_l\eta/q_k$.
        """
        # notation: a = eta / q_k, b = rho / q_k
        _, nu, theta, eta, rho, key_sq, value_sq = seven
        G, m_theta = task.label_var, np.sqrt(task.shift_sq) * theta
        a, b = (eta / key_sq, rho / key_sq) if key_sq > 0 else (0.0 * eta, 0.0 * rho)
        k11, k12, k22 = 1 - eta * a, nu - rho * a, value_sq - rho * b
        residual = a * a * G * key_sq - 2 * a * (b * self.xi_mu + m_theta * self.weight_xi)
        residual = residual + b * b * self.mu_sq + 2 * b * m_theta * self.weight_mu + m_theta**2 * self.weight_sq
        return residual + G * (k11 - 2 * k12 * self.weight) + k22 * (G * self.weight_sq + self.others_sq)

    def on_manifold(self, label_var: Any) -> tuple[Any, Any]:
        return label_var * self.weight, label_var * self.weight_sq + self.others_sq

    def rounding(self, task: SingleLocation, overlaps: Overlaps, value: float) -> float:
        return rounding_of_shifted(task, overlaps, value)


class MaxMoments(NamedTuple):
    r"""Means over eq:max-law, $\chi_l = \kappa\chi^*_l + sg_l$; $J$ is the relevant token."""

    weight: Any  # E sigma_J
    rest_star: Any  # E g_J sum sigma_l chi*_l
    rest_rest: Any  # E g_J sum sigma_l g_l
    weights_sq: Any  # E sum sigma_l^2
    scores_sq: Any  # E (sum sigma_l chi_l)^2

    def excess_risk(self, task: SingleLocation, seven: Sequence[Any]) -> Any:
        r"""eq:max-risk. Return the excess risk of the max task, $1 - 2E[z^*_Jf] + E f^2$.

        $f^2$ does not depend on $J$, and $z^*_J$ is correlated with the fields of its own token only, through $\eta$
        and $\nu$.
        """
        # notation: a = eta / s, b = (rho - kappa theta) / s, s^2 = q_k - kappa^2, the part of k beyond k*
        kappa, nu, theta, eta, rho, key_sq, value_sq = seven
        rest_sq = key_sq - kappa**2
        if rest_sq > 8 * np.finfo(float).eps * key_sq:
            s = np.sqrt(rest_sq)
            a, b = eta / s, (rho - kappa * theta) / s
        else:
            a, b = 0.0 * eta, 0.0 * rho  # k lies along k*, so that eta = 0 and rho = kappa theta
        cross = (nu - a * b) * self.weight + a * (theta * self.rest_star + b * self.rest_rest)
        slope = rho / key_sq if key_sq > 0 else 0.0 * rho
        return 1 - 2 * cross + (value_sq - slope * rho) * self.weights_sq + slope**2 * self.scores_sq

    def on_manifold(self, label_var: Any) -> tuple[Any, Any]:
        return self.weight, self.weights_sq

    def rounding(self, task: SingleLocation, overlaps: Overlaps, value: float) -> float:
        return _SIZE * (abs(value) + 1 + overlaps.value_sq * float(self.weights_sq))


Moments = SpikedMoments | MaxMoments


_SIZE = 32 * np.finfo(float).eps


def rounding_of_shifted(task: SingleLocation, overlaps: Overlaps, value: float) -> float:
    """Return the rounding error of eq:field-risk and eq:erf-risk, from the size of their terms: (m theta)^2, gamma^2,
    E[L-1] q_v and E[(L-1)(L-2)] rho^2.
    """
    law = task.length_moments()
    terms = (task.shift_sq * overlaps.value_on_key**2 + task.label_var + law["task.others"]) * max(
        1.0, overlaps.value_sq
    )
    return _SIZE * (abs(value) + terms + law["task.pairs"] * overlaps.key_dot_value**2)


def excess_risk(task: SingleLocation, moments: Moments, overlaps: Overlaps | Sequence[Any]) -> Any:
    """Return the excess risk at seven overlaps, given the means at their key and key_sq."""
    seven = tuple(x for _, x in overlaps.items()) if isinstance(overlaps, Overlaps) else overlaps
    return moments.excess_risk(task, seven)


def on_manifold(label_var: Any, moments: Moments) -> tuple[Any, Any]:
    r"""eq:value-form. Return $(A, B)$ of $R = G - 2A\nu + Bq_v$ on the manifold.

    The least risk over $v$ is $G - A^2/B$ at $v = (A/B)v^*$. Averages over random lengths are taken in $A$ and $B$,
    because one $v$ serves all lengths.
    """
    return moments.on_manifold(label_var)


def rounding(task: SingleLocation, overlaps: Overlaps, value: float, moments: Moments) -> float:
    """Return the rounding error of a risk, from the size of the terms that it is the sum of."""
    return moments.rounding(task, overlaps, value)
