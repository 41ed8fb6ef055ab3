"""Study files and calls that the tests of the commands sweep and study share."""

import pytest

HEAD = """
task = "SpikedSLR(tokens=2, snr=1, noise=0.3)"
model = "KeyValueAttention(Softmax())"
learner = "Population()"
"""


OVER = """
[over]
"task.snr" = [1, 2, 5]
"""


ALSO = """
[also]
d = 5
repeats = 2
samples = 50
at = { "task.snr" = [1, 5] }
"""


HARD = """
task = "MaxSLR(tokens=2, snr=1)"
model = "KeyValueAttention(Softmax())"
learner = "Population()"
over = { "task.snr" = [1.0, inf] }
"""


@pytest.fixture
def written(tmp_path):
    """A study file with this text."""

    def inner(text, name="study.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return inner


def refused(answer, phrase):
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert err.startswith("needlepoint: ")
    assert phrase in err
