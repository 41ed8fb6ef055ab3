"""One table of names: what each public name means, its LaTeX, its range, and each paper's letter."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Symbol:
    """One row of the notation table."""

    name: str
    latex: str
    meaning: str
    range: str
    letters: dict[str, str] = field(default_factory=dict[str, str])
    """Paper id -> the letter that paper uses."""


_ERF = "2410.01537"

SYMBOLS: tuple[Symbol, ...] = (
    Symbol("tokens", "L", "sequence length", "whole, >= 1", {_ERF: "L"}),
    Symbol("d", "d", "dimension of a token", "whole, >= 2", {_ERF: "d"}),
    Symbol(
        "snr",
        r"\mu",
        "squared shift of the relevant token along k* (spiked), inverse temperature of its place (max)",
        ">= 0",
        {_ERF: "d/2"},
    ),
    Symbol("relevant_std", r"\gamma", "standard deviation of the relevant token", "> 0", {_ERF: r"\gamma"}),
    Symbol("noise", r"\epsilon", "standard deviation of the label noise", ">= 0", {_ERF: r"\epsilon"}),
    Symbol("scale", r"\lambda", "factor on the score inside erf", "> 0", {_ERF: r"\lambda"}),
    Symbol("shift", "b", "constant added to the scaled score inside erf", "real"),
    Symbol("offset", "o", "constant added to erf", "real"),
    Symbol("alpha", r"\alpha", "samples over d (or over d squared: the learner says which)", "> 0"),
    Symbol("lam", r"r", "penalty on the weights, or the pair (r_k, r_v) of key and value", ">= 0"),
    Symbol("rank_ratio", "k_0", "width of a Wishart target over d", "> 0"),
    Symbol("exponent", r"\gamma_0", "eigenvalues of a target fall like i to minus this power", "> 0"),
    Symbol("noise_var", r"\Delta", "variance of the noise of a diagonal score, twice that of the others", ">= 0"),
    Symbol("beta_star", r"\beta^*", "inverse temperature of the labels", "> 0"),
    Symbol("beta", r"\beta", "inverse temperature of the attention that is trained", "> 0"),
    Symbol("width_ratio", "p/d", "width of W over d", "> 0"),
    Symbol("omega", r"\omega", "weight of the positional part of a label, at most 1", ">= 0"),
    Symbol("sigma", r"\sigma", "spread of tokens around their positional vectors", "> 0"),
    Symbol("weight", "w", "factor of the squared error in a loss", "> 0"),
    Symbol("m", "m", "Tr(S S0) / d", "real"),
    Symbol("q", "q", "Tr(S^2) / d", ">= 0"),
    Symbol("time", "t", "how long a gradient flow runs", "> 0"),
    Symbol("record_every", r"\delta t", "time between records of a flow, or steps between those of a descent", "> 0"),
    Symbol("lr", r"\ell", "step size of descent and SGD", "> 0", {_ERF: r"\alpha"}),
    Symbol("schedule", "h", "scale_t = scale / (1 + schedule t)", ">= 0"),
    Symbol("batch", "B", "sequences in a step of SGD", "whole, >= 1", {_ERF: "B"}),
    Symbol("key", r"\kappa", "k . k*", "-1 to 1 on the sphere", {_ERF: r"\kappa"}),
    Symbol("value", r"\nu", "v . v*", "-1 to 1 on the sphere", {_ERF: r"\nu"}),
    Symbol("value_on_key", r"\theta", "v . k*", "-1 to 1 on the sphere", {_ERF: r"\theta"}),
    Symbol("key_on_value", r"\eta", "k . v*", "-1 to 1 on the sphere", {_ERF: r"\eta"}),
    Symbol("key_dot_value", r"\rho", "k . v", "-1 to 1 on the sphere", {_ERF: r"\rho"}),
    Symbol("key_sq", "q_k", "squared norm of k", ">= 0"),
    Symbol("value_sq", "q_v", "squared norm of v", ">= 0"),
    Symbol("risk", "E", "expected squared error on noisy test labels", ">= noise^2"),
    Symbol("excess_risk", "R", "risk minus the label-noise variance", ">= 0", {_ERF: "R"}),
    Symbol("train_loss", r"E_{\mathrm{train}}", "mean squared error on the training sequences", ">= 0"),
    Symbol("energy", "f", "the minimised objective over d", ">= 0"),
    Symbol("replicon", r"\Lambda", "growth of a perturbation of the minimum; stable below 1", ">= 0"),
    Symbol(
        "distance_to_manifold",
        r"\sqrt{\theta^2+\eta^2+\rho^2}",
        "distance of the overlaps to the invariant manifold",
        ">= 0",
    ),
)


def notation_table() -> str:
    """Return the table of the documentation's notation page, in Markdown."""
    rows = ["| name | letter | meaning | range | in arXiv 2410.01537 |", "|---|---|---|---|---|"]
    for s in SYMBOLS:
        letter = f"${s.letters[_ERF]}$" if _ERF in s.letters else ""
        rows.append(f"| `{s.name}` | ${s.latex}$ | {s.meaning} | {s.range} | {letter} |")
    return "\n".join(rows)
