"""From the lines of the file to the table of shares, and to the list of what is beyond three errors."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator

import numpy as np
from benchmarks.honesty.record import Answer, Row


def table(answers: Iterable[Answer]) -> str:
    """Rule and metric, numbers tested, shares beyond one and three errors, the largest, seconds of each side."""
    lines = [
        "| check | metric | numbers | tested | beyond 1 | beyond 3 | largest | s | s of the reference |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[Row]] = collections.defaultdict(list)
    times: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    for a in answers:
        times[a.check].append((a.seconds, a.reference_seconds))
        for row in a.rows:
            groups[a.check, row.metric].append(row)
    shown: set[str] = set()
    for (check, metric), rows in groups.items():
        tested = [row.ratio for row in rows if row.tested]
        shares = [f"{100 * sum(r > k for r in tested) / max(1, len(tested)):.1f} %" for k in (1, 3)]
        seconds = [f"{np.median([t[i] for t in times[check]]):.2g}" for i in (0, 1)] if check not in shown else ["", ""]
        shown.add(check)
        largest = f"{max(tested, default=0.0):.2g}"
        cells = [check, metric, str(len(rows)), str(len(tested)), *shares, largest, *seconds]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def beyond(answers: Iterable[Answer], errors: float = 3.0) -> Iterator[str]:
    """What is further off than that, as calls that reproduce it."""
    for a in answers:
        for row in a.rows:
            if row.tested and row.ratio > errors:
                yield (
                    f"{a.check} {a.index}: {row.metric} {row.value:.12g} +- {row.error:.2g}, reference "
                    f"{row.reference:.12g} +- {row.reference_error:.1g} ({row.ratio:.3g} errors; {a.status}): {a.call}"
                )


def statuses(answers: Iterable[Answer]) -> str:
    """How the answers of each check ended, and what was not tested."""
    lines = []
    groups: dict[str, list[Answer]] = collections.defaultdict(list)
    for a in answers:
        groups[a.check].append(a)
    for check, found in groups.items():
        ends = collections.Counter(a.status.partition(":")[0] for a in found)
        told = ", ".join(f"{n} {name}" for name, n in ends.most_common())
        untested = sum(not row.tested for a in found for row in a.rows)
        seconds = sum(a.seconds for a in found), sum(a.reference_seconds for a in found)
        lines.append(f"{check}: {told}; {untested} numbers untested; {seconds[0]:.0f} s + {seconds[1]:.0f} s")
    return "\n".join(lines)
