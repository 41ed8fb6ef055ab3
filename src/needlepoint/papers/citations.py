"""What to cite for what was computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from needlepoint.core.errors import InvalidParameter, UnknownName
from needlepoint.core.results import Result
from needlepoint.core.specs import Spec

PAPERS: dict[str, dict[str, str]] = {
    "2410.01537": {
        "key": "marion2024attention",
        "title": "Attention layers provably solve single-location regression",
        "author": "Marion, Pierre and Berthier, Raphaël and Biau, Gérard and Boyer, Claire",
        "year": "2024",
        "about": "erf attention on single-location regression: risk, Bayes optimality, dynamics",
    },
    "2509.21936": {
        "key": "duranthon2025statistical",
        "title": "Statistical Advantage of Softmax Attention: Insights from Single-Location Regression",
        "author": "Duranthon, O. and Marion, P. and Boyer, C. and Loureiro, B. and Zdeborová, L.",
        "year": "2025",
        "about": "softmax against other attentions on single-location regression",
    },
    "2509.24914": {
        "key": "boncoraglio2025single",
        "title": "Single-Head Attention in High Dimensions: A Theory of Generalization, Weights Spectra, and Scaling "
        "Laws",
        "author": "Boncoraglio, Fabrizio and Erba, Vittorio and Troiani, Emanuele and Xu, Yizhou and Krzakala, Florent "
        "and Zdeborová, Lenka",
        "year": "2025",
        "about": "tied attention on the attention-indexed model: errors, thresholds, spectrum of the learned matrix",
    },
    "2506.01582": {
        "key": "boncoraglio2025bayes",
        "title": "Bayes optimal learning of attention-indexed models",
        "author": "Boncoraglio, Fabrizio and Troiani, Emanuele and Erba, Vittorio and Zdeborová, Lenka",
        "year": "2025",
        "about": "the Bayes-optimal estimate on the attention-indexed model",
    },
    "2402.03902": {
        "key": "cui2024phase",
        "title": "A Phase Transition between Positional and Semantic Learning in a Solvable Model of Dot-Product "
        "Attention",
        "author": "Cui, Hugo and Behrens, Freya and Krzakala, Florent and Zdeborová, Lenka",
        "year": "2024",
        "about": "positional against semantic attention: tied attention of a few directions and its two phases",
    },
    "2603.03993": {
        "key": "sagitova2026specialization",
        "title": "Specialization of softmax attention heads: insights from the high-dimensional single-location model",
        "author": "Sagitova, M. and Duranthon, O. and Zdeborová, L.",
        "year": "2026",
        "about": "several heads, softmax-1, and how heads part in the course of SGD",
    },
}
_SELF = "needlepoint"


def cite(what: Any = None) -> str:
    """Return BibTeX for this library and for the papers behind `what`.

    `what` is an arXiv number, a result, a study, a spec, a tuple or list of specs or results, or None for all papers.

    >>> print(ndl.cite("2410.01537").splitlines()[0])
    @software{needlepoint,
    """
    if isinstance(what, str):
        if what != _SELF and what not in PAPERS:
            raise UnknownName("paper", what, [*PAPERS, _SELF])
        ids = [] if what == _SELF else [what]
    elif what is None:
        ids = list(PAPERS)
    else:
        behind = {paper for question in _questions(what) for paper in _papers_of(*question)}
        ids = [paper for paper in PAPERS if paper in behind]
    return "\n\n".join([_library(), *[_entry(i) for i in ids]])


def _questions(what: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the (task, model) of everything given; a part that is not known, as only one spec was given, is `...`."""
    if isinstance(what, (tuple, list)) and what:
        parts = [one for one in what if one is not None]
        given = {one.family: one for one in parts if isinstance(one, Spec)}
        # one spec of each family is one question; without a model it is a Bayes-optimal one if there is a learner
        if len(given) == len(parts) > 1 and "task" in given:
            yield given["task"], given.get("model", None if "learner" in given else ...)
            return
        for one in parts:
            yield from _questions(one)
    elif isinstance(what, Result):
        yield what.task, what.model
    elif (definition := getattr(what, "definition", None)) is not None:
        axes = definition.axes
        yield from {axes.question(at)[:2]: None for at in axes.points()}
    elif isinstance(what, Spec):
        yield (what if what.family == "task" else ...), (... if what.family == "task" else what)
    else:
        raise InvalidParameter(
            f"cite({what!r}): give an arXiv number such as '2410.01537', a result, a study, specs, or nothing (all)."
        )


_FIRST, _LATER = "2410.01537", "2509.21936"
_OF_TASK = {"MaxSLR": _LATER}
_OF_ATTENTION = {("Erf", True): _FIRST}
"""Papers by the name of a task, and by that of an activation and whether norms are 1; all others are in _LATER."""


def _papers_of(task: Any, model: Any) -> tuple[str, ...]:
    """Return the arXiv numbers for a task and a model.

    Erf attention on the sphere and its dynamics are 2410.01537; other attentions, free norms and the max task are
    2509.21936; the attention-indexed model is 2509.24914, its Bayes-optimal estimate 2506.01582. Several heads are
    2603.03993, positional against semantic attention is 2402.03902.
    """
    names = {type(task).__name__, type(model).__name__}
    if names & {"PositionalSemantic", "LowRankTied"}:
        return ("2402.03902",)
    if names & {"Needles", "MultiHead", "SoftmaxOne"}:
        return ("2603.03993",)
    if names & {"AttentionIndexed", "TiedAttention", "DirectAttention", "Wishart", "Eigenvalues", "PowerLaw"}:
        return ("2506.01582",) if model is None else ("2509.24914", "2506.01582")
    if getattr(model, "family", "model") in ("learner", "overlaps", "indexed overlaps"):
        return tuple(PAPERS)  # a learner or overlaps alone belong to no task in particular
    activation = model if getattr(model, "family", "") == "activation" else getattr(model, "activation", None)
    named = next((_OF_TASK[name] for name in sorted(names) if name in _OF_TASK), None)
    attention = type(activation).__name__, bool(getattr(model, "unit_norm", True))
    return (named or (_OF_ATTENTION.get(attention, _LATER) if activation is not None else _FIRST),)


def _entry(arxiv: str) -> str:
    paper = PAPERS[arxiv]
    fields = {
        "title": paper["title"],
        "author": paper["author"],
        "year": paper["year"],
        "eprint": arxiv,
        "archivePrefix": "arXiv",
    }
    body = ",\n".join(f"  {k} = {{{v}}}" for k, v in fields.items() if v)
    return f"@article{{{paper['key']},\n{body}\n}}"


def _library() -> str:
    from needlepoint import __version__

    return (
        "@software{needlepoint,\n  title = {needlepoint: what attention layers learn when dimension and data are "
        f"large}},\n  author = {{{{The needlepoint developers}}}},\n  version = {{{__version__}}}\n}}"
    )
