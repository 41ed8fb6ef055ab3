"""Shared by all tests: the command line as a function, and a registry without the activations of other files."""

import json
import os
from pathlib import Path

import jax
import pytest

from needlepoint.core import specs
from needlepoint.core.progress import SILENCE
from needlepoint.models.user_activations import UserActivation
from needlepoint.simulation import simulating
from needlepoint.theory import curves, predicting

# Every rule is in the table before a test borrows it: what a module registers meanwhile would be lost.
for module in (predicting, curves, simulating):
    module.load_rules()

os.environ[SILENCE] = "off"  # here and in all that tests start: on a busy machine anything may take two seconds


def _forget():
    for name in specs.names("activation"):
        if issubclass(specs.lookup(name), UserActivation):
            specs.forget(name)


@pytest.fixture(autouse=True)
def _no_activations_of_others():
    """Gone before and after each test; a named activation still computes, only its name is free again."""
    _forget()
    yield
    _forget()


MOST_MAPPINGS = 30_000
"""Compiled kernels are memory mappings, of which a process may have 65,530 on Linux; beyond, XLA ends in a segmentation
fault, as one worker that ran all slow tests did."""


@pytest.fixture(autouse=True, scope="module")
def _not_too_many_kernels():
    """Drop compiled kernels after a file of tests where they have become very many."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_text().count("\n") > MOST_MAPPINGS:
        jax.clear_caches()


@pytest.fixture
def call(capsys):
    """Run a command; returns exit code, stdout, stderr."""

    def inner(*args):
        from needlepoint.cli import run

        code = run([str(a) for a in args])
        return code, *capsys.readouterr()

    return inner


@pytest.fixture
def document(call):
    """Run a command with --json; the whole of stdout must be one document, without NaN or Infinity."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    def inner(*args, code=0):
        got, out, err = call(*args, "--json")
        assert got == code, err
        assert out.count("\n") == 1
        return json.loads(out, parse_constant=refuse)

    return inner
