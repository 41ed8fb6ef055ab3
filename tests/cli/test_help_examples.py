"""Every example in a help text is run, every option has one, and a user's own activations come from a file."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import typer.main

import needlepoint as ndl
from needlepoint.checkpoints.examples import tiny_checkpoint
from needlepoint.cli import run
from needlepoint.cli.app import app
from needlepoint.cli.examples import EXAMPLES
from needlepoint.core import specs
from needlepoint.core.text.parsing import parse_spec

FILES = {
    "run.toml": """
task = "SpikedSLR(tokens=2, snr=2)"
model = "KeyValueAttention(Linear())"
learner = "Population()"
""",
    "indexed.toml": """
task = "AttentionIndexed(1, Wishart(0.5), noise_var=0.5)"
model = "TiedAttention()"
learner = "Ridge(alpha=0.5, lam=0.05)"
""",
    "study.toml": """
task = "SpikedSLR(tokens=2, snr=2)"
model = "KeyValueAttention(Linear())"
learner = "Population()"
[over]
"task.snr" = [1, 2]
""",
    "words.txt": "The old man walked to the harbour. She read a long letter on the train. It was very nice. " * 60,
    "other.txt": "A cat is in the house. Good evening, how are you? " * 20,
    "labels.csv": "text,label\n"
    + "".join(f"a {w} is {a},{a}\n" for w in ("dog", "cat", "man") for a in ("nice", "mean")),
    "mine.py": """
import jax.numpy as jnp
import needlepoint as ndl

@ndl.activation("mine", form="elementwise")
def mine(scores):
    return 1 + jnp.tanh(scores)
""",
}
SLOW = ("--executor", "erf-flow")  # worker processes, figures
ELSEWHERE = ("--address", "reproduce --full", "reproduce --executor", "--no-browser")
"""A scheduler on another machine (tests/studies/execution has one), hours or minutes of figures, and a page that stays
open (tests/explorer)."""


def commands(group, prefix=""):
    """Name -> command, those of `study` by two words."""
    found = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, f"{name} ")
        else:
            found[prefix + name] = command
    return found


COMMANDS = commands(typer.main.get_command(app))
EVERY = [(name, example) for name, examples in EXAMPLES.items() for example in examples]


def words(example):
    first, *args = shlex.split(example.replace("\\\n", " "))
    assert first == "needlepoint"
    return args


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files of the examples and a study that was run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    tiny_checkpoint(tmp_path, "bert").rename(tmp_path / "my-model")
    yield tmp_path
    sys.modules.pop("mine", None)


def marked():
    for name, example in EVERY:
        if any(option in example for option in ELSEWHERE):
            continue
        slow = any(option in example for option in SLOW)
        yield pytest.param(name, example, id=example[12:60], marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("name", "example"), list(marked()))
def test_every_example_runs(name, example, folder, call):
    if name.startswith("study") or "study.sqlite" in example:
        assert run(["sweep", "study.toml"]) == 0
    code, out, err = call(*words(example))
    assert code == 0
    assert err == "" or name == "reproduce"  # it says what it does
    if "--json" in example:
        json.loads(out.splitlines()[-1])
    for file in re.findall(r"\w+\.(?:png|csv|sqlite|html)", example):
        assert (folder / file).stat().st_size > 0


@pytest.mark.contract
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_has_an_example(name):
    used = {word for example in EXAMPLES[name] for word in words(example) if word.startswith("--")}
    options = [{o for o in (*p.opts, *p.secondary_opts) if o.startswith("--")} for p in COMMANDS[name].params]
    assert [o for o in options if o and o != {"--help"} and not o & used] == []  # one of an option's names is enough
    assert used <= set().union(*options)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_help_shows_its_examples_as_they_are_typed(name, call):
    code, out, _ = call(*name.split(), "--help")
    assert code == 0
    for example in EXAMPLES[name]:
        for line in example.splitlines():
            assert line in out


@pytest.mark.contract
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_specs_in_an_options_help_can_be_read(name):
    for parameter in COMMANDS[name].params:
        family = parameter.name
        for text in re.findall(r'"([^"]+)"', getattr(parameter, "help", None) or ""):
            if family in ("task", "model", "learner"):
                assert parse_spec(text, family) is not None


# --- activations from a file ---------------------------------------------------------------------

ASKED = ("predict", "--task", "SpikedSLR(2, 2)", "--learner", "Population()")


@pytest.mark.exact
def test_an_activation_from_a_file_computes_as_in_python(folder, document):
    found = document(*ASKED, "--activations", "mine.py", "--model", "KeyValueAttention(mine())")
    mine = specs.lookup("mine")()
    expected = ndl.predict(ndl.SpikedSLR(2, 2), ndl.KeyValueAttention(mine), ndl.Population())
    assert found["metrics"]["excess_risk"]["value"] == expected.excess_risk.value


def test_the_help_says_that_the_file_is_run(call):
    for name in ("predict", "simulate", "compare", "sweep"):
        assert "The file is RUN as a program" in " ".join(call(name, "--help")[1].split())


BAD = {
    "no file": ("none.py", None, "must be a Python file that exists"),
    "no Python": ("mine.txt", "", "must be a Python file that exists"),
    "no activation": ("empty_one.py", "x = 1\n", "declares nothing; write @ndl.activation('mine')"),
    "an error": ("broken_one.py", "raise KeyError('a\\nb')\n", "running the file failed: KeyError:"),
    "a syntax error": ("wrong_one.py", "def (\n", "running the file failed: SyntaxError:"),
    "an exit": ("leaving_one.py", "import sys\nsys.exit(7)\n", "running the file failed: SystemExit: 7"),
    "a name that is taken": ("json.py", "x = 1\n", "a module is called json already"),
    "no name": ("a-b.py", "x = 1\n", "cannot be the name of one"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_sentence(case, folder, call):
    name, text, sentence = BAD[case]
    if text is not None:
        (folder / name).write_text(text)
    code, out, err = call(*ASKED, "--activations", name)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert sentence in err


def test_without_the_file_the_name_is_unknown(folder, call):
    code, _, err = call(*ASKED, "--model", "KeyValueAttention(mine())")
    assert code == 2
    assert "unknown name 'mine'" in err


# --- completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "expected"), [("needlepoint pre", "predict"), ("needlepoint predict --lea", "--learner")]
)
def test_a_shell_can_complete(typed, expected):
    asked = {"_NEEDLEPOINT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", "from needlepoint.cli import main; main()"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [expected]
