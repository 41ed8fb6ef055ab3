"""Ridge predictions at random settings: how many converge, how many are flagged and why.

    python benchmarks/ridge_robustness.py {wide,steep} [settings] [file.jsonl] [checks]

writes a line a setting (resuming where the file ends) and prints the shares; then trains on `checks` of the trusted
settings, drawn at random, at three sizes each, which are written to a file beside it and resumed in the same way. The
wide domain has both tasks and six activations; the steep one has linear attention at a large snr, where a plain
iteration of the equations diverges, and there the energy is also compared with what the equations lead to from random
starts.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import needlepoint as ndl
from needlepoint.theory.location.ridge.equations import SCRAMBLES, Equations, pack, unpack
from needlepoint.theory.location.ridge.fields import Order
from needlepoint.theory.location.ridge.stability import stability


@ndl.activation("sink_softmax")
def sink_softmax(scores):
    """Softmax with a place to put no weight at all."""
    top = jnp.maximum(jnp.max(scores), 0.0)
    return jnp.exp(scores - top) / (jnp.exp(-top) + jnp.sum(jnp.exp(scores - top)))


ACTIVATIONS = (ndl.Softmax(), ndl.Linear(), ndl.Erf(offset=1.0), ndl.Erf(), ndl.Softplus(), sink_softmax)


Setting = tuple[ndl.SpikedSLR | ndl.MaxSLR, ndl.KeyValueAttention, ndl.Ridge]


def steep(index: int) -> Setting:
    """Linear attention on spiked tokens: question number `index` of the second domain that the documentation states."""
    rng = np.random.default_rng([7, index])
    tokens, snr, noise = int(rng.integers(2, 5)), math.exp(rng.uniform(*np.log([6, 20]))), float(rng.uniform(0, 1))
    alpha, lam = (math.exp(rng.uniform(*np.log(ends))) for ends in ([1, 12], [0.03, 1]))
    return ndl.SpikedSLR(tokens, snr, noise=noise), ndl.KeyValueAttention(ndl.Linear()), ndl.Ridge(alpha, lam)


def wide(index: int) -> Setting:
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


DOMAINS = {"wide": (wide, 300), "steep": (steep, 200)}
"""Which settings, and how many the documentation reports."""

STARTS = 20
"""Random starts of the equations that an energy is compared with."""


def lower_energies(question: Setting, result: ndl.Prediction, index: int) -> dict[str, int]:
    """How many of the random starts lead to a point of the equations that is lower in energy: where replica symmetry
    is stable, and where it is not, so that the energy is only a bound.

    All with the same points, those of one scrambling: the energies of two rules would differ by their noise.
    """
    task, model, learner = question
    rng, o, hat = np.random.default_rng([11, index]), result.overlaps, result.conjugates
    assert isinstance(o, ndl.Overlaps)
    lower = {"stable": 0, "unstable": 0, "unsolved": 0}
    with jax.enable_x64(True):
        equations = Equations(task, model, learner.alpha, learner.penalties, 11, 1, 0)
        order = Order(o.key, o.key_sq, hat["key_susceptibility"], o.value, o.value_sq, hat["value_susceptibility"])

        def end(x: np.ndarray) -> tuple[np.ndarray, float]:
            found = equations.settle(x[None], 1e-6)
            there = unpack(found.x)
            energy = float(equations.energy(there, equations.means(there))[0])
            return found.x, energy if found.residual[0] < 1e-3 else math.nan

        _, here = end(pack(order))
        if math.isnan(here):  # these points have lost the branch
            here = result.energy.value - result.energy.error
        # overlaps and norms from none to more than the teacher's, susceptibilities from stiff to loose
        for start in rng.uniform([-0.5, -4, -3] * 2, [1.5, 1, 2] * 2, size=(STARTS, 6)):
            x, energy = end(start)
            if math.isnan(energy):
                lower["unsolved"] += 1
            elif energy < (1 - 1e-5) * here:
                all_points = dataclasses.replace(equations, scrambles=SCRAMBLES)
                judged = stability(all_points, unpack(np.repeat(x, SCRAMBLES, axis=0)))
                lower["unstable" if judged.replicon >= 1 else "stable"] += 1
    return lower


def reason(result: ndl.Prediction) -> str:
    """The first thing that speaks against a prediction."""
    text = " ".join(result.notes)
    for mark in ("replica symmetry", "jumps", "ends elsewhere", "second solution"):
        if mark in text:
            return f"{result.status.name}: {mark}"
    return result.status.name


def answer(domain: str, index: int) -> dict[str, object]:
    """What is predicted for one setting, as a row of the file."""
    task, model, learner = question = DOMAINS[domain][0](index)
    began = time.process_time()
    result = ndl.predict(task, model, learner, throw=False)
    seconds = time.process_time() - began
    solved = result.status.name in ("CONVERGED", "UNSTABLE", "NOISE_LIMITED")
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
        "residual": result.residual,
        "lower": lower_energies(question, result, index) if domain == "steep" and solved else {},
        "notes": list(result.notes),
        "seconds": seconds,
    }


def main() -> None:
    given = [*sys.argv[1:], "", "", "", ""]
    domain = given[0] or "wide"
    setting, count = DOMAINS[domain][0], int(given[1] or DOMAINS[domain][1])
    path = Path(given[2] or f"benchmarks/out/ridge_robustness_{domain}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    # settings of one kind follow each other, so that each worker compiles them once
    left = sorted(set(range(count)) - {row["index"] for row in done}, key=lambda index: kind(setting(index)))
    workers = int(os.environ.get("WORKERS", os.cpu_count() or 1))
    with multiprocessing.get_context("spawn").Pool(workers) as pool, path.open("a") as file:
        for row in pool.imap_unordered(functools.partial(answer, domain), left):
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
    print(f"largest residual {max(row['residual'] for row in rows):.1g}")
    if domain == "steep":
        for name in ("stable", "unstable", "unsolved"):
            found = [row["index"] for row in rows if row["lower"].get(name)]
            print(f"{len(found)} have {name} points of lower energy among {STARTS} random starts: {found}")
    trusted = sorted(row["index"] for row in rows if row["status"] == "CONVERGED")
    train(setting, [int(index) for index in np.random.default_rng(1).permutation(trusted)[: int(given[3] or 0)]], path)


def train(setting: Callable[[int], Setting], indices: list[int], path: Path) -> None:
    """Print what theory and training say of these settings; those in the file of trainings are not trained again."""
    path = path.with_name(f"{path.stem}_trained.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    known = {row["index"]: row["found"] for row in map(json.loads, lines)}
    for index in indices:
        if index not in known:
            known[index] = check(setting(index))
            with path.open("a") as file:
                file.write(json.dumps({"index": index, "found": known[index]}) + "\n")
        print(index, known[index], flush=True)


SIZES = ((60, 48), (120, 32), (240, 24))
"""(d, repeats) of the training that a prediction is checked by."""


def check(question: Setting) -> str:
    """Theory against training for one setting, extrapolated."""
    task, model, learner = question
    prediction = ndl.predict(task, model, learner)
    found = [ndl.simulate(task, model, learner, d=d, repeats=r) for d, r in SIZES]
    fits = {e.metric: e for e in ndl.compare(prediction, found).extrapolations}
    risk = fits["excess_risk"]
    return (
        f"excess risk {risk.predicted:.4f}, trained {risk.extrapolated:.4f}({risk.extrapolated_error:.4f}); z "
        + ", ".join(f"{name} {fits[name].z_extrapolated:+.1f}" for name in ("excess_risk", "train_loss", "energy"))
        + f"; {task!r}, {model!r}, {learner!r}"
    )


def kind(question: Setting) -> tuple[str, str, int]:
    """What fixes the compiled kernels of a setting."""
    task, model, _ = question
    return type(model.activation).__name__, type(task).__name__, task.longest


if __name__ == "__main__":
    main()
