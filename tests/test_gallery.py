"""Examples print what their pages show, and are notebooks that run."""

import base64
import json
import re

import pytest

import gallery

EXAMPLES = gallery.examples()
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")
QUICK_NOTEBOOK = "resume"


def unit(text):
    """One in the last digit that is printed; 0 for whole numbers."""
    mantissa, _, power = text.partition("e")
    digits = mantissa.partition(".")[2]
    return 10.0 ** (int(power or 0) - len(digits)) if digits else 0.0


def same(shown, printed):
    """Words alike; numbers alike up to one in the last digit, which rounding on another machine may change."""
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(abs(float(a) - float(b)) <= 1.001 * max(unit(a), unit(b)) for a, b in pairs)


def marked(names):
    return [
        pytest.param(e, marks=pytest.mark.slow) if e.long else e for e in EXAMPLES if names is None or e.name in names
    ]


@pytest.mark.parametrize("example", marked(None), ids=lambda e: e.name)
def test_an_example_prints_what_its_page_shows(example):
    recorded = gallery.recorded(example)["cells"]
    for shown, cell in zip(gallery.run(example), recorded, strict=True):
        assert same(cell["printed"], shown.printed), f"\nshown:\n{cell['printed']}\nprinted:\n{shown.printed}"
        assert len(shown.pictures) == len(cell["pictures"])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_what_is_recorded_is_of_this_version(example):
    recorded = gallery.recorded(example)
    assert recorded["digest"] == example.digest, "run make gallery"
    assert len(recorded["cells"]) == sum(not cell.text for cell in example.cells)
    for cell in recorded["cells"]:
        assert all((gallery.RECORDED / file).exists() for file in cell["pictures"])
    assert example.cells[0].text
    assert example.title
    assert len(example.summary) > 60


def test_nothing_is_recorded_of_examples_that_are_gone():
    names = {e.name for e in EXAMPLES}
    assert {p.stem.partition("-")[0] for p in gallery.RECORDED.iterdir()} == names
    assert len(names) >= 10


@pytest.mark.parametrize("name", gallery.COMMITTED_NOTEBOOKS)
def test_a_notebook_is_its_example(name):
    text = (gallery.NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    assert text == gallery.notebook(gallery.Example(gallery.EXAMPLES / f"{name}.py")), "run make gallery"


@pytest.mark.filterwarnings("default")  # of the notebook's machinery
@pytest.mark.parametrize(
    "name", [QUICK_NOTEBOOK, *(pytest.param(n, marks=pytest.mark.slow) for n in gallery.COMMITTED_NOTEBOOKS)]
)
def test_a_notebook_runs_and_shows_its_pictures(name, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    example = gallery.Example(gallery.EXAMPLES / f"{name}.py")
    book = nbformat.reads(gallery.notebook(example), as_version=4)
    nbformat.validate(book)
    nbclient.NotebookClient(book, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    images = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    recorded = gallery.recorded(example)["cells"]
    assert len(images) == sum(len(cell["pictures"]) for cell in recorded) > 0
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)
    printed = "".join(o["text"] for o in outputs if o["output_type"] == "stream" and o["name"] == "stdout")
    assert same("\n".join(c["printed"] for c in recorded if c["printed"]), printed.strip())


# ---------------------------------------------------------------------------------------------- the machinery
def written(tmp_path, text):
    path = tmp_path / "example.py"
    path.write_text(text)
    return gallery.Example(path)


CELLS = "# %% [markdown] long\n# # Title\n#\n# Words.\n\n# %%\nx = 1\nprint(x)\nx + 1\n\n# %%\ny = x\n"


def test_cells_are_read_and_run(tmp_path):
    example = written(tmp_path, CELLS)
    assert (example.title, example.summary, example.long) == ("Title", "Words.", True)
    assert [shown.printed for shown in gallery.run(example)] == ["1\n2", ""]
    cells = json.loads(gallery.notebook(example))["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "code"]


@pytest.mark.negative
def test_an_example_that_has_changed_has_no_page(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "RECORDED", tmp_path / "recorded")
    example = written(tmp_path, CELLS)
    gallery.record(example)
    assert "```text\n1\n2\n```" in gallery.page(example)
    with pytest.raises(ValueError, match="run make gallery"):
        gallery.page(written(tmp_path, CELLS.replace("x = 1", "x = 2")))


@pytest.mark.negative
@pytest.mark.parametrize("text", ["import os\n", "# %% [markdown]\n# # Title\nx = 1\n"])
def test_code_outside_its_cell_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"example\.py"):
        written(tmp_path, text).cells  # noqa: B018 (reading them raises)


@pytest.mark.negative
def test_a_wrong_digit_is_seen():
    assert same("risk 0.35", "risk 0.36")
    assert not same("risk 0.35", "risk 0.37")
    assert not same("3 points", "4 points")
    assert not same("risk 0.35", "excess 0.35")
