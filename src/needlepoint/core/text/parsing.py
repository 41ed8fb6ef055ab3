"""Specs from text such as `SpikedSLR(tokens=2, snr=400/2)`: Python syntax, read by a parser and never executed."""

from __future__ import annotations

import ast
import json
import math
import operator
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from needlepoint.core.errors import InvalidParameter, UnknownName, shown
from needlepoint.core.specs import Spec, assign, build, from_json, names

_CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "None": None, "True": True, "False": False}
_BINARY: dict[type[ast.operator], Callable[[float, float], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda x, y: x / y,
    ast.Pow: lambda x, y: x**y,
}
PARTS = ("task", "model", "learner")


def parse_value(text: str) -> Any:
    """Return the value of a text: a literal, arithmetic of numbers, a spec, or a tuple, list or dict of these."""
    if len(text) > 100_000:
        raise InvalidParameter("the expression is longer than 100,000 characters; use a spec file.")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidParameter(f"cannot read {shown(text)}: write it as in Python, e.g. Erf(scale=0.1).") from None
    try:
        return _value(tree.body, text)
    except RecursionError:
        raise InvalidParameter("the expression is nested too deeply; use a spec file.") from None


def parse_spec(text: str, family: str) -> Spec | None:
    value = parse_value(text)
    if value is None and family == "model":
        return None
    if not isinstance(value, Spec) or value.family != family:
        raise InvalidParameter(f"{shown(text)} is not a {family}; one of {', '.join(names(family))}.")
    return value


def _value(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value=value) if isinstance(value, (int, float, str, bool)) or value is None:
            return value
        case ast.Name(id=name):
            if name in _CONSTANTS:
                return _CONSTANTS[name]
            if name in names():
                raise InvalidParameter(f"{name} needs parentheses: {name}(...).")
            raise UnknownName("name", name, [*names(), *_CONSTANTS, "sqrt"])
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            x = _number(operand, text)
            return -x if isinstance(node.op, ast.USub) else x
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _arithmetic(_BINARY[type(op)], _number(left, text), _number(right, text), text)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_value(i, text) for i in items)
        case ast.Dict(keys=keys, values=values) if all(k is not None for k in keys):
            pairs = [(_number(k, text), _value(v, text)) for k, v in zip(keys, values, strict=True) if k]
            twice = [k for i, (k, _) in enumerate(pairs) if k in [other for other, _ in pairs[:i]]]
            if twice:
                raise InvalidParameter(f"{twice[0]:g} is given twice in {shown(text)}; a length has one probability.")
            return dict(pairs)
        case ast.Call(func=ast.Name(id="sqrt"), args=[arg], keywords=[]):
            return _arithmetic(_square_root, _number(arg, text), 0, text)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if all(k.arg for k in keywords):
            values = {k.arg: _value(k.value, text) for k in keywords if k.arg}
            if len(values) < len(keywords):
                raise InvalidParameter(f"a field of {name} is given twice in {shown(text)}.")
            return build(name, [_value(a, text) for a in args], values)
        case _:
            pass
    raise InvalidParameter(f"cannot read {shown(ast.unparse(node))} in {shown(text)}: only names, numbers and specs.")


def _square_root(x: float, _: float) -> float:
    return math.sqrt(x)


def _number(node: ast.expr, text: str) -> float | int:
    value = _value(node, text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidParameter(f"{shown(ast.unparse(node))} in {shown(text)} is not a number.")
    return value


def _arithmetic(op: Callable[[float, float], Any], x: float, y: float, text: str) -> float | int:
    if op is _BINARY[ast.Pow] and (abs(x) > 1e6 or abs(y) > 64):
        raise InvalidParameter(f"a power in {shown(text)} is too large to be meant.")
    try:
        result = op(x, y)
        if not isinstance(result, complex):
            float(result)
    except (ZeroDivisionError, OverflowError, ValueError):
        result = math.nan
    if isinstance(result, complex) or math.isnan(result):
        raise InvalidParameter(f"the arithmetic in {shown(text)} has no real value.")
    return result


def read_spec_file(path: Path) -> dict[str, Any]:
    """Return the document of a TOML or JSON file with `task`, `model` and `learner`.

    Each of these is an expression, or a table with `type`; neither is interpreted here.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidParameter(f"cannot read the spec {path}: {error.strerror or error}.") from None
    try:
        text = raw.decode()
        document: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise InvalidParameter(f"the spec {path} is not valid {kind}: {error}.") from None
    if not isinstance(document, dict):
        raise InvalidParameter(f"the spec {path} must be a table with task, model and learner.")
    return cast("dict[str, Any]", document)


def combine(document: dict[str, Any], given: dict[str, str | None], changes: list[str]) -> dict[str, Spec | None]:
    """Return the three specs by part: those of a file, replaced by those `given`, with `path=value` changes applied."""
    parts: dict[str, Spec | None] = {}
    unknown = [k for k in document if k not in PARTS]
    if unknown:
        raise UnknownName("part of a spec", unknown[0], PARTS)
    for part in PARTS:
        text, stored = given.get(part), document.get(part)
        if text is not None:
            parts[part] = parse_spec(text, part)
        elif isinstance(stored, str):
            parts[part] = parse_spec(stored, part)
        elif stored is not None:
            value = from_json(stored)
            if value.family != part:
                raise InvalidParameter(f"{shown(value)} is not a {part}; one of {', '.join(names(part))}.")
            parts[part] = value
        else:
            parts[part] = None
    for change in changes:
        path, eq, text = change.partition("=")
        head, _, rest = path.strip().partition(".")
        if not eq or not rest:
            raise InvalidParameter(f"--set {shown(change)}: write it as part.field=value, e.g. learner.lr=0.001.")
        target = parts.get(head)
        if head not in PARTS:
            raise UnknownName("part of a spec", head, PARTS)
        if target is None:
            raise InvalidParameter(f"--set {shown(change)}: there is no {head} to change.")
        word = text.strip()
        bare = word.isidentifier() and word not in _CONSTANTS  # a single word needs no quotes: learner.within=all
        parts[head] = assign(target, rest, word if bare else parse_value(text))
    return parts
