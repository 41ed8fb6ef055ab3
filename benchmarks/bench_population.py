"""Attention at infinite data: one risk, one optimum, the risk-against-snr figure, and cost against length."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.papers.figures import figure
from needlepoint.papers.runner import compute
from needlepoint.theory.location.moments import place_race

OUT = Path(__file__).parent / "out"
ATTENTIONS = {
    "softmax": ndl.KeyValueAttention(ndl.Softmax()),
    "softplus": ndl.KeyValueAttention(ndl.Softplus()),
    "erf": ndl.KeyValueAttention(ndl.Erf(scale=1.0, shift=-0.5, offset=1.0)),
    "linear": ndl.KeyValueAttention(ndl.Linear()),
}
TASKS = {
    "spiked": lambda n: ndl.SpikedSLR(n, snr=2.0),
    "max": lambda n: ndl.MaxSLR(n, snr=2.0),
    "max, snr inf": lambda n: ndl.MaxSLR(n, snr=math.inf),
}
ON = ndl.Overlaps(1.3, 0.9, key_sq=1.3**2)
OFF = ndl.Overlaps(0.9, 0.8, 0.1, -0.2, 0.15, key_sq=1.4, value_sq=1.1)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_risk_at_1000_tokens(benchmark, report, name, task):
    """Wanted: under 50 ms after compilation. On the manifold, off it, and both of the risk's own error estimates."""
    question = (TASKS[task](1000), ATTENTIONS[name])
    seconds = []
    for overlaps in (ON, OFF):
        ndl.population_risk(*question, overlaps)
        seconds.append(_best(ndl.population_risk, *question, overlaps))
    benchmark.pedantic(ndl.population_risk, (*question, ON), rounds=5)
    report(f"{name}, {task}, 1,000 tokens: {1e3 * seconds[0]:.1f} ms on the manifold, {1e3 * seconds[1]:.1f} ms off it")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_optimum(benchmark, report, name, task):
    """Wanted: under 1 s after compilation, with nothing kept from the same task."""
    model = ATTENTIONS[name]
    if name == "erf":
        model = ndl.KeyValueAttention(ndl.Erf(scale=1.0, shift=None, offset=1.0))

    def cold():
        for kept in (place_race.winner_density, place_race._winner_rule, place_race.race):
            kept.cache_clear()
        return ndl.predict(TASKS[task](3), model, ndl.Population(), throw=False)

    cold()
    benchmark.pedantic(cold, rounds=3)
    report(f"optimum of {name}, {task}, 3 tokens: {1e3 * _best(cold):.0f} ms")


def test_snr_figure(benchmark, clock, report):
    """Wanted: under 90 s, four attentions, two tasks, 40 points, without the simulated points."""
    points = [p for p in figure("softmax-snr").points("full") if p.verb != "simulate"]
    compute(points[:20])
    seconds, _ = clock(compute, points)
    benchmark.pedantic(compute, (points[:20],), rounds=1)
    report(f"risk against snr, {len(points)} points: {seconds:.1f} s CPU")


def test_cost_against_length(benchmark, report):
    """Seconds of one risk against the number of tokens, by integrals and by quasi-Monte-Carlo."""
    lengths = [2, 4, 10, 30, 100, 300, 1000, 3000, 10_000]
    rows = []
    for task, law in TASKS.items():
        for method, longest in (("kernel", 10_000), ("qmc", 100)):
            for n in (n for n in lengths if n <= longest):
                call = (law(n), ATTENTIONS["softmax"], ON, method)
                risk = ndl.population_risk(*call)
                rows.append([task, method, n, _best(ndl.population_risk, *call), risk.value, risk.error])
    OUT.mkdir(exist_ok=True)
    with (OUT / "cost-against-length.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [["task", "method", "tokens", "seconds", "risk", "error"], *rows]
        )
    _plot(rows).savefig(OUT / "cost-against-length.png", dpi=150)
    benchmark.pedantic(ndl.population_risk, (TASKS["max"](10_000), ATTENTIONS["softmax"], ON), rounds=3)
    for task in TASKS:
        mine = {(m, n): s for t, m, n, s, *_ in rows if t == task}
        kernel = [mine["kernel", n] for n in (2, 100, 10_000)]
        report(
            f"softmax, {task}: integrals {', '.join(f'{1e3 * s:.1f}' for s in kernel)} ms at 2, 100, 10,000 tokens; "
            f"qmc {1e3 * mine['qmc', 2]:.1f}, {1e3 * mine['qmc', 100]:.1f} ms at 2, 100"
        )


def _best(function, *args, rounds=5):
    import time

    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        function(*args)
        seconds.append(time.process_time() - start)
    return min(seconds)


def _plot(rows):
    from needlepoint.plotting.curves import Curve, CurvePanel, curve_panels

    shown = []
    for task in TASKS:
        curves = []
        for colour, method in enumerate(("kernel", "qmc")):
            mine = [(n, 1e3 * s) for t, m, n, s, *_ in rows if (t, m) == (task, method)]
            label = {"kernel": "integrals (error below 1e-7)", "qmc": "quasi-Monte-Carlo (error about 1e-4)"}[method]
            curves.append(Curve(label, *np.array(mine).T.tolist(), colour=colour, line="o-"))
        shown.append(CurvePanel(task, "tokens", curves))
    return curve_panels(shown, "CPU milliseconds a risk", (0.3, 1e4))
