"""One table of the ways to compute the quantities that predictions are made of.

A quantity is a name such as "proximal" or "excess risk", and a route is a function that computes it for tasks, models
and activations of some types, and only where facts allow it (two tokens, free norms). A route is registered by a
decorator beside its formula. So a closed form for a new activation is one function, and code that needs the quantity
asks the table and not for types. Routes of one quantity are interchangeable: a test holds each against the generic one.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from needlepoint.core.errors import NoTheory
from needlepoint.core.specs import Spec

CLOSED, ONE_DIMENSION, TABLES, SAMPLED, GENERIC = range(5)
"""What a route costs: a closed form, integrals or searches in one dimension, tables, points sampled over the scores,
and what serves everything. The cheapest that applies is taken."""

Asked = type[Spec] | Spec | None


@dataclass(frozen=True)
class Route:
    """A function of the table and what it is for; None stands for every type and every form."""

    quantity: str
    name: str
    task: type[Spec] | None
    model: type[Spec] | None
    activation: type[Spec] | None
    form: str | None
    cost: int
    when: Callable[..., bool] | None
    function: Callable[..., Any]

    def __str__(self) -> str:
        kinds = [kind.__name__ for kind in (self.task, self.model, self.activation) if kind is not None]
        kinds += [] if self.form is None else [self.form]
        return f"{self.name} ({', '.join(kinds) or 'everything'})"

    def away(self, task: type | None, model: type | None, activation: type | None) -> int | None:
        """Return how many steps of inheritance the asked types are away in all, None if the route is not for them."""
        steps = 0
        for mine, asked in ((self.task, task), (self.model, model), (self.activation, activation)):
            if mine is None:
                steps += _FAR
            elif asked is None or mine not in asked.__mro__:
                return None
            else:
                steps += asked.__mro__.index(mine)
        if self.form is None:
            return steps
        return steps - 1 if self.form == getattr(activation, "form", None) else None  # nearer than without a form

    def allows(self, facts: dict[str, Any]) -> bool:
        """Return whether the facts that its condition names let the route answer."""
        return self.when is None or self.when(**{name: facts[name] for name in _names(self.when)})


_FAR = 100  # more than the steps of any class: a route for every type is the least specific
_ROUTES: list[Route] = []

_F = TypeVar("_F", bound=Callable[..., Any])


def route(
    quantity: str,
    *,
    name: str = "closed",
    task: type[Spec] | None = None,
    model: type[Spec] | None = None,
    activation: type[Spec] | None = None,
    form: str | None = None,
    cost: int = CLOSED,
    when: Callable[..., bool] | None = None,
) -> Callable[[_F], _F]:
    """Register the decorated function as a route; a second one of the same name for the same types is refused.

    `form` is one of the forms of activations. `when` is a function of facts by name, which the code that asks for the
    quantity gives: `when=lambda tokens: tokens == 2`. The asked task, model and activation are facts too.
    """

    def register(function: _F) -> _F:
        made = Route(quantity, name, task, model, activation, form, cost, when, function)
        same = operator.attrgetter("quantity", "name", "task", "model", "activation", "form")
        if any(same(other) == same(made) for other in _ROUTES):
            raise ValueError(f"two routes for {quantity!r}: {made}")
        _ROUTES.append(made)
        _of_types.cache_clear()
        return function

    return register


def routes(
    quantity: str, *, task: Asked = None, model: Asked = None, activation: Asked = None, **facts: Any
) -> list[Route]:
    """Return the routes that apply, the cheapest first; of equal cost the one for the nearest types first, and of equal
    names only the first. Types may stand for instances, as in compiled kernels. The activation is the model's."""
    if activation is None:
        activation = getattr(model, "activation", None)
    asked = {"task": task, "model": model, "activation": activation}
    kinds = (part if part is None or isinstance(part, type) else type(part) for part in asked.values())
    facts |= asked
    names: dict[str, Route] = {}
    for one in _of_types(quantity, *kinds):
        if one.name not in names and one.allows(facts):
            names[one.name] = one
    return list(names.values())


def best(quantity: str, **asked: Any) -> Route:
    """Return the first of the routes that apply, as in `routes`; raise NoTheory if there is none."""
    known = routes(quantity, **asked)
    if not known:
        raise NoTheory(_miss(quantity, asked))
    return known[0]


def the(quantity: str, **asked: Any) -> Callable[..., Any]:
    """Return the function of the first of the routes that apply, as in `routes`; raise NoTheory if there is none."""
    return best(quantity, **asked).function


def table() -> tuple[Route, ...]:
    """Return all routes that are loaded, for contract tests and documentation."""
    return tuple(_ROUTES)


@functools.lru_cache(maxsize=1024)
def _of_types(quantity: str, task: type | None, model: type | None, activation: type | None) -> tuple[Route, ...]:
    """Return the routes for these types, the cheapest and then the nearest first."""
    ranked = [
        (one.cost, away, one)
        for one in _ROUTES
        if one.quantity == quantity
        for away in (one.away(task, model, activation),)
        if away is not None
    ]
    return tuple(one for _, _, one in sorted(ranked, key=lambda r: r[:2]))


@functools.lru_cache(maxsize=1024)
def _names(when: Callable[..., bool]) -> tuple[str, ...]:
    return tuple(inspect.signature(when).parameters)


def _miss(quantity: str, asked: dict[str, Any]) -> str:
    kinds = [asked.get(name) for name in ("task", "model", "activation")]
    said = " with ".join((k if isinstance(k, type) else type(k)).__name__ for k in kinds if k is not None)
    known = sorted(str(one) for one in _ROUTES if one.quantity == quantity)
    return f"no {quantity} for {said}; there is one for {', '.join(known[:3]) or 'nothing yet'}."
