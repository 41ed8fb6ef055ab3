"""Activations that a test file names are its own: the registry that other files walk does not see them."""

import pytest

from needlepoint.core import specs
from needlepoint.models.user_activations import UserActivation


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
