"""Fixtures of the tests of studies."""

from study_cases import computed, path  # noqa: F401
