"""A process that is forked after JAX has computed says that it cannot compute, instead of hanging."""

import multiprocessing
import os
import signal
import warnings

import pytest

import needlepoint as ndl
from needlepoint.core.process import forks

from waiting import until

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
QUESTION = (ndl.SpikedSLR(2, 1.0), ndl.LinearRegression(), ndl.Population())


def in_a_fork(function):
    """What a forked child says of the function; the child itself leaves without ceremony."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # JAX and Python warn of what is tested here
        child = os.fork()
    if child == 0:
        try:
            answer = repr(function())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(theirs, answer.encode())
        os._exit(0)
    os.close(theirs)
    ended = []
    try:
        until(lambda: ended or ended.extend(p for p, _ in [os.waitpid(child, os.WNOHANG)] if p), "the child", child)
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    with os.fdopen(ours, "rb") as pipe:
        return pipe.read().decode()


@pytest.mark.parametrize(
    "function",
    [
        lambda: ndl.predict(*QUESTION),
        lambda: ndl.simulate(*QUESTION, d=4, repeats=1),
        lambda: ndl.population_risk(QUESTION[0], ndl.KeyValueAttention(ndl.Softmax()), ndl.Overlaps(1.0, 1.0)),
        lambda: ndl.activation("mine")(lambda s: s),
    ],
    ids=["predict", "simulate", "population_risk", "activation"],
)
def test_a_fork_says_that_it_would_hang(function):
    ndl.predict(*QUESTION)  # JAX, or at least this package, has computed
    said = in_a_fork(function)
    assert said.startswith("InvalidParameter: this process was forked from one in which JAX has computed")
    assert "multiprocessing.get_context('spawn')" in said
    assert said.endswith(".")


def test_a_use_of_jax_alone_is_noticed(monkeypatch):
    import jax.numpy as jnp

    jnp.ones(2).sum().item()
    monkeypatch.setattr(forks, "_used", False)
    assert "would hang" in in_a_fork(lambda: ndl.predict(*QUESTION))


def test_a_fork_before_anything_was_computed_may_compute(monkeypatch):
    monkeypatch.setattr(forks, "_used", False)
    monkeypatch.setattr(forks, "_jax_has_computed", lambda: False)
    assert in_a_fork(forks.note_use) == "None"


def test_a_fork_may_do_what_computes_nothing():
    ndl.predict(*QUESTION)
    assert in_a_fork(lambda: ndl.SpikedSLR(2, 1.0).id) == repr(ndl.SpikedSLR(2, 1.0).id)


def _spawned(pipe):
    pipe.send(ndl.predict(*QUESTION).risk.value)


def test_a_spawned_process_computes():
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_spawned, args=(theirs,))
    process.start()
    until(lambda: ours.poll(0) or not process.is_alive(), "the spawned process", process.pid)
    assert ours.recv() == ndl.predict(*QUESTION).risk.value
    process.join()
