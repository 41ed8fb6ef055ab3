"""The attention-indexed model at random settings: how many predictions converge, how many are flagged and why.

    python benchmarks/indexed_robustness.py [settings] [file.jsonl]

writes a line a setting (resuming where the file ends) and prints the shares.
"""

from __future__ import annotations

import collections
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

import numpy as np

import needlepoint as ndl


def setting(index: int) -> tuple[ndl.AttentionIndexed, ndl.TiedAttention | ndl.DirectAttention, ndl.Ridge]:
    """The question number `index` of the domain that the documentation states."""
    rng = np.random.default_rng([6, index])

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    tokens = 1 + index % 4
    noise = 0.0 if rng.random() < 0.2 else float(rng.uniform(0.0, 2.0))
    beta_star = between(0.5, 3.0)
    beta = beta_star if rng.random() < 0.5 else between(0.5, 3.0)
    if tokens == 1:  # a linear label has no temperature
        beta_star = beta = 1.0
    task = ndl.AttentionIndexed(tokens, ndl.Wishart(between(0.05, 3.0)), noise, beta_star)
    model = ndl.DirectAttention(beta) if rng.random() < 0.2 else ndl.TiedAttention(beta)
    return task, model, ndl.Ridge(between(0.01, 5.0), between(1e-4, 10.0))


def reason(result: ndl.Prediction) -> str:
    """The first thing that speaks against a prediction."""
    text = " ".join(result.notes)
    for mark in ("replica symmetry", "more than one minimum", "wide"):
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
        "replicon": result.replicon,
        "residual": result.residual,
        "finite": all(e.finite for e in result.metrics.values()),
        "estimation_error": result.estimation_error.value,
        "error": result.estimation_error.error,
        "notes": list(result.notes),
        "seconds": time.process_time() - began,
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    path = Path(sys.argv[2] if len(sys.argv) > 2 else "benchmarks/out/indexed_robustness.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    # settings with as many tokens follow each other, so that each worker compiles them once
    left = sorted(set(range(count)) - {row["index"] for row in done}, key=lambda i: (i % 4, i))
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool, path.open("a") as file:
        for row in pool.imap_unordered(answer, left):
            file.write(json.dumps(row) + "\n")
            file.flush()
            done.append(row)
    rows = [row for row in done if row["index"] < count]
    print(f"{len(rows)} settings, {sum(row['finite'] for row in rows)} finite")
    for name, number in collections.Counter(row["reason"] for row in rows).most_common():
        print(f"{100 * number / len(rows):5.1f} %  {name}")
    seconds = [row["seconds"] for row in rows]
    print(f"median {np.median(seconds):.2f} s, most {max(seconds):.1f} s")


if __name__ == "__main__":
    main()
