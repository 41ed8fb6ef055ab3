"""Code blocks of the README and the docs run as printed and print what is shown."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import needlepoint as ndl
from needlepoint.core import dispatch, specs

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/theory").glob("*.md"))]
LONG = ("quickstart.md", "softmax-location.md", "bayes-samples.md")  # left to the slow tests
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
ERROR = re.compile(r"(?<=\d)\(\d+(?:\.\d)?\)")
NUMBER = re.compile(r"([-+]?\d+\.?\d*(?:e[-+]?\d+)?)(\(error\))?")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def blocks(page):
    return BLOCK.findall(page.read_text())


def close(shown, printed, uncertain):
    """Alike to the digits that do not depend on the machine's rounding; the last one of an estimate may."""
    last = 10.0 ** -len(shown.partition("e")[0].partition(".")[2]) if uncertain and "e" not in shown else 0.0
    return abs(float(shown) - float(printed)) <= max(1e-6 * abs(float(shown)) + 1e-11, 1.001 * last)


def same(shown, printed):
    """Words alike, numbers close; errors may differ, as may where the brackets of an error stand."""
    shown, printed = (ERROR.sub("(error)", text) for text in (shown, printed))
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(close(a, b, error) for (a, error), (b, _) in pairs)


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
    (code, shown), *more = blocks(ROOT / "README.md")
    assert shown
    assert more == []
    assert len(code.strip().splitlines()) <= 11


def test_the_readme_asks_for_names_that_exist():
    """Names with the package's prefix, on the README and on every page, are public or its version."""
    for page in PAGES:
        named = set(re.findall(r"\bndl\.([A-Za-z]\w*)", page.read_text()))
        assert named <= {*ndl.__all__, "__version__"}, page.name


def test_the_readme_names_every_body_of_work():
    text = (ROOT / "README.md").read_text()
    for name in ("SpikedSLR", "MaxSLR", "AttentionIndexed", "TiedAttention", "DirectAttention", "BayesOptimal(alpha="):
        assert f"ndl.{name}" in text


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "examples" / "README.md"], ids=lambda p: p.parent.name)
def test_links_of_pages_outside_the_docs_lead_somewhere(page):
    links = LINK.findall(page.read_text())
    assert len(links) > 10
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_example_is_listed():
    folder = ROOT / "examples"
    files = {path.name for path in folder.iterdir() if path.suffix in (".py", ".toml")}
    assert files <= set(LINK.findall((folder / "README.md").read_text()))


@pytest.mark.negative
def test_a_wrong_digit_is_seen():
    assert same("risk 0.2514280(12)", "risk 0.2514280(13)")
    assert not same("risk 0.2514280", "risk 0.2514290")
    assert same("risk 0.3791(19)", "risk 0.3792(19)")
    assert not same("risk 0.3791(19)", "risk 0.3793(19)")
    assert not same("risk 0.3791", "risk 0.3792")
    assert not same("risk 0.25", "excess 0.25")
