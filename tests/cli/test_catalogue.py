"""`needlepoint tasks`, `models` and `learners`, `--version`, and the two ways to start the program."""

import subprocess
import sys

import pytest

import needlepoint as ndl
from needlepoint.cli.catalogue import ABOUT
from needlepoint.core.dispatch import rules
from needlepoint.core.specs import names
from needlepoint.core.text.parsing import parse_value

FAMILIES = ("task", "model", "learner")


@pytest.mark.contract
@pytest.mark.parametrize("family", FAMILIES)
def test_everything_that_is_registered_is_listed_with_an_example_that_reads(document, family):
    rows = {row["name"]: row for row in document(f"{family}s")}
    own = [n for n in names(family) if n in ABOUT]
    assert set(own) <= set(rows) == set(names(family))
    assert own
    for name in own:
        assert rows[name]["about"].endswith(".")
        assert type(parse_value(rows[name]["example"])).__name__ == name


@pytest.mark.contract
def test_nothing_of_the_library_is_without_an_example():
    public = {n for f in FAMILIES for n in names(f)} & set(ndl.__all__)
    assert public <= set(ABOUT)


@pytest.mark.contract
def test_every_rule_is_in_the_list_of_its_learner(document):
    rows = {row["name"]: row for row in document("learners")}
    for verb, task, model, learner in rules():
        if verb in ("predict", "simulate") and learner.__name__ in rows and task.__name__ in ABOUT:
            shown = " ".join(rows[learner.__name__][verb])
            assert task.__name__ in shown
            assert ("no model" if model is type(None) else model.__name__) in shown


@pytest.mark.parametrize("family", FAMILIES)
def test_the_list_is_text_that_can_be_typed_again(call, family):
    code, out, err = call(f"{family}s")
    assert (code, err) == (0, "")
    assert f'--{family} "' in out
    assert "predict" in out


def test_the_version_is_that_of_the_package(call):
    code, out, err = call("--version")
    assert (code, out, err) == (0, f"needlepoint {ndl.__version__}\n", "")


def test_python_runs_the_package_itself():
    ran = subprocess.run([sys.executable, "-m", "needlepoint", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"needlepoint {ndl.__version__}\n"
