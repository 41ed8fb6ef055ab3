"""One file a rule; `CHECKS` of all of them."""

from __future__ import annotations

from benchmarks.honesty.checks import fields, indexed, motion, optimum, ridge, risk, samples, sgd, teachers

_FILES = (risk, teachers, optimum, motion, sgd, samples, ridge, indexed, fields)

CHECKS = {check.name: check for file in _FILES for check in file.CHECKS}
