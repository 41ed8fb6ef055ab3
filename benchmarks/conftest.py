"""Benchmarks report CPU seconds and ratios measured in one run; they assert nothing about time."""

import time

import pytest


@pytest.fixture
def clock():
    """CPU seconds of a call: this process, all threads."""

    def measure(function, *args, **kwargs):
        start = time.process_time()
        result = function(*args, **kwargs)
        return time.process_time() - start, result

    return measure


@pytest.fixture
def report(capsys):
    """Print a line past pytest's capture."""

    def say(text):
        with capsys.disabled():
            print(f"\n  {text}", end="")

    return say
