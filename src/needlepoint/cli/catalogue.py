"""What there is to ask about: tasks, models and learners, with an example of each and what the verbs know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from needlepoint.cli.options import AsJson

if TYPE_CHECKING:
    from needlepoint.core.specs import Spec

ABOUT = {
    "SpikedSLR": (
        "One token of the sequence carries the label, and is shifted along k*.",
        "SpikedSLR(tokens=3, snr=2)",
    ),
    "MaxSLR": ("The token with the (softly) largest score along k* carries the label.", "MaxSLR(tokens=3, snr=inf)"),
    "AttentionIndexed": (
        "The label is a softmax attention matrix, of a target S0.",
        "AttentionIndexed(tokens=2, target=Wishart(0.5), noise_var=0.5)",
    ),
    "SeveralSLR": ("Several tokens carry the label together.", "SeveralSLR(tokens=3, snr=3, relevant=2)"),
    "Needles": ("Several tokens carry it, each with a key and a value of its own.", "Needles(tokens=3, snr=4)"),
    "SignSLR": ("The label is the sign of what the relevant token carries.", "SignSLR(tokens=2, snr=3)"),
    "PositionalSemantic": (
        "The label is an attention matrix that mixes what tokens say with where they stand.",
        "PositionalSemantic(omega=0.3)",
    ),
    "MultiHead": ("Attention with several keys and values.", "MultiHead(2, Softmax())"),
    "LowRankTied": ("Softmax attention whose queries and keys are a few directions.", "LowRankTied(rank=1)"),
    "KeyValueAttention": ("Attention with one key and one value vector.", "KeyValueAttention(Softmax())"),
    "LinearRegression": ("No attention: the baseline that cannot find the place.", "LinearRegression()"),
    "TiedAttention": ("Softmax attention with S = W W^T, and a penalty on W.", "TiedAttention(width_ratio=1)"),
    "DirectAttention": ("Softmax attention whose S is trained entry by entry.", "DirectAttention()"),
    "Population": ("The model's best at infinite data.", "Population()"),
    "BayesOptimal": ("The best that any predictor can do, with infinite or alpha d data.", "BayesOptimal(alpha=4)"),
    "Ridge": ("Training on finitely many samples with a penalty.", "Ridge(alpha=5, lam=0.1)"),
    "ProjectedDescent": (
        "Gradient descent on the population risk, weights on the sphere.",
        "ProjectedDescent(lr=0.01, steps=100, start=Overlaps(0.3, 0.4))",
    ),
    "OnlineSGD": (
        "Stochastic gradient descent with fresh samples.",
        "OnlineSGD(lr=0.01, steps=100, batch=1, start='sphere', d=20, runs=50)",
    ),
    "GradientFlow": (
        "Gradient flow on the population risk, norms free.",
        "GradientFlow(time=10, start=Overlaps(0.1, 0.1), record_every=1)",
    ),
}
"""Name -> what it is in one sentence, and an example as it is typed after --task, --model or --learner."""


def tasks(as_json: AsJson = False) -> None:
    """The tasks there are: an example each, and what is known of it."""
    _list("task", as_json)


def models(as_json: AsJson = False) -> None:
    """The models there are: an example each, and what is known of it."""
    _list("model", as_json)


def learners(as_json: AsJson = False) -> None:
    """The learners there are: an example each, and what is known of it."""
    _list("learner", as_json)


def _list(family: str, as_json: bool) -> None:
    import needlepoint.specs_by_name  # noqa: F401
    from needlepoint.core.specs import lookup, names
    from needlepoint.core.text.jsonio import dumps

    known = _combinations(family)
    rows = [_row(name, lookup(name), known.get(name, {})) for name in names(family)]
    if as_json:
        print(dumps(rows))
        return
    for row in rows:
        print(f"{row['name']}: {row['about']}")
        print(f'  example   --{family} "{row["example"]}"')
        print("  fields    " + ", ".join(row["fields"]))
        for verb in ("predict", "simulate"):
            print(f"  {verb:<9} " + ("; ".join(row[verb]) or "nothing"))
        print()


def _row(name: str, cls: type[Spec], known: dict[str, list[str]]) -> dict[str, Any]:
    from dataclasses import MISSING

    from needlepoint.core.specs import declared

    about, example = ABOUT.get(name, ((cls.__doc__ or "").split("\n")[0], name))
    shown = [f.name if f.default is MISSING else f"{f.name}={f.default!r}" for f in declared(cls)]
    return {"name": name, "about": about, "example": example, "fields": shown} | {
        verb: known.get(verb, []) for verb in ("predict", "simulate")
    }


def _combinations(family: str) -> dict[str, dict[str, list[str]]]:
    """Return name -> verb -> the other two parts of every question that has a rule, as "learner (model, model)"."""
    from needlepoint.core.dispatch import rules
    from needlepoint.core.specs import lookup, names
    from needlepoint.simulation import simulating
    from needlepoint.theory import predicting

    predicting.load_rules()
    simulating.load_rules()
    place = {"task": 0, "model": 1, "learner": 2}[family]
    first, second = (i for i in (2, 0, 1) if i != place)
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for verb, *types in sorted(rules(), key=str):
        if verb not in ("predict", "simulate"):
            continue
        for name in names(family):
            if issubclass(lookup(name), types[place]):
                others = found.setdefault(name, {}).setdefault(verb, {}).setdefault(types[first].__name__, [])
                others.append("no model" if types[second] is type(None) else types[second].__name__)
    return {
        name: {verb: [f"{a} ({', '.join(sorted(set(b)))})" for a, b in sorted(one.items())] for verb, one in by.items()}
        for name, by in found.items()
    }
