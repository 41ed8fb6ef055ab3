"""Second routes: formulas and rules of integration that the library does not use."""

from __future__ import annotations

from typing import Any

import needlepoint as ndl
from benchmarks.honesty.references import kernels, max_elementwise, spiked_elementwise


def excess_risk(task: Any, activation: Any, overlaps: ndl.Overlaps) -> tuple[float, float]:
    """The population excess risk at given overlaps, with the error of this route."""
    by_token = activation.form == "elementwise"
    if isinstance(task, ndl.SpikedSLR):
        route = spiked_elementwise.excess_risk if by_token else kernels.spiked
    else:
        route = max_elementwise.maximal if by_token else kernels.maximal
    return route(task, activation, overlaps)
