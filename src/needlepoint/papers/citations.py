"""What to cite for what was computed."""

from __future__ import annotations

from typing import Any

from needlepoint.core.errors import UnknownName

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
}
_SELF = "needlepoint"


def cite(what: Any = None) -> str:
    """BibTeX for this library and for the papers behind `what`: a paper id, a result, specs, or nothing (all)."""
    if isinstance(what, str):
        if what != _SELF and what not in PAPERS:
            raise UnknownName("paper", what, [*PAPERS, _SELF])
        ids = [] if what == _SELF else [what]
    elif what is None:
        ids = list(PAPERS)
    else:
        ids = _papers_of(what)
    return "\n\n".join([_library(), *[_entry(i) for i in ids]])


def _papers_of(what: Any) -> list[str]:
    """Erf attention on the sphere and its dynamics are 2410.01537; other attentions, free norms and the max task
    2509.21936; the attention-indexed model 2509.24914, its Bayes-optimal estimate 2506.01582."""
    task, model = getattr(what, "task", what), getattr(what, "model", what)
    if type(task).__name__ == "AttentionIndexed":
        return ["2506.01582"] if model is None else ["2509.24914", "2506.01582"]
    activation = getattr(model, "activation", None)
    other = activation is not None and (type(activation).__name__ != "Erf" or not getattr(model, "unit_norm", True))
    return ["2509.21936"] if other or type(task).__name__ == "MaxSLR" else ["2410.01537"]


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
    from needlepoint import __version__  # pyright: ignore[reportAttributeAccessIssue]

    return (
        "@software{needlepoint,\n  title = {needlepoint: what attention layers learn when dimension and data are "
        f"large}},\n  author = {{{{The needlepoint developers}}}},\n  version = {{{__version__}}}\n}}"
    )
