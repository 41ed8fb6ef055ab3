"""Ground states of ridge training by size: the lowest minimum of 64 random starts and the teachers, in six settings.

    python benchmarks/ground_states.py file.jsonl [sizes] [starts]

writes a line a repeat (resuming where the file ends), the smallest size first and all settings of a size before the
next, and prints a table: the lowest minimum, one random start and the informed start at each size, and what a straight
line in 1/d leaves at infinite d. `sizes` is "50,100,200,400" unless given; `file.jsonl 0` only prints.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import needlepoint as ndl

SPIKED = ndl.SpikedSLR(2, snr=2.0, noise=0.1)
SOFTMAX, LINEAR = ndl.KeyValueAttention(ndl.Softmax()), ndl.KeyValueAttention(ndl.Linear())

SETTINGS = {
    "linear, alpha 2, penalty 0.1": (SPIKED, LINEAR, ndl.Ridge(2.0, 0.1)),
    "softmax, alpha 2, penalty 0.01": (SPIKED, SOFTMAX, ndl.Ridge(2.0, 0.01)),
    "softmax, alpha 1, penalty 0.1": (SPIKED, SOFTMAX, ndl.Ridge(1.0, 0.1)),
    "softmax, three tokens, alpha 1.5, penalty 0.03": (
        ndl.SpikedSLR(3, snr=2.0, noise=0.1), SOFTMAX, ndl.Ridge(1.5, 0.03),
    ),
    "softmax, max task, alpha 2, penalty 0.01": (ndl.MaxSLR(2, snr=2.0), SOFTMAX, ndl.Ridge(2.0, 0.01)),
    "softmax, alpha 2, penalties 0.005 and 0.05": (SPIKED, SOFTMAX, ndl.Ridge(2.0, (0.005, 0.05))),
}  # fmt: skip

REPEATS = {400: 8}
"""How many repeats a size has; 24 if it is not here."""

SHOWN = ("energy", "train_loss", "excess_risk", "key", "key_sq", "value", "value_sq")
OVERLAPS = ("key", "key_sq", "value", "value_sq")


def key(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("setting", "d", "repeat", "starts"))


def read(path: Path) -> list[dict[str, object]]:
    """The whole lines of the file; a last one that a stop has cut is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def answer(setting: str, d: int, repeat: int, starts: int) -> dict[str, object]:
    """One repeat, as a line of the file: every metric and overlap, without errors, because it is a single one."""
    began = time.process_time()
    found = ndl.simulate(*SETTINGS[setting], d=d, repeats=1, seed=repeat, starts=starts, progress=False)
    seconds = time.process_time() - began
    values = {name: estimate.value for name, estimate in found.metrics.items()}
    values |= dict(found.overlaps.items()) if found.overlaps else {}
    asked = {"setting": setting, "d": d, "repeat": repeat, "starts": starts}
    return {**asked, "status": found.status.name, "values": values, "seconds": seconds}


def column(rows: Sequence[dict[str, object]], name: str) -> np.ndarray:
    return np.array([row["values"][name] for row in rows])  # type: ignore[index]


def mean(values: np.ndarray) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))


def at_infinity(sizes: Sequence[int], samples: Sequence[np.ndarray]) -> tuple[float, float]:
    """The value at 1/d = 0 of a weighted straight line through the means at each size, and its error.

    The spread of single repeats is pooled over sizes as a share of 1/sqrt(d), which few repeats alone would not tell.
    """
    pooled = math.sqrt(np.mean([d * np.var(x, ddof=1) for d, x in zip(sizes, samples, strict=True)]))
    weights = np.array([math.sqrt(len(x) * d) / pooled for d, x in zip(sizes, samples, strict=True)])
    design = np.stack([np.ones(len(sizes)), 1 / np.array(sizes)], axis=1) * weights[:, None]
    covariance = np.linalg.inv(design.T @ design)
    line = covariance @ design.T @ (weights * [np.mean(x) for x in samples])
    return float(line[0]), math.sqrt(covariance[0, 0])


