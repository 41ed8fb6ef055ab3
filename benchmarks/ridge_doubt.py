"""How far training is from ridge predictions that are flagged.

    python benchmarks/ridge_doubt.py [first] [last] [file.jsonl]

predicts the settings of both domains of ridge_robustness.py, trains those whose prediction is flagged at d = 100 (16
repeats, the lower of two starts) and writes a line each, resuming where the file ends. Then it prints how far training
was from the predictions, and how many of them `Prediction.doubt` covers.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import needlepoint as ndl
from ridge_robustness import DOMAINS, kind

D, REPEATS, SAMPLES = 100, 16, 4000
METRICS = ("excess_risk", "train_loss", "energy")


def row(domain: str, index: int) -> dict[str, object]:
    """Predicted and trained numbers of one setting."""
    question = DOMAINS[domain][0](index)
    prediction = ndl.predict(*question, throw=False)
    found: dict[str, object] = {
        "domain": domain,
        "index": index,
        "question": [repr(part) for part in question],
        "status": prediction.status.name,
        "replicon": prediction.replicon,
        "jump_weight": prediction.metrics["jump_weight"].value if "jump_weight" in prediction.metrics else None,
        "predicted": {name: (prediction.metrics[name].value, prediction.metrics[name].error) for name in METRICS},
        "doubt": dict(prediction.doubt),
        "notes": list(prediction.notes),
    }
    if prediction.stable is False:
        began = time.process_time()
        trained = ndl.simulate(*question, d=D, repeats=REPEATS, samples=SAMPLES)
        found["trained"] = {name: (trained.metrics[name].value, trained.metrics[name].error) for name in METRICS}
        found["apart"] = trained.metrics["starts_apart"].value
        found["training"] = trained.status.name
        found["seconds"] = time.process_time() - began
    return found


def gaps(rows: list[dict], metric: str) -> np.ndarray:
    """Relative gaps between training and prediction, beyond two standard errors and the numerical error."""
    found = []
    for r in rows:
        (value, error), (trained, se) = r["predicted"][metric], r["trained"][metric]
        error = error if np.isfinite(error) else 0.0  # refused for its doubt
        found.append(max(0.0, abs(trained - value) - error - 2 * se) / abs(value))
    return np.array(found)


def main() -> None:
    given = [*sys.argv[1:], "", "", ""]
    first, last = int(given[0] or 0), int(given[1] or 300)
    path = Path(given[2] or "benchmarks/out/ridge_doubt.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(r["domain"], r["index"]) for r in rows}
    asked = [(name, i) for name, (_, count) in DOMAINS.items() for i in range(first, min(last, count))]
    left = sorted((x for x in asked if x not in done), key=lambda x: kind(DOMAINS[x[0]][0](x[1])))
    with path.open("a") as file:
        for name, index in left:
            rows.append(row(name, index))
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
    flagged = [r for r in rows if "trained" in r]
    print(f"{len(flagged)} of {len(rows)} are flagged and trained")
    for metric in METRICS:
        shares = np.quantile(gaps(flagged, metric), [0.25, 0.5, 0.75, 0.9, 1.0])
        print(f"{metric:12s} quartiles, ninth decile and largest of the gap: {np.round(shares, 3).tolist()}")
        told = [r for r in flagged if r["doubt"]]
        inside = gaps(told, metric) <= [r["doubt"][metric] for r in told]
        print(f"{metric:12s} covered: {inside.sum()} of {len(told)}")


if __name__ == "__main__":
    main()
