"""Fixtures of the tests that kill processes."""

from kill_cases import calm, definition, moody, start  # noqa: F401
