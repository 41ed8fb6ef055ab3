"""Second routes: formulas and rules of integration that the library does not use."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.honesty.references import kernels, max_elementwise, spiked_elementwise

import needlepoint as ndl

STEEPEST = 40.0
"""The tables of a kernel are as fine as its key is long; beyond this norm there is no reference."""


def excess_risk(task: Any, activation: Any, overlaps: ndl.Overlaps) -> tuple[float, float]:
    """The population excess risk at given overlaps, with the error of this route."""
    if activation.form != "elementwise" and overlaps.key_sq * max(1.0, task.label_var) > STEEPEST**2:
        return math.nan, math.inf
    by_token = activation.form == "elementwise"
    if isinstance(task, ndl.MaxSLR):
        return (max_elementwise.maximal if by_token else kernels.maximal)(task, activation, overlaps)
    return (spiked_elementwise.excess_risk if by_token else kernels.spiked)(task, activation, overlaps)
