"""One explorer and one browser for all tests of the page: both take seconds to start."""

import pytest

from browsing import browser, need_browser, server


@pytest.fixture(scope="module")
def explorer():
    """(process, address) of an explorer without anything of the user's own."""
    need_browser()
    pytest.importorskip("uvicorn", reason="no uvicorn: pip install 'needlepoint[explorer]'")
    with server() as found:
        yield found


@pytest.fixture(scope="module")
def page(explorer):
    """A page of it with the one model that is solved fastest."""
    with browser() as found:
        found.open(explorer[1].replace("/#", "/?without=erf,softmax#"))
        found.until("document.querySelectorAll('#numbers tbody tr').length", "the first screen", explorer[0].pid)
        yield found
