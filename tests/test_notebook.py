"""A notebook, executed: answers are tables, pictures are images without magic commands, and progress comes and goes."""

import base64
import re

import nbformat
import pytest
from nbclient import NotebookClient

from needlepoint.core.progress import SILENCE

CELLS = {
    "answer": """
import needlepoint as ndl
asked = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.04), ndl.TiedAttention(), ndl.Ridge(0.5, 0.1)
found = ndl.predict(*asked)
found
""",
    "picture": "ndl.plot(found)",
    "method": "found.spectrum.plot()",
    "estimate": "found.risk",
    "study": """
study = ndl.sweep(ndl.SpikedSLR(2, snr=1.0), None, ndl.BayesOptimal(), {"task.snr": [1.0, 2.0, 3.0]})
study
""",
    "study's picture": "study.plot()",
    "progress": """
import time
import needlepoint.core.progress as progress
progress.TIMING = progress.Timing(patience=0.01, tick=0.01)
with progress.watched("predict") as update:
    update(0.5)
    time.sleep(0.5)
""",
}
"""Name -> source of a cell."""


@pytest.fixture(scope="module")
def outputs():
    """The outputs of every cell by its name."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source.strip()) for source in CELLS.values()])
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(SILENCE)
        NotebookClient(book, timeout=None, kernel_name="python3").execute()
    return {name: cell.outputs for name, cell in zip(CELLS, book.cells, strict=True)}


def shown_once(outputs):
    """The one result of a cell; beside it there may be the empty place of a progress bar, on a busy machine."""
    (result,) = [one for one in outputs if one.output_type == "execute_result"]
    others = [one for one in outputs if one is not result]
    assert all(one.output_type == "display_data" and one.data["text/html"] == "" for one in others)
    return result


@pytest.mark.parametrize("name", ["answer", "study"])
def test_an_answer_is_a_table(outputs, name):
    shown = shown_once(outputs[name])
    assert shown.data["text/html"].startswith("<table>")
    assert shown.data["text/plain"]


@pytest.mark.parametrize("name", ["picture", "method", "study's picture"])
def test_a_picture_is_an_image(outputs, name):
    shown = shown_once(outputs[name])
    assert base64.b64decode(shown.data["image/png"]).startswith(b"\x89PNG")


def test_an_estimate_has_its_digits(outputs):
    shown = shown_once(outputs["estimate"])
    assert re.fullmatch(r"0\.\d+\(\d\d\)", shown.data["text/html"])


def test_progress_is_gone_when_it_is_over(outputs):
    assert all(output.output_type == "display_data" for output in outputs["progress"])
    assert [output.data["text/html"] for output in outputs["progress"]] == [""]
