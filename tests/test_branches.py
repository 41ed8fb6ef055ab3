"""How often the code asks which task or which activation it has: numbers that may only fall.

Formulas should ask what a task or an activation says of itself (its field law, its form), so that a new one needs no
change elsewhere. This counts the questions that are left.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import needlepoint
from needlepoint.core.specs import lookup, names

SOURCE = Path(needlepoint.__file__).parent

TASKS = {"SingleLocation", "SequenceTask", "SpikedSLR", "MaxSLR", "AttentionIndexed", "spiked", "max"} | {
    "SeveralSLR",
    "Needles",
    "SignSLR",
    "PositionalSemantic",
}
ACTIVATIONS = {
    "Activation",
    "KernelActivation",
    "UserActivation",
    "BareFunction",
    "Erf",
    "Linear",
    "Softmax",
    "SoftmaxOne",
    "Softplus",
    "elementwise",
    "kernel",
    "general",
}
"""Classes, their names, and the words that stand for a kind."""

MOST = {"task": 2, "activation": 5}
"""The most questions about the type of each, outside the tables of routes. Lower them as the code does."""


def questions(tree: ast.AST, kinds: set[str]) -> int:
    """Return how many tests in a file ask for one of these kinds: isinstance, issubclass, is, ==, in, match."""
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "issubclass") and len(node.args) == 2:
                count += names_one(node.args[1], kinds)
        elif isinstance(node, ast.Compare):
            count += any(names_one(part, kinds) for part in (node.left, *node.comparators))
        elif isinstance(node, ast.match_case):
            count += names_one(node.pattern, kinds)
    return count


def names_one(node: ast.AST, kinds: set[str]) -> bool:
    """Return whether an operand is one of the kinds, by class, by name, or as a word; or a collection of such."""
    if isinstance(node, ast.Name):
        return node.id in kinds and node.id[0].isupper()
    if isinstance(node, ast.Attribute):
        return node.attr in kinds and node.attr[0].isupper()  # a class; words are strings
    if isinstance(node, ast.Constant):
        return node.value in kinds
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(names_one(part, kinds) for part in node.elts)
    if isinstance(node, ast.MatchClass):
        return names_one(node.cls, kinds)
    if isinstance(node, ast.MatchValue):
        return names_one(node.value, kinds)
    if isinstance(node, ast.MatchOr):
        return any(names_one(part, kinds) for part in node.patterns)
    return False


def counted(kinds: set[str]) -> Counter[str]:
    found = Counter[str]()
    for path in sorted(SOURCE.rglob("*.py")):
        number = questions(ast.parse(path.read_text()), kinds)
        if number:
            found[str(path.relative_to(SOURCE))] = number
    return found


@pytest.mark.parametrize(("family", "kinds"), [("task", TASKS), ("activation", ACTIVATIONS)])
def test_the_code_asks_for_types_no_more_than_it_did(family: str, kinds: set[str]):
    found = counted(kinds)
    assert found.total() <= MOST[family], f"{found.total()} questions for the {family}'s type: {dict(found)}"


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("isinstance(task, SpikedSLR)", 1),
        ("issubclass(kind, (MaxSLR, Other))", 1),
        ("type(task) is needlepoint.SpikedSLR", 1),
        ("type(task).__name__ == 'MaxSLR'", 1),
        ("kind in ('spiked', 'other')", 1),
        ("match task:\n    case SpikedSLR() | MaxSLR():\n        pass", 1),
        ("isinstance(task, int)", 0),
        ("task.seen is None", 0),
        ("x < sys.float_info.max", 0),
    ],
)
def test_the_counter_sees_every_way_to_ask(text: str, asks: int):
    assert questions(ast.parse(text), TASKS) == asks


def test_the_counter_knows_the_tasks_and_activations_of_the_library():
    ours = {name for name in names("task") if lookup(name).__module__.startswith("needlepoint.tasks")}
    assert ours <= TASKS
    mine = {name for name in names("activation") if lookup(name).__module__ == "needlepoint.models.activations"}
    assert mine <= ACTIVATIONS
