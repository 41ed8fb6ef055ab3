"""One file a rule; `CHECKS` of all of them."""

from __future__ import annotations

from benchmarks.honesty.checks import risk, teachers

CHECKS = {check.name: check for module in (risk, teachers) for check in module.CHECKS}
