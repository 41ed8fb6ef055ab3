"""How much the explorer takes on: sizes, times and numbers of processes, each with its unit and reason."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a page may ask of the machine it runs on.

    workers   questions that are computed at once; two keep a laptop usable
    queue     questions that wait; more are refused with 429, which the page takes as "try again"
    body      bytes of a question; one with the eigenvalues of a large matrix has some 100,000
    matrix    bytes of a question that carries a matrix
    seconds   time after which a computation is given up; the longest that the page offers takes some minutes
    memory    bytes of one worker, several hundred MB of which are compiled kernels; beyond it the answer is given up
    kept      bytes above which a worker that has answered is not used again, so that kernels do not pile up
    settle    seconds between the page being sent and the first worker being started, so that the page comes first
    depth     nested brackets in a question
    """

    workers: int = min(2, os.cpu_count() or 1)
    queue: int = 16
    body: int = 200_000
    matrix: int = 4_000_000
    seconds: float = 900.0
    memory: int = 800_000_000
    kept: int = 550_000_000
    settle: float = 0.4
    depth: int = 32


LIMITS = Limits()
