"""Real transformers: all heads of a model with their nulls, and a truncation (make fixtures fetches the models)."""

import resource

import pytest

import needlepoint as ndl
from needlepoint.checkpoints.examples import tiny_checkpoint
from needlepoint.checkpoints.fixtures import FIXTURES, home
from needlepoint.checkpoints.heads.report import null_numbers


def fixture(name):
    place = FIXTURES[name].place(home())
    if not place.exists():
        pytest.skip(f"{name} is not there: make fixtures")
    return place


@pytest.mark.parametrize(("name", "count", "seconds"), [("minilm", 72, 3.0), ("smollm2", 270, 10.0)])
def test_heads_with_nulls(benchmark, name, count, seconds):
    """Opening, all heads, and the null with its draws; the limits are those of the issue, on CPU time."""
    place = fixture(name)

    def whole():
        null_numbers.cache_clear()
        return ndl.heads(ndl.read_checkpoint(place))

    report = benchmark.pedantic(whole, rounds=3)
    assert len(report.heads) == count
    assert benchmark.stats.stats.min < seconds


def test_memory_is_flat_in_layers(benchmark, tmp_path):
    """Fifty times the layers take no more memory than the numbers that are kept of each head."""
    few, many = (ndl.read_checkpoint(tiny_checkpoint(tmp_path / str(n), "llama", layers=n, heads=32)) for n in (4, 200))
    ndl.heads(few)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = benchmark.pedantic(ndl.heads, args=(many,), rounds=1)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # kilobytes
    assert grown < 20 * len(report.heads)


def test_truncation_of_minilm(benchmark):
    """Calibration on 60 sentences: moments, maps and measured losses at 13 ranks of 72 heads."""
    checkpoint = ndl.read_checkpoint(fixture("minilm"))
    text = [
        f"The {a} man {b} to the {c} every morning and read the newspaper."
        for a in ("old", "young", "tall", "kind")
        for b in ("walked", "ran", "drove", "went", "came")
        for c in ("harbour", "station", "market")
    ]
    cut = benchmark.pedantic(ndl.truncation, args=(checkpoint,), kwargs={"text": text}, rounds=2)
    assert len(cut.heads) == 72
