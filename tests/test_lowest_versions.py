"""The oldest versions that pyproject.toml admits, installed together: the package works with them."""

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from waiting import program

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("tables", "dask", "docs", "checkpoints")
# what the tests need besides; the others of the development tools check the text and not the package
TOOLS = ("pytest", "hypothesis")
PART = ("tests/core", "tests/studies/storage/test_store.py", "tests/studies/test_study.py", "tests/cli/test_app.py")


def lowest():
    """Every requirement at its lower bound."""
    named = list(PROJECT["dependencies"]) + [r for e in EXTRAS for r in PROJECT["optional-dependencies"][e]]
    named += [r for r in PROJECT["optional-dependencies"]["dev"] if r.startswith(TOOLS) and not r.startswith("pytest-")]
    return [r.replace(">=", "==") for r in named]


def test_every_dependency_has_a_lower_bound():
    for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        for requirement in group:
            if not requirement.startswith("needlepoint["):
                assert re.fullmatch(r"[\w-]+(\[\w+\])?>=\d[\w.]*", requirement), requirement


@pytest.mark.slow
def test_the_lowest_versions_work(tmp_path):
    """A small part of the suite, the help of every command, and a prediction."""
    venv = tmp_path / "venv"
    program([sys.executable, "-m", "venv", venv], check=True)
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}  # another version's kernels are of no use

    def run(name, *words, **options):
        return program([venv / "bin" / name, *words], env=plain | cache, check=True, **options).stdout

    pip = ("pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, *lowest())
    run(*pip, "--no-deps", ROOT)
    installed = run("pip", "list", "--format", "freeze").lower()
    for requirement in lowest():
        name, _, version = re.sub(r"\[\w+\]", "", requirement).partition("==")
        assert re.search(rf"^{name.lower()}=={re.escape(version)}(\.0)*$", installed, re.MULTILINE), requirement
    assert "Usage: needlepoint" in run("needlepoint", "--help")
    for command in ("predict", "simulate", "compare", "sweep", "reproduce", "study", "thresholds", "cite"):
        assert f"needlepoint {command}" in run("needlepoint", command, "--help")
    words = ("--task", "SpikedSLR(2, 2)", "--model", "KeyValueAttention(Softmax())", "--learner", "Population()")
    assert "0.22479975" in run("needlepoint", "predict", *words)
    quiet = ("-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "-m", "not slow")
    run("python", "-m", "pytest", *quiet, *PART, cwd=ROOT)
