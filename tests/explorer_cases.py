"""Valid questions of every kind, and ways to spoil them, for tests of what the server refuses."""

import copy
import random

VALID = [
    {"kind": "hello"},
    {
        "kind": "best",
        "task": "SpikedSLR(tokens=2, snr=2.0, noise=0.3)",
        "model": "KeyValueAttention(Softmax())",
        "alphas": [0.75, 4, 12.0],
    },
    {
        "kind": "penalties",
        "task": "MaxSLR(tokens=2, snr=2.0, noise=0.3)",
        "model": "KeyValueAttention(Linear())",
        "alpha": 4,
        "lam": [0.2, 0.5],
        "factors": [0.1, 1, 10],
    },
    {
        "kind": "train",
        "task": "SpikedSLR(tokens=2, snr=2.0, noise=0.3)",
        "model": "KeyValueAttention(Softmax())",
        "learner": "Ridge(alpha=4, lam='optimal')",
        "d": 100,
        "repeats": 8,
    },
    {
        "kind": "predict",
        "task": "SpikedSLR(tokens=2, snr=2.0)",
        "model": "KeyValueAttention(Softmax())",
        "learner": "Population()",
    },
]

WRONG = [
    None,
    True,
    [],
    {},
    -1,
    0,
    1e999,
    10**400,
    "",
    "x" * 5000,
    "\x00",
    "../../etc/passwd",
    "__import__('os').system('true')",
    "().__class__.__mro__",
    "KeyValueAttention(Softmax)",
    "SpikedSLR(tokens=10**9, snr=-1)",
    "(" * 90,
    [[1]],
    ["KeyValueAttention(Softmax())"] * 100,
    {"type": "SpikedSLR"},
    "\ud800",
    0.1,
    "2**9999999",
]


def spoiled(draw: random.Random):
    """A question, most often no longer valid: fields removed, added or replaced, texts cut and mixed."""
    question = copy.deepcopy(draw.choice(VALID))
    for _ in range(draw.randint(1, 3)):
        names = list(question) or ["kind"]
        name, what = draw.choice(names), draw.randrange(6)
        value = question.get(name)
        if what == 0:
            question.pop(name, None)
        elif what == 1:
            question[draw.choice(["x", "kind", "task", "__proto__", "d" * 300])] = draw.choice(WRONG)
        elif what == 2 and isinstance(value, str) and value:
            place = draw.randrange(len(value))
            junk = draw.choice(["(", ")", "'", ",", "=", "nan", "inf", "\n", "é", "**", "lambda", ";"])
            question[name] = value[:place] + junk + value[place + draw.randint(0, 3) :]
        elif what == 3 and isinstance(value, list):
            question[name] = [*value, draw.choice(WRONG)]
        elif what == 4 and isinstance(value, (int, float)) and not isinstance(value, bool):
            question[name] = draw.choice([-value, value * 10**9, 0.37, str(value)[:20], [value]])
        else:
            question[name] = draw.choice(WRONG)
    return question
