"""Population optima at random questions, each followed by a random search for something better.

    python benchmarks/optima.py [questions] [file.jsonl] [penalties]

writes a line a question (resuming where the file ends) and prints, kind by kind, how many reported optima were beaten
by more than their error, and the CPU seconds of a prediction and of the search for better. `penalties` is the number
of ridge questions whose best penalties are challenged by random ones; each takes seconds.

The search shares the risk with the library (its routes are checked against each other elsewhere) and nothing of how
the optimum is found: random keys over eight decades, random constants, and a simplex from the best of them.
"""

from __future__ import annotations

import collections
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import optimize

import needlepoint as ndl
from needlepoint.core.overlaps import Overlaps
from needlepoint.numerics.precision import float64
from needlepoint.theory.location.population.off_manifold import best_value, quadratic
from needlepoint.theory.location.population.risk_at_a_key import FINAL, SEARCH, Question, TooSteep


@ndl.activation("sink_softmax")
def sink_softmax(scores):
    """Softmax with a place to put no weight at all."""
    top = jnp.maximum(jnp.max(scores), 0.0)
    return jnp.exp(scores - top) / (jnp.exp(-top) + jnp.sum(jnp.exp(scores - top)))


KINDS = ("erf", "erf, free", "erf, sphere", "erf, all", "linear", "softplus", "softmax", "sink", "others, all")
TRIES = {"erf": 400, "linear": 400, "softplus": 60, "softmax": 60, "sink": 25}
"""Random keys for each activation: what an evaluation costs decides."""


def question(index: int) -> tuple[str, Any, Any, Any]:
    """Kind, task, model and learner of a question."""
    rng = np.random.default_rng([18, index])

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    kind = KINDS[index % len(KINDS)]
    longest = 12 if kind == "sink" else 60 if kind in ("softplus", "softmax", "others, all") else 3000
    tokens: Any = max(2, int(between(2, longest)))
    if rng.random() < 0.15:
        tokens = {1: 0.25, tokens: 0.75}
    if rng.random() < 0.5:
        std = 1.0 if rng.random() < 0.4 and kind != "softmax" else between(0.3, 3.0)
        task: Any = ndl.SpikedSLR(tokens, 0.0 if rng.random() < 0.1 else between(0.01, 40.0), std)
    else:
        task = ndl.MaxSLR(tokens, math.inf if rng.random() < 0.2 else between(0.02, 20.0))
    model = ndl.KeyValueAttention(_activation(kind, rng), unit_norm=_on_sphere(kind, rng))
    return kind, task, model, ndl.Population("all" if "all" in kind else "manifold")


def _activation(kind: str, rng: np.random.Generator) -> Any:
    shift, offset = float(rng.normal(0.0, 2.5)), float(rng.choice([0.0, 1.0, -1.0, rng.normal(0.0, 1.2)]))
    if kind == "erf, free":
        return [ndl.Erf(shift=None, offset=offset), ndl.Erf(shift=shift, offset=None), ndl.Erf(1.0, None, None)][
            rng.integers(3)
        ]
    if kind.startswith("erf"):
        scale = None if kind == "erf, sphere" and rng.random() < 0.4 else float(np.exp(rng.normal(0.0, 1.0)))
        return ndl.Erf(scale, 0.0 if rng.random() < 0.2 else shift, offset)
    names = {"linear": ndl.Linear(), "softplus": ndl.Softplus(), "softmax": ndl.Softmax(), "sink": sink_softmax}
    return names[kind] if kind in names else [ndl.Linear(), ndl.Softplus(), ndl.Softmax()][rng.integers(3)]


def _on_sphere(kind: str, rng: np.random.Generator) -> bool:
    return kind == "erf, sphere" or (kind not in ("erf", "erf, free", "sink") and rng.random() < 0.3)


