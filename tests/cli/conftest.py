"""Fixtures of the tests of the command line."""

from studies_cli_cases import written  # noqa: F401
