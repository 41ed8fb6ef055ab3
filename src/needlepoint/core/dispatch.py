"""One table of rules keyed on (verb, task type, model type, learner type).

A verb is a public function such as `predict`, and a rule is the function that computes it for one combination of types.
A rule is registered by a decorator beside its formula; a lookup also tries the base classes of the three types. So a
new task, model or learner is one file that registers what it can do.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from needlepoint.core.errors import InvalidParameter, NoTheory, UnknownName, shown
from needlepoint.core.kinds import is_traced, is_whole
from needlepoint.core.options import ONE_STEP, REPLICA_SYMMETRIC
from needlepoint.core.specs import Spec

Key = tuple[str, type, type, type]
_RULES: dict[Key, Callable[..., Any]] = {}
_LIMITS: dict[Key, Callable[..., bool]] = {}
"""For rules that answer only some questions of their types: whether they answer this one."""

_F = TypeVar("_F", bound=Callable[..., Any])


def rule(
    verb: str,
    task: type[Spec],
    model: type[Spec] | None,
    learner: type[Spec],
    when: Callable[..., bool] | None = None,
) -> Callable[[_F], _F]:
    """Register the decorated function for this combination; a second registration is refused.

    With `when`, a function of (task, model, learner), the rule answers only where that is true, and elsewhere the rule
    of a base class does.
    """
    key = (verb, task, type(None) if model is None else model, learner)

    def register(function: _F) -> _F:
        if key in _RULES:
            raise ValueError(f"two rules for {describe(key)}: {_RULES[key].__name__}, {function.__name__}")
        _RULES[key] = function
        if when is not None:
            _LIMITS[key] = when
        return function

    return register


def load(
    package: str, modules: Mapping[str, Sequence[str]], task: Spec | None = None, learner: Spec | None = None
) -> None:
    """Import the modules of a package that answer for this task and this learner; their decorators fill the table.

    `modules` has, for each module, the names of the tasks and learners that it has rules for. Without a task and a
    learner all are imported. A first answer should not wait for rules that it does not need.
    """
    known = set[str]().union(*modules.values())
    parts = [type(part).__mro__ for part in (task, learner) if part is not None]
    # a class that no module names, such as a user's task, is answered for by the nearest of its bases that one names
    asked = {next((base.__name__ for base in bases if base.__name__ in known), bases[0].__name__) for bases in parts}
    for module, names in modules.items():
        if asked <= set(names):
            importlib.import_module(f"{package}.{module}")


def find(
    verb: str,
    task: Spec,
    model: Spec | None,
    learner: Spec,
    load_all: Callable[[], None] | None = None,
    method: str | None = None,
) -> Callable[..., Any]:
    """Return the most specific rule; where there is none, raise NoTheory and name the nearest rules.

    Specific is the one whose types are the fewest steps of inheritance away in all. Of two that are equally far, the
    one with the nearer task wins, then the one with the nearer model.
    `load_all` fills the table where only a part of it was loaded; it is called before a rule is said to be missing.
    `method` names one of the rules that apply by its folder, as `routes` gives them; None takes the first.
    """
    if method is not None and load_all is not None:
        load_all()
    found = routes(verb, task, model, learner)
    if not found and load_all is not None:
        load_all()
        found = routes(verb, task, model, learner)
    if not found:
        key = (verb, type(task), type(model), type(learner))
        limit = _LIMITS.get(key)
        if limit is not None:
            only = (limit.__doc__ or "").partition(".")[0].partition(":")[0].removeprefix("Return whether ")
            raise NoTheory(f"no rule for {describe(key)} with {learner!r}: the one there is answers where {only}.")
        raise NoTheory(_miss(verb, key[1:]))
    if method is not None and method not in found:
        raise UnknownName(f"method of {verb} for ({type(task).__name__}, {type(learner).__name__})", method, found)
    return found[method or next(iter(found))]


def routes(verb: str, task: Spec, model: Spec | None, learner: Spec) -> dict[str, Callable[..., Any]]:
    """Return the rules of the table that answer this question, by the folder they live in, the most specific first."""
    asked = (type(task), type(model), type(learner))
    orders = [sum(distance) for distance in itertools.product(*(range(len(_lineage(t))) for t in asked))]
    lineages = itertools.product(*(_lineage(t) for t in asked))
    found: dict[str, Callable[..., Any]] = {}
    for _, (a, b, c) in sorted(zip(orders, lineages, strict=True), key=lambda pair: pair[0]):
        key = (verb, a, b, c)
        if key in _RULES and (key not in _LIMITS or _LIMITS[key](task, model, learner)):
            path = (_RULES[key].__module__ or "__main__").split(".")  # None for code run by exec without a name
            found.setdefault(path[2] if path[0] == "needlepoint" and len(path) > 2 else path[0], _RULES[key])
    return found


def check_question(verb: str, task: Any, model: Any, learner: Any, seed: Any) -> None:
    """Check the arguments that all verbs share, before a rule is looked up; raises InvalidParameter."""
    check_untraced(verb)
    if not is_whole(seed) or not 0 <= seed < 2**63:
        raise InvalidParameter(f"{verb}(seed={shown(seed)}): seed must be a whole number from 0 to 2**63 - 1.")
    check_part(verb, "task", task)
    if model is not None:
        check_part(verb, "model", model)
    check_part(verb, "learner", learner)


def check_part(verb: str, family: str, part: Any) -> None:
    """Check that an argument is a spec of the family; raises InvalidParameter, which says what to write instead."""
    found = getattr(part, "family", None)
    if found == family and not isinstance(part, type):
        return
    where = f"{verb}({family}={shown(part)})"
    name = shown(part) if isinstance(part, type) else type(part).__name__
    if (found, family) == ("activation", "model"):
        raise InvalidParameter(f"{where}: this is an activation, not a model; write KeyValueAttention({name}(...)).")
    if isinstance(part, type):
        raise InvalidParameter(
            f"{where}: this is a class, not a {family}; write {name}(...), as in `needlepoint {family}s`."
        )
    if found in ("task", "model", "learner"):
        raise InvalidParameter(f"{where}: this is a {found}, not a {family}; the order is task, model, learner.")
    raise InvalidParameter(f"{where}: this is not a {family}.")


def check_untraced(verb: str) -> None:
    """Raise one sentence inside a user's jax.jit, where an answer could not become a number."""
    jax = sys.modules.get("jax")
    if jax is None:
        return
    numpy = importlib.import_module("jax.numpy")
    if is_traced(numpy.zeros(())):  # inside jax.jit everything is traced, also what depends on nothing
        raise InvalidParameter(
            f"{verb}: it was called inside jax.jit, through which needlepoint cannot be called, because its answers "
            "are plain numbers; call it outside, and hand the number in."
        )