class Hunt:
    """The least risk over v at random keys and constants of one question."""

    def __init__(self, task: Any, model: Any, everywhere: bool) -> None:
        self.asked, self.everywhere = Question(task, model), everywhere
        self.free, self.unit = model.free_constants(), model.unit_norm
        # tables of kernels grow with the norm
        self.longest = math.log(1e4 if model.activation.form == "elementwise" else 100.0)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """log |k|, the direction of k (along k*, v* and beside them), and the constants in units of their spread."""
        beside = rng.normal(0.0, 1.0, 2) * np.exp(rng.uniform(-6.0, 0.0)) * (rng.random() < 0.6)
        along = rng.choice([-1.0, 1.0])
        size = rng.uniform(np.log(1e-4), self.longest) if rng.random() < 0.4 else rng.normal(0.0, 1.5)
        constants = [size * 0.5 if n == "scale" else rng.normal(0.0, 2.0) for n in self.free]
        if "shift" in self.free and rng.random() < 0.5:
            constants[self.free.index("shift")] = -float(rng.normal(0.0, 2.0)) * math.exp(min(size, 5.0))
        return np.array([size, along, *beside, *constants])

    def point(self, x: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        direction = x[1:4] if self.everywhere else np.array([x[1], 0.0, x[2]])
        k = (
            direction
            / max(float(np.linalg.norm(direction)), 1e-12)
            * (1.0 if self.unit else math.exp(min(x[0], self.longest)))
        )
        return k, {
            n: math.exp(min(y, 12.0)) if n == "scale" else float(y) for n, y in zip(self.free, x[4:], strict=True)
        }

    def risk(self, x: np.ndarray, coarseness: float = SEARCH) -> float:
        k, constants = self.point(x)
        try:
            if self.everywhere:
                value = best_value(quadratic(self.asked, constants, k, coarseness), self.unit)[0]
            else:
                form = self.asked.value_form(constants, float(k[0]), float(k @ k), coarseness)
                value = self.asked.least(form)[0]
        except TooSteep:
            return math.inf
        return value if math.isfinite(value) else math.inf

    def confirm(self, x: np.ndarray) -> tuple[Any, Any, str]:
        """The risk of the best v at this point by the library's first route, and where it is."""
        k, constants = self.point(x)
        v = np.zeros(4)
        if self.everywhere:
            v = best_value(quadratic(self.asked, constants, k, FINAL), self.unit)[1]
        else:
            v[1] = self.asked.least(self.asked.value_form(constants, float(k[0]), float(k @ k), FINAL))[1]
        model = self.asked.model
        if constants:
            model = model.replace(activation=model.activation.replace(**constants))
        squares = (1.0, 1.0) if self.unit else (float(k @ k), float(v @ v))
        overlaps = Overlaps(float(k[0]), float(v[1]), float(v[0]), float(k[1]), float(k @ v[:3]), *squares)
        return ndl.excess_risk(self.asked.task, model, overlaps), overlaps, repr(model.activation)


@float64
def answer(index: int) -> dict[str, Any]:
    """One question: the reported optimum and the best of a random search."""
    kind, task, model, learner = question(index)
    row: dict[str, Any] = {"index": index, "kind": kind, "question": [repr(s) for s in (task, model, learner)]}
    began = time.process_time()
    found = ndl.predict(task, model, learner, throw=False)
    row |= {"seconds": time.process_time() - began, "status": found.status.name, "ok": found.ok}
    row |= {"value": found.excess_risk.value, "error": found.excess_risk.error}
    hunt, rng = Hunt(task, model, learner.within == "all"), np.random.default_rng([19, index])
    name = type(model.activation).__name__.lower()
    tries = TRIES.get(name, TRIES["sink"]) // (3 if hunt.everywhere and name != "erf" else 1)
    scanned = sorted(
        ((hunt.risk(x), i, x) for i, x in enumerate(hunt.draw(rng) for _ in range(tries))), key=lambda s: s[:2]
    )
    best = scanned[0]
    for start in scanned[:2]:
        end = optimize.minimize(
            hunt.risk, start[2], method="Nelder-Mead", options={"maxfev": tries // 2, "fatol": 1e-12}
        )
        best = min(best, (float(end.fun), -1, end.x), key=lambda s: s[0])
    better, overlaps, activation = hunt.confirm(best[2])
    row |= {"found": better.value, "found_error": better.error, "where": [repr(overlaps), activation]}
    row |= {"hunting": time.process_time() - began - row["seconds"]}
    row["gain"] = (found.excess_risk.value - better.value) / task.label_var
    error = found.excess_risk.error if math.isfinite(found.excess_risk.error) else 0.0
    row["beaten"] = bool(found.excess_risk.value - better.value > error + better.error)
    return row


def penalty_question(index: int) -> tuple[Any, Any, Any]:
    """Task, model and learner of a ridge question: both tasks, two and three tokens, pairs and common penalties."""
    rng = np.random.default_rng([20, index])
    tokens, noise = 2 + index // 4 % 2, float(rng.uniform(0.05, 0.5))
    snr = float(rng.uniform(1.0, 4.0))
    task = (ndl.SpikedSLR, ndl.MaxSLR)[index // 2 % 2](tokens, snr, noise=noise)
    activation = [ndl.Softmax(), ndl.Linear()][index % 2] if index % 9 else ndl.Erf(offset=1.0)
    learner = ndl.Ridge(float(rng.uniform(1.5, 8.0)), "optimal", common=bool(index // 8 % 2))
    return task, ndl.KeyValueAttention(activation), learner


def penalty(index: int) -> dict[str, Any]:
    """One ridge question: is any of eight random penalties predicted to be better than the reported best?"""
    task, model, learner = penalty_question(index)
    rng, began = np.random.default_rng([21, index]), time.process_time()
    found = ndl.predict(task, model, learner, throw=False)
    searching = time.process_time() - began
    chosen = found.resolved[2].penalties  # pyright: ignore[reportOptionalSubscript, reportAttributeAccessIssue]
    lower: list[tuple[Any, float]] = []
    beyond: list[float] = []
    for i in range(8):
        # near ones, and far ones that would find another valley
        factors = np.exp(rng.normal(0.0, 0.7 if i < 5 else 2.0, 2))
        if learner.common:
            factors[1] = factors[0]
        pair = tuple(float(f * x) for f, x in zip(factors, chosen, strict=True))
        tried = ndl.predict(task, model, ndl.Ridge(learner.alpha, pair), throw=False)
        gap = found.excess_risk.value - tried.excess_risk.value
        error = found.excess_risk.error + tried.excess_risk.error
        if tried.status.ok and math.isfinite(error):
            beyond.append(gap / error)
            if gap > error:
                lower.append((pair, gap))
    return {
        "penalty": index,
        "question": [repr(s) for s in (task, model, learner)],
        "status": found.status.name,
        "value": found.excess_risk.value,
        "error": found.excess_risk.error,
        "chosen": chosen,
        "lower": lower,
        "closest": max(beyond, default=-math.inf),
        "searching": searching,
        "seconds": time.process_time() - began,
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    path = Path(sys.argv[2] if len(sys.argv) > 2 else "benchmarks/out/optima.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    have = {row.get("index") for row in done}, {row.get("penalty") for row in done}
    with path.open("a") as file:
        # questions of one kind follow each other, so that they compile once
        left = sorted(set(range(count)) - have[0], key=lambda i: (i % len(KINDS), i))
        penalties = sorted(set(range(int(sys.argv[3]) if len(sys.argv) > 3 else 0)) - have[1])
        for task, index in [*((answer, i) for i in left), *((penalty, i) for i in penalties)]:
            row = task(index)
            file.write(json.dumps(row) + "\n")
            file.flush()
            done.append(row)
    report([row for row in done if row.get("index", count) < count], [row for row in done if "penalty" in row])


def report(rows: list[dict[str, Any]], penalties: list[dict[str, Any]]) -> None:
    """Shares and costs, kind by kind, and every question that was beaten."""
    heads = ("questions", "beaten", "unknown", "largest gain", "s a point", "s hunting")
    print(f"{'kind':<12} " + " ".join(f"{head:>12}" for head in heads))
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["kind"]].append(row)
    for kind, mine in groups.items():
        beaten = [r["gain"] for r in mine if r["beaten"]]
        numbers = (len(mine), len(beaten), sum(not r["ok"] for r in mine), max(beaten, default=0.0))
        costs = (float(np.median([r[name] for r in mine])) for name in ("seconds", "hunting"))
        print(f"{kind:<12} " + " ".join(f"{x:12.3g}" for x in (*numbers, *costs)))
    for r in sorted((r for r in rows if r["beaten"]), key=lambda r: -r["gain"]):
        reported = f"{r['status']} {r['value']:.10g} (+- {r['error']:.1e})"
        print(f"{r['index']}: {reported} against {r['found']:.10g}; {r['question']}; {r['where']}")
    for r in penalties:
        shown = f"{r['chosen']}, {len(r['lower'])} of 8 lower, found in {r['searching']:.1f} s"
        if r["lower"]:
            print(
                f"penalty {r['penalty']}: {r['status']} {r['value']:.5f} +- {r['error']:.1e} {shown}; {r['question']}"
            )
            print(f"    lower: {r['lower']}")
    if penalties:
        beaten = [r for r in penalties if r["lower"]]
        trusted = [r for r in beaten if r["status"] == "CONVERGED"]
        seconds = sorted(r["searching"] for r in penalties)
        print(
            f"{len(penalties)} ridge questions, {len(beaten)} beaten by one of 8 random penalties beyond the errors, "
            f"{len(trusted)} of them reported as converged; median {seconds[len(seconds) // 2]:.1f} s, most "
            f"{seconds[-1]:.1f} s (the first of a kind compiles)"
        )


if __name__ == "__main__":
    main()
