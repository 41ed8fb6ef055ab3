"""Ridge predictions at random settings: how many converge, how many are flagged and why.

    python benchmarks/ridge_robustness.py [settings] [file.jsonl] [checks]

writes a line a setting (resuming where the file ends) and prints the shares; then trains on `checks` of the trusted
settings, drawn at random, at three sizes each.
"""

from __future__ import annotations

import collections
import json
import math
import multiprocessing
import os
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import needlepoint as ndl


@ndl.activation("sink_softmax")
def sink_softmax(scores):
    """Softmax with a place to put no weight at all."""
    top = jnp.maximum(jnp.max(scores), 0.0)
    return jnp.exp(scores - top) / (jnp.exp(-top) + jnp.sum(jnp.exp(scores - top)))


ACTIVATIONS = (ndl.Softmax(), ndl.Linear(), ndl.Erf(offset=1.0), ndl.Erf(), ndl.Softplus(), sink_softmax)


def setting(index: int) -> tuple[ndl.SpikedSLR | ndl.MaxSLR, ndl.KeyValueAttention, ndl.Ridge]:
    """The question number `index` of the domain that the documentation states."""
    rng = np.random.default_rng([5, index])

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    tokens, noise = int(rng.integers(2, 5)), float(rng.uniform(0.0, 1.0))
    snr = between(0.1, 20.0)
    if rng.random() < 0.5:
        task = ndl.SpikedSLR(tokens, snr=snr, noise=noise)
    else:
        task = ndl.MaxSLR(tokens, snr=math.inf if rng.random() < 0.3 else snr, noise=noise)
    model = ndl.KeyValueAttention(ACTIVATIONS[index % len(ACTIVATIONS)])
    penalties = (between(1e-3, 10.0), between(1e-3, 10.0)) if rng.random() < 0.5 else between(1e-3, 10.0)
    return task, model, ndl.Ridge(between(0.3, 30.0), penalties)


def reason(result: ndl.Prediction) -> str:
    """The first thing that speaks against a prediction."""
    text = " ".join(result.notes)
    for mark in ("replica symmetry", "jumps", "ends elsewhere"):
        if mark in text:
            return f"{result.status.name}: {mark}"
    return result.status.name


def answer(index: int) -> dict[str, object]:
    """What is predicted for one setting, as a row of the file."""
    task, model, learner = setting(index)
    began = time.process_time()
    result = ndl.predict(task, model, learner, throw=False)
    return {
        "index": index,
        "question": [repr(x) for x in (task, model, learner)],
        "status": result.status.name,
        "reason": reason(result),
        "stable": result.stable,
        "replicon": result.replicon,
        "finite": all(e.finite for e in result.metrics.values()),
        "excess_risk": result.excess_risk.value,
        "error": result.excess_risk.error,
        "notes": list(result.notes),
        "seconds": time.process_time() - began,
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    path = Path(sys.argv[2] if len(sys.argv) > 2 else "benchmarks/out/ridge_robustness.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    # settings of one kind follow each other, so that each worker compiles them once
    left = sorted(set(range(count)) - {row["index"] for row in done}, key=kind)
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool, path.open("a") as file:
        for row in pool.imap_unordered(answer, left):
            file.write(json.dumps(row) + "\n")
            file.flush()
            done.append(row)
    rows = [row for row in done if row["index"] < count]
    shares = collections.Counter(row["reason"] for row in rows)
    print(f"{len(rows)} settings, {sum(row['finite'] for row in rows)} finite")
    for name, number in shares.most_common():
        print(f"{100 * number / len(rows):5.1f} %  {name}")
    seconds = [row["seconds"] for row in rows]
    print(f"median {np.median(seconds):.2f} s, most {max(seconds):.1f} s")
    checks = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    trusted = sorted(row["index"] for row in rows if row["status"] == "CONVERGED")
    for index in np.random.default_rng(1).permutation(trusted)[:checks]:
        print(check(int(index)), flush=True)


SIZES = ((60, 48), (120, 32), (240, 24))
"""(d, repeats) of the training that a prediction is checked by."""


def check(index: int) -> str:
    """Theory against training for one setting, extrapolated."""
    task, model, learner = setting(index)
    prediction = ndl.predict(task, model, learner)
    found = [ndl.simulate(task, model, learner, d=d, repeats=r) for d, r in SIZES]
    fits = {e.metric: e for e in ndl.compare(prediction, found).extrapolations}
    risk = fits["excess_risk"]
    return (
        f"{index}: excess risk {risk.predicted:.4f}, trained {risk.extrapolated:.4f}({risk.extrapolated_error:.4f}); z "
        + ", ".join(f"{name} {fits[name].z_extrapolated:+.1f}" for name in ("excess_risk", "train_loss", "energy"))
        + f"; {task!r}, {model!r}, {learner!r}"
    )


def kind(index: int) -> tuple[str, str, int]:
    """What fixes the compiled kernels of a setting."""
    task, model, _ = setting(index)
    return type(model.activation).__name__, type(task).__name__, task.longest


if __name__ == "__main__":
    main()
