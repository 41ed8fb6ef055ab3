"""Scrambled Sobol points: uniform points that fill the unit cube more evenly than random ones.

They are the points of scipy.stats.qmc.Sobol, bit for bit. That module takes half a second to import, which every first
answer would have to wait for; it is used only beyond the dimensions of the table below.
"""

from __future__ import annotations

import functools

import numpy as np

BITS = 30
"""Binary digits of a coordinate, and so log2 of the most points."""

_TABLE = """
3: 1; 7: 1 3; 11: 1 3 1; 13: 1 1 1; 19: 1 1 3 3; 25: 1 3 5 13; 37: 1 1 5 5 17; 41: 1 1 5 5 5; 47: 1 1 7 11 19;
55: 1 1 5 1 1; 59: 1 1 1 3 11; 61: 1 3 5 5 31; 67: 1 3 3 9 7 49; 91: 1 1 1 15 21 21; 97: 1 3 1 13 27 49; 103: 1
1 1 15 7 5; 109: 1 3 1 15 13 25; 115: 1 1 5 5 19 61; 131: 1 3 7 11 23 15 103; 137: 1 3 7 13 13 15 69; 143: 1 1 3
13 7 35 63; 145: 1 3 5 9 1 25 53; 157: 1 3 1 13 9 35 107; 167: 1 3 1 5 27 61 31; 171: 1 1 5 11 19 41 61; 185: 1
3 5 3 3 13 69; 191: 1 1 7 13 1 19 1; 193: 1 3 7 5 13 19 59; 203: 1 1 3 9 25 29 41; 211: 1 3 5 13 23 1 55; 213: 1
3 7 3 13 59 17; 229: 1 3 1 3 5 53 69; 239: 1 1 5 5 23 33 13; 241: 1 1 7 7 1 61 123; 247: 1 1 7 9 13 61 49; 253:
1 3 3 5 3 55 33; 285: 1 3 1 15 31 13 49 245; 299: 1 3 5 15 31 59 63 97; 301: 1 3 1 11 11 11 77 249; 333: 1 3 1
11 27 43 71 9; 351: 1 1 7 15 21 11 81 45; 355: 1 3 7 3 25 31 65 79; 357: 1 3 1 1 19 11 3 205; 361: 1 1 5 9 19 21
29 157; 369: 1 3 7 11 1 33 89 185; 391: 1 3 3 3 15 9 79 71; 397: 1 3 7 11 15 39 119 27
"""
"""Polynomial and first direction numbers of each dimension after the first, by S. Joe and F. Y. Kuo, SIAM J. Sci.
Comput. 30, 2635 (2008): the polynomial as a binary number with its leading and its constant coefficient."""


def sobol_points(dimension: int, log2_points: int, rng: np.random.Generator) -> np.ndarray:
    """Return 2**log2_points points in [0, 1), (points, dimension), scrambled by a random linear map of their digits and
    a random shift, so that every point is uniform and their mean of any function is unbiased."""
    directions = _directions()
    if dimension > len(directions):
        from scipy import stats

        return stats.qmc.Sobol(dimension, scramble=True, rng=rng).random_base2(log2_points)
    rng = rng.spawn(1)[0]
    shift = rng.integers(0, 2, size=(dimension, BITS), dtype=np.uint32) @ (1 << np.arange(BITS, dtype=np.uint32))
    mix = np.tril(rng.integers(0, 2, size=(dimension, BITS, BITS), dtype=np.uint32), k=-1)
    mix += np.eye(BITS, dtype=np.uint32)
    places = np.arange(BITS - 1, -1, -1, dtype=np.uint32)  # of the digits, the most significant first
    digits = (directions[:dimension, :log2_points, None] >> places) & 1
    mixed = np.matmul(digits.astype(float), np.swapaxes(mix, 1, 2).astype(float)).astype(np.uint32) & 1
    columns = mixed @ (1 << places)  # (dimension, log2_points): the direction numbers after the map
    points = np.empty((2**log2_points, dimension), dtype=np.uint32)
    points[0] = shift
    for k in range(log2_points):  # in the order of the Gray code, each half is the one before it, reflected
        points[2**k : 2 ** (k + 1)] = points[: 2**k][::-1] ^ columns[:, k]
    return points * 2.0**-BITS


@functools.cache
def _directions() -> np.ndarray:
    """Return the direction numbers of all dimensions of the table as integers of BITS digits, (dimensions, BITS)."""
    rows = [[1] * BITS]
    for entry in _TABLE.replace("\n", " ").split(";"):
        polynomial, first = entry.split(":")
        rows.append(_recursion(int(polynomial), [int(m) for m in first.split()]))
    return np.array(rows, dtype=np.uint32) << np.arange(BITS - 1, -1, -1, dtype=np.uint32)


def _recursion(polynomial: int, numbers: list[int]) -> list[int]:
    """Return BITS direction numbers m_k, of k digits each, by the recursion over GF(2) that the polynomial
    x^s + a_1 x^(s-1) + ... + 1 defines: m_k = 2 a_1 m_(k-1) xor ... xor 2^s m_(k-s) xor m_(k-s)."""
    degree = polynomial.bit_length() - 1
    while len(numbers) < BITS:
        new = numbers[-degree]
        for i in range(1, degree + 1):
            if polynomial >> (degree - i) & 1:
                new ^= numbers[-i] << i
        numbers.append(new)
    return numbers
