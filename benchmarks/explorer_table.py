"""Make the table of best penalties that the explorer's first screen starts from: `python benchmarks/explorer_table.py`.

Every answer is kept in a file of lines as it comes, so that an interrupted run goes on where it was; `--seconds` stops
after so much processor time, and the table then has gaps, where the page asks the solver. At the end points of its own,
drawn at random inside the box, are computed too: their distance to the interpolation is the table's stated error.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import needlepoint as ndl
import needlepoint.specs_by_name
from needlepoint.core.text.parsing import parse_spec
from needlepoint.explorer import table
from needlepoint.theory.curves import predict_curves

KEPT = Path(".cache/explorer-table.jsonl")
TOLERANCE = (
    0.01  # how well a risk is to be known: a quarter of the time of the solver's own choice, below the table's error
)
HELD_OUT = 4  # points of each block that the table does not have


def main() -> None:
    """Compute what is missing, then write the table and its error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=math.inf, help="processor time after which it stops")
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--out", type=Path, default=table.FILE)
    given = parser.parse_args()
    ndl.use_cache()
    given.kept.parent.mkdir(parents=True, exist_ok=True)
    known = {tuple(line["at"]): line["row"] for line in _lines(given.kept)}
    with given.kept.open("a") as out:
        for job in jobs():
            if all(at in known for at in job):
                continue
            if time.process_time() > given.seconds:
                break
            for at, row in zip(job, answers(job), strict=True):
                known[at] = row
                out.write(json.dumps({"at": at, "row": row}) + "\n")
            out.flush()
            print(f"{time.process_time():.0f} s", *job[0][:5], flush=True)
    document = made(known)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    print(json.dumps(document["error"]))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def blocks() -> Iterator[tuple[str, int, str]]:
    """Yield the blocks: those that a reader opens first in front, those that take longest (erf, and max) behind."""
    every = [(task, tokens, model) for tokens in table.TOKENS for task in table.TASKS for model in table.MODELS]

    def cost(block: tuple[str, int, str]) -> int:
        task, tokens, model = block
        return 2 * (task == "MaxSLR" and tokens > 2) + (model == "erf" and (task, tokens) != ("SpikedSLR", 2))

    yield from sorted(every, key=cost)


def jobs() -> Iterator[list[tuple[Any, ...]]]:
    """Yield the points that are computed together: a curve along alpha, or a point that is held out."""
    for block in blocks():
        for snr in table.AXES["snr"]:
            for noise in table.AXES["noise"]:
                yield [(*block, snr, noise, alpha) for alpha in table.AXES["alpha"]]
        yield from ([at] for at in held_out(block))


def held_out(block: tuple[str, int, str]) -> list[tuple[Any, ...]]:
    """Return points inside the box, uniform in log(snr), the variance of the noise, and log(alpha)."""
    draw = random.Random(repr(block))
    found = []
    for _ in range(HELD_OUT):
        low, high = (dict(zip(table.AXES, ends, strict=True)) for ends in zip(*_ends(), strict=True))
        snr = math.exp(draw.uniform(math.log(low["snr"]), math.log(high["snr"])))
        noise = math.sqrt(draw.uniform(low["noise"] ** 2, high["noise"] ** 2))
        alpha = math.exp(draw.uniform(math.log(low["alpha"]), math.log(high["alpha"])))
        found.append((*block, round(snr, 3), round(noise, 3), round(alpha, 3)))
    return found


def _ends() -> list[tuple[float, float]]:
    return [(values[0], values[-1]) for values in table.AXES.values()]


def answers(job: list[tuple[Any, ...]]) -> list[list[float] | None]:
    """Return a row [log risk, log penalties..., trusted] for each point, None where there is no answer."""
    name, tokens, model = job[0][:3]
    tasks = [getattr(ndl, name)(tokens, snr=snr, noise=noise) for *_, snr, noise, _alpha in job]
    spec = parse_spec(table.MODELS[model], "model")
    if spec is None:
        found = [ndl.predict(t, None, ndl.BayesOptimal(at[-1]), throw=False) for t, at in zip(tasks, job, strict=True)]
    else:
        questions = [(t, spec, ndl.Ridge(at[-1], "optimal")) for t, at in zip(tasks, job, strict=True)]
        found = predict_curves([questions], tol=TOLERANCE)[0]
    return [_row(p) for p in found]


def _row(prediction: Any) -> list[float] | None:
    risk = prediction.risk
    learner = (prediction.resolved or (None, None, prediction.learner))[2]
    given = getattr(learner, "lam", ())
    lam = given if isinstance(given, tuple) else (given, given)  # two equal penalties are one number
    if not risk.finite or isinstance(given, str) or not all(0 < x < math.inf for x in lam):
        return None
    # NOISE_LIMITED only says that the tolerance above was not quite reached
    solved = prediction.ok or prediction.status.name == "NOISE_LIMITED"
    trusted = 1 if solved and prediction.stable is not False else 0
    return [round(math.log(risk.value), 5), *(round(math.log(x), 3) for x in lam), trusted]


def in_excess(row: list[float] | None, noise: float) -> list[float] | None:
    """Return a row with the logarithm of the excess risk instead of the risk's; it depends less on the noise."""
    return None if row is None else [round(math.log(math.exp(row[0]) - noise * noise), 5), *row[1:]]


def made(known: dict[tuple[Any, ...], Any]) -> dict[str, Any]:
    """Return the table with its held-out error."""
    axes = {name: list(values) for name, values in table.AXES.items()}
    document: dict[str, Any] = {"axes": axes, "blocks": {}}
    for block in blocks():
        rows = [
            in_excess(known.get((*block, snr, noise, alpha)), noise)
            for snr in axes["snr"]
            for noise in axes["noise"]
            for alpha in axes["alpha"]
        ]
        if any(row is not None for row in rows):
            document["blocks"]["/".join(map(str, block))] = rows
    gaps = []
    for block in blocks():
        for at in held_out(block):
            row, value = known.get(at), table.at(document, *at)
            if row is not None and value is not None and row[-1] == 1 and value.trusted:
                gaps.append(abs(value.risk / math.exp(row[0]) - 1))
    gaps.sort()
    error = {"points": len(gaps)}
    if gaps:
        error |= {
            "median": round(statistics.median(gaps), 5),
            "ninetieth": round(gaps[int(0.9 * (len(gaps) - 1))], 5),
            "largest": round(gaps[-1], 5),
        }
    return {**document, "error": error}


if __name__ == "__main__":
    main()
