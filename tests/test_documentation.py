"""Code blocks of the README and the docs run as printed and print what is shown."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from needlepoint.core import dispatch, specs

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/theory").glob("*.md"))]
LONG = ("quickstart.md", "softmax-location.md", "bayes-samples.md")  # left to the slow tests
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
ERROR = re.compile(r"(?<=\d)\(\d+(?:\.\d)?\)")
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def blocks(page):
    return BLOCK.findall(page.read_text())


def same(shown, printed):
    """Words alike, numbers alike to the digits that do not depend on the machine's rounding, as errors may."""
    shown, printed = (ERROR.sub("(error)", text) for text in (shown, printed))
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(abs(float(a) - float(b)) <= 1e-6 * abs(float(a)) + 1e-11 for a, b in pairs)


@pytest.fixture
def clean_tables(monkeypatch):
    """Specs and rules that a page registers are gone after it."""
    monkeypatch.setattr(specs, "_REGISTRY", dict(specs._REGISTRY))
    monkeypatch.setattr(dispatch, "_RULES", dict(dispatch._RULES))


@pytest.mark.usefixtures("clean_tables")
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.slow) if p.name in LONG else p for p in PAGES if blocks(p)],
    ids=lambda p: p.name,
)
def test_blocks_print_what_is_shown(page):
    scope = {}
    for code, shown in blocks(page):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, page.name, "exec"), scope)
        if shown:
            assert same(shown.strip(), out.getvalue().strip()), f"\nshown:\n{shown}\nprinted:\n{out.getvalue()}"


def test_the_readme_has_a_real_example():
    assert any(shown for _, shown in blocks(ROOT / "README.md"))


@pytest.mark.negative
def test_a_wrong_digit_is_seen():
    assert same("risk 0.2514280(12)", "risk 0.2514280(13)")
    assert not same("risk 0.2514280", "risk 0.2514290")
    assert not same("risk 0.25", "excess 0.25")
