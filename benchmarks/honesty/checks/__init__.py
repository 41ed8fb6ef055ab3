"""One file a rule; `CHECKS` of all of them."""

from __future__ import annotations

from benchmarks.honesty.checks import indexed, motion, optimum, ridge, risk, samples, sgd, teachers

_FILES = (risk, teachers, optimum, motion, sgd, samples, ridge, indexed)

CHECKS = {check.name: check for file in _FILES for check in file.CHECKS}
