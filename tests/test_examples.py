"""Every public name has an example in its docstring, and the example is right."""

import doctest
import inspect

import pytest

import needlepoint as ndl
from needlepoint.core.specs import forget, names

# these compile kernels that no other quick test needs
LONG = {"bayes_scan", "BayesPoint", "bayes_transition", "BayesTransition"}


@pytest.fixture
def forgotten():
    """Names that an example registers are taken back."""
    before = set(names())
    yield
    for name in set(names()) - before:
        forget(name)


@pytest.mark.contract
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in ndl.__all__])
def test_the_example_of_a_public_name_is_right(name, forgotten):
    text = inspect.getdoc(getattr(ndl, name)) or ""
    example = doctest.DocTestParser().get_doctest(text, {"ndl": ndl}, name, None, 0)
    assert example.examples, f"{name} has no example"
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert result.failed == 0, "".join(said)


@pytest.mark.negative
def test_a_wrong_example_is_seen():
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3", {}, "wrong", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(example, out=lambda text: None).failed == 1