def check_tolerance(verb: str, tol: Any) -> None:
    """Check that a tolerance is None (the solver's own choice) or a finite number > 0; raises InvalidParameter."""
    number = isinstance(tol, (int, float)) and not isinstance(tol, bool)
    if tol is not None and not (number and 0 < tol <= sys.float_info.max):
        raise InvalidParameter(
            f"{verb}(tol={shown(tol)}): tol must be > 0 and finite (it bounds a residual or an integral's error)."
        )


def check_ansatz(verb: str, ansatz: Any) -> None:
    """Check the name of an ansatz; raises InvalidParameter."""
    known = (REPLICA_SYMMETRIC, ONE_STEP)
    if not isinstance(ansatz, str) or ansatz not in known:
        raise InvalidParameter(
            f"{verb}(ansatz={shown(ansatz)}): ansatz must be one of {', '.join(map(repr, known))} (replica symmetry, "
            "or one step of its breaking, for Ridge where training has many minima)."
        )


def _lineage(cls: type) -> list[type]:
    return [c for c in cls.__mro__ if c is not object]


def _miss(verb: str, asked: tuple[type, type, type]) -> str:
    def closeness(key: Key) -> int:
        # a shared learner weighs most: a rule for another task or model is nearer than one for another learner
        return sum(w * (a is b) for w, a, b in zip((2, 2, 3), asked, key[1:], strict=True))

    # equally close rules are sorted by name, so that the message does not depend on the order of imports
    nearest = sorted((k for k in _RULES if k[0] == verb), key=lambda k: (-closeness(k), describe(k)))[:3]
    listed = "; ".join(describe(k) for k in nearest) or "none yet"
    return f"no rule for {describe((verb, *asked))}; the nearest are {listed}."


def describe(key: Key) -> str:
    verb, *types = key
    return f"{verb}({', '.join('None' if t is type(None) else t.__name__ for t in types)})"


def rules() -> dict[Key, Callable[..., Any]]:
    """Return a copy of the table, for contract tests and documentation."""
    return dict(_RULES)