def shown(value: tuple[float, float]) -> str:
    return str(ndl.Estimate(*value, kind="stderr"))


def table(rows: Sequence[dict[str, object]]) -> None:
    for setting in SETTINGS:
        mine = [row for row in rows if row["setting"] == setting]
        by_size = {d: [row for row in mine if row["d"] == d] for d in sorted({int(str(row["d"])) for row in mine})}
        by_size = {d: found for d, found in by_size.items() if len(found) > 1}
        if not by_size:
            continue
        sizes = list(by_size)
        print(f"\n{setting}\n  repeats: " + ", ".join(f"{len(found)} at d = {d}" for d, found in by_size.items()))
        for name in SHOWN:
            for end, words in (("", "lowest"), ("_one_start", "one start"), ("_informed", "informed")):
                full = "energy_best_of_1" if name + end == "energy_one_start" else name + end
                samples = [column(found, full) for found in by_size.values()]
                cells = [shown(mean(x)) for x in samples]
                limit = shown(at_infinity(sizes, samples)) if len(sizes) > 1 else ""
                print(f"  {name:<12}{words:<10}" + "".join(f"{cell:>14}" for cell in [*cells, limit]))
        for name in sorted((n for n in mine[0]["values"] if "best_of" in n), key=lambda n: int(n.split("_")[-1])):  # type: ignore[union-attr]
            cells = [shown(mean(column(found, name) - column(found, "energy"))) for found in by_size.values()]
            print(f"  {name.replace('energy_', '') + ' above':<22}" + "".join(f"{cell:>14}" for cell in cells))
        for name in ("energy_informed", "excess_risk_one_start", "excess_risk_informed"):
            lowest = name.removesuffix("_informed").removesuffix("_one_start")
            cells = [shown(mean(column(found, name) - column(found, lowest))) for found in by_size.values()]
            print(f"  {name + ' above':<22}" + "".join(f"{cell:>14}" for cell in cells))
        for name in ("best_found_again", "random_missed", "distinct_minima", "key_between_lowest",
                     "value_between_lowest"):  # fmt: skip
            cells = [shown(mean(column(found, name))) for found in by_size.values()]
            print(f"  {name:<22}" + "".join(f"{cell:>14}" for cell in cells))
        for name in ("value_on_key", "key_on_value", "key_dot_value"):
            cells = [f"{math.sqrt(d * np.mean(column(found, name) ** 2)):.2f}" for d, found in by_size.items()]
            print(f"  rms {name} sqrt(d)".ljust(24) + "".join(f"{cell:>14}" for cell in cells))
        seconds = [float(np.mean([float(str(row["seconds"])) for row in found])) for found in by_size.values()]
        print(f"  {'CPU seconds a repeat':<22}" + "".join(f"{s:>14.2f}" for s in seconds))
        print(f"  not converged: {sum(row['status'] != 'CONVERGED' for row in mine)} of {len(mine)}")


def main() -> None:
    path = Path(sys.argv[1])
    sizes = [int(d) for d in (sys.argv[2] if len(sys.argv) > 2 else "50,100,200,400").split(",") if int(d)]
    starts = int(sys.argv[3]) if len(sys.argv) > 3 else 64
    done = {key(row) for row in read(path)}  # without a last line that a stop has cut, which is then overwritten
    if path.exists():
        whole, end, _ = path.read_text().rpartition("\n")
        path.write_text(whole + end)
    with path.open("a") as file:
        for d in sizes:
            for setting in SETTINGS:
                for repeat in range(REPEATS.get(d, 24)):
                    if (setting, d, repeat, starts) not in done:
                        file.write(json.dumps(answer(setting, d, repeat, starts)) + "\n")
                        file.flush()
    table([row for row in read(path) if row["starts"] == starts])


if __name__ == "__main__":
    main()
