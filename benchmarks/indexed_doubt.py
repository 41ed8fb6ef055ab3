"""How far training is from predictions of the attention-indexed model that are flagged, and from some that are not.

    python benchmarks/indexed_doubt.py heavy|minima|single [settings] [file.jsonl]

writes a line a setting (resuming where the file ends) with the predicted and the trained numbers. `heavy` has targets
with a few large eigenvalues and two or three tokens, `single` the same with one token, `minima` weak penalties near
interpolation, of which those are trained whose prediction is flagged. The documentation states the domains, and what
`Prediction.doubt` makes of the rows.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import numpy as np

import needlepoint as ndl
from needlepoint.core.status import Status

REPEATS = 6
LARGEST = 6e4
"""Numbers in the tokens of a training set; larger settings are left out, but for the first of `heavy`."""
ALL_OF_HEAVY = 21
METRICS = ("risk", "clean_risk", "train_loss", "energy", "estimation_error", "rank_fraction")
Question = tuple[ndl.AttentionIndexed, ndl.TiedAttention | ndl.DirectAttention, ndl.Ridge, int]


class Draw:
    """Random numbers of one setting."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def between(self, low: float, high: float) -> float:
        """On a logarithmic scale."""
        return round(float(np.exp(self.rng.uniform(np.log(low), np.log(high)))), 6)

    def evenly(self, low: float, high: float) -> float:
        return round(float(self.rng.uniform(low, high)), 6)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)


def heavy_target(draw: Draw, d: int) -> ndl.PowerLaw | ndl.Eigenvalues | ndl.Wishart:
    """Mostly power laws; lists with one to four large eigenvalues; some targets without any."""
    kind = draw.rng.random()
    if kind < 0.7:
        return ndl.PowerLaw(draw.evenly(0.4, 2.2), d)
    if kind < 0.9:
        count = int(draw.rng.integers(1, 5))
        return ndl.Eigenvalues((draw.between(2.0, 2 * math.sqrt(d)), 1.0, 0.0), (count / d, 0.5 - count / d, 0.5))
    return ndl.Wishart(draw.between(0.1, 2.0))


def heavy(index: int, tokens: int | None = None) -> Question:
    draw = Draw(31, index, tokens or 0)
    tokens = tokens or 2 + (index % 3 == 2)
    d = int(draw.rng.choice([45, 64, 90] if tokens > 2 else [45, 64, 90, 140]))
    noise = 0.0 if draw.chance(0.2) else draw.evenly(0.0, 1.0)
    beta = 1.0 if draw.chance(0.5) or tokens == 1 else draw.between(0.7, 2.0)
    task = ndl.AttentionIndexed(tokens, heavy_target(draw, d), noise, beta)
    return task, ndl.TiedAttention(beta), ndl.Ridge(draw.between(0.05, 0.5), draw.between(0.005, 0.2)), d


def single(index: int) -> Question:
    return heavy(index, 1)


def minima(index: int) -> Question:
    """Around interpolation at weak penalties, where sequences have more than one minimum."""
    draw = Draw(32, index)
    tokens = 2 + (index % 3 == 2)
    beta = draw.between(0.7, 1.5)
    task = ndl.AttentionIndexed(tokens, ndl.Wishart(draw.between(0.2, 1.5)), draw.evenly(0.2, 2.0), beta)
    model = ndl.DirectAttention(beta) if draw.chance(0.2) else ndl.TiedAttention(beta)
    alpha = draw.between(0.8, 1.8) * ndl.thresholds(task, model).interpolation.value
    return task, model, ndl.Ridge(round(alpha, 6), draw.between(1e-4, 2e-3)), 40 if tokens == 2 else 32


def concentration(eigenvalues: np.ndarray) -> float:
    """sum s^4 / (sum s^2)^2: one over the number of directions that carry the scores."""
    return float(np.sum(eigenvalues**4) / np.sum(eigenvalues**2) ** 2)


DOMAINS = {"heavy": heavy, "single": single, "minima": minima}


def answer(name: str, index: int) -> dict[str, object]:
    """What is predicted and what is trained for one setting, as a row of the file."""
    task, model, learner, d = DOMAINS[name](index)
    began = time.process_time()
    said = ndl.predict(task, model, learner, throw=False, tol=2e-3)  # far below what training can tell
    row: dict[str, object] = {
        "index": index,
        "question": [repr(x) for x in (task, model, learner)],
        "d": d,
        "tokens": task.tokens,
        "status": said.status.name,
        "notes": list(said.notes),
        "replicon": said.replicon,
        "residual": said.residual,
        "square": task.target.law.square,
        "noise_var": task.noise_var,
        "concentration": concentration(task.target.draw(np.random.default_rng(0), d)),
        "predicted": {k: [said.metrics[k].value, said.metrics[k].error] for k in METRICS},
    }
    if name != "minima" or said.status is not Status.CONVERGED:
        found = ndl.simulate(task, model, learner, d=d, repeats=REPEATS, samples=4000)
        row["trained"] = {k: [found.metrics[k].value, found.metrics[k].error] for k in METRICS}
        row["training"] = found.status.name
        if found.spectrum is not None:
            row["concentration"] = float(np.mean([concentration(s) for s in found.spectrum.target]))
    row["seconds"] = time.process_time() - began
    return row


def main() -> None:
    name = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    path = Path(sys.argv[3] if len(sys.argv) > 3 else f"benchmarks/out/indexed_doubt_{name}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["index"] for line in path.read_text().splitlines()} if path.exists() else set()
    with path.open("a") as file:
        for index in range(count):
            task, _, learner, d = DOMAINS[name](index)
            small = learner.alpha * d**3 * task.tokens <= LARGEST or (name == "heavy" and index < ALL_OF_HEAVY)
            if index not in done and small:
                file.write(json.dumps(answer(name, index)) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
