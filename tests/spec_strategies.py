"""Random specs of every registered type, for the tests of specs."""

import importlib
import pkgutil

import numpy as np
from hypothesis import strategies as st

import needlepoint.models
import needlepoint.tasks
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.specs import (
    lookup,
    names,
)

for package in (needlepoint.tasks, needlepoint.models):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)


REGISTERED = [lookup(name) for name in names()]


@st.composite
def overlaps(draw, unit=False):
    """Overlaps of real vectors, so that they are feasible."""
    entries = st.floats(-2, 2).filter(lambda x: abs(x) > 1e-3)
    k, v = (np.array([draw(entries) for _ in range(4)]) for _ in range(2))
    if unit:
        k, v = k / np.linalg.norm(k), v / np.linalg.norm(v)
    squares = {} if unit else {"key_sq": k @ k, "value_sq": v @ v}
    return Overlaps(k[0], v[1], v[0], k[1], k @ v, **squares)
