"""The type of arrays in kernels: JAX traces them, NumPy holds them outside."""

from __future__ import annotations

from typing import TypeAlias

import jax
import numpy as np

Array: TypeAlias = jax.Array | np.ndarray
