"""Ask, compare, append; then print the table. What the files hold already is not asked again."""

from __future__ import annotations

import argparse
import json
import time
import traceback
from pathlib import Path

from benchmarks.honesty.checks import CHECKS
from benchmarks.honesty.record import Answer, Check, answer
from benchmarks.honesty.table import beyond, statuses, table

OUT = Path("benchmarks/out/honesty")


def read(check: Check, folder: Path) -> list[Answer]:
    path = folder / f"{check.name}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Answer.from_json(json.loads(line)) for line in lines]


def run(check: Check, points: int, folder: Path, until: float) -> None:
    """Ask what is left of the first `points` questions, until the time is over."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {a.index for a in read(check, folder)}
    with (folder / f"{check.name}.jsonl").open("a") as file:
        for index in range(points):
            if index in done:
                continue
            if time.monotonic() > until:
                return
            try:
                found = answer(check, index)
            except Exception:
                # a traceback is a defect of its own, or of the reference: it is shown, and asked again next time
                print(f"{check.name} {index}: {check.draw(index)}\n{traceback.format_exc()}", flush=True)
                continue
            file.write(json.dumps(found.to_json()) + "\n")
            file.flush()
            for line in beyond([found]):
                print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checks", nargs="*", help=f"of {', '.join(CHECKS)}; all if none is named")
    parser.add_argument("--points", type=int, help="questions a check; its share of the 2,000 if not given")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop asking after this time")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    chosen = [CHECKS[name] for name in given.checks or CHECKS]
    until = time.monotonic() + given.seconds
    for check in chosen:
        run(check, given.points or check.points, given.out, until)
    answers = [a for check in chosen for a in read(check, given.out)]
    print("\n".join([table(answers), "", statuses(answers), "", *beyond(answers)]))


if __name__ == "__main__":
    main()
