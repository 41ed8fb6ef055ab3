"""One file a rule; `CHECKS` of all of them."""

from __future__ import annotations

from benchmarks.honesty.checks import indexed, motion, optimum, risk, teachers

_FILES = (risk, teachers, optimum, motion, indexed)

CHECKS = {check.name: check for file in _FILES for check in file.CHECKS}
