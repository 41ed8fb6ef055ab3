"""The scoped float64 switch: it holds inside, nests, leaves the global setting alone, and works in new threads."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from needlepoint.numerics.precision import float64

pytestmark = pytest.mark.exact


def third():
    """Carries 1/3 to the precision in force."""
    return np.asarray(jnp.asarray(1.0) / 3)


def is_double(x):
    return x.dtype == np.float64 and float(x) == 1 / 3


def test_inside_is_double_whatever_the_caller_has():
    for outside in (False, True):
        with jax.enable_x64(outside):
            assert is_double(float64(third)())
            assert is_double(third()) is outside


def test_scopes_nest_and_unwind():
    seen = []

    @float64
    def inner():
        seen.append(third().dtype)

    @float64
    def outer():
        inner()
        seen.append(third().dtype)
        with jax.enable_x64(False):
            seen.append(third().dtype)
            inner()
        seen.append(third().dtype)

    with jax.enable_x64(False):
        outer()
        seen.append(third().dtype)
    double, single = np.float64, np.float32
    assert seen == [double, double, single, double, double, single]


def test_the_global_setting_is_untouched_also_by_an_error():
    before = jax.config.jax_enable_x64

    @float64
    def fails():
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fails()
    float64(third)()
    assert jax.config.jax_enable_x64 == before
    assert third().dtype == (np.float64 if before else np.float32)


def test_jitted_functions_and_derivatives():
    jitted = jax.jit(lambda x: jnp.asarray(x) / 3)
    with jax.enable_x64(False):
        assert np.asarray(jitted(1.0)).dtype == np.float32

        @float64
        def both():
            return np.asarray(jitted(1.0)), np.asarray(jax.grad(lambda x: x**2 / 6)(1.0))

        assert all(is_double(x) for x in both())
        assert np.asarray(jitted(1.0)).dtype == np.float32


def test_threads_each_have_their_own_scope():
    found = {}
    entered, leave = threading.Event(), threading.Event()

    @float64
    def holds():
        entered.set()
        leave.wait()
        found["holder"] = third().dtype

    def bystander():
        try:
            with jax.enable_x64(False):
                entered.wait()
                found["bystander"] = third().dtype
                found["switched"] = float64(third)().dtype
                found["afterwards"] = third().dtype
        finally:
            leave.set()  # whatever happens, the other one does not wait for ever

    threads = [threading.Thread(target=f) for f in (holds, bystander)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {
        "holder": np.float64,
        "bystander": np.float32,
        "switched": np.float64,
        "afterwards": np.float32,
    }


def test_name_arguments_and_result_pass_through():
    @float64
    def named(a, *, b):
        """Says so."""
        return a, b

    assert (named.__name__, named.__doc__) == ("named", "Says so.")
    assert named(1, b="x") == (1, "x")
