"""What a user waits for at the first call: CPU seconds of a whole process, beside the bars that were set.

    python benchmarks/first_call.py [repeats]

Each question is asked in new processes: cold (nothing compiled before), from a warm cache of compiled kernels, and
steady (asked again in the same process). The least of `repeats` is printed: other work on the machine only adds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

QUESTIONS = {
    "ridge, 2 tokens": ("SpikedSLR(2, snr=3)", "KeyValueAttention(ndl.Softmax())", "Ridge(6, 0.3)"),
    "ridge, 3 tokens": ("SpikedSLR(3, snr=3)", "KeyValueAttention(ndl.Softmax())", "Ridge(6, 0.3)"),
    "indexed, 2 tokens": ("AttentionIndexed(2, ndl.Wishart(0.5), 0.5)", "TiedAttention()", "Ridge(0.5, 0.05)"),
    "indexed, 4 tokens": ("AttentionIndexed(4, ndl.Wishart(0.5), 0.5)", "TiedAttention()", "Ridge(0.5, 0.05)"),
}

BARS = {
    "ridge, 2 tokens": (3.5, 1.5),
    "ridge, 3 tokens": (5.0, 2.0),
    "indexed, 2 tokens": (3.5, 1.5),
    "indexed, 4 tokens": (8.0, None),
}
"""CPU seconds cold and warm; of four tokens warm may be ABOVE its steady time."""

ABOVE = 2.0

CODE = """
import json, sys, time
import needlepoint as ndl
if len(sys.argv) > 1:
    ndl.use_cache(sys.argv[1])
question = {}
ndl.predict(*question)
first = time.process_time()
ndl.predict(*question)
print(json.dumps([first, time.process_time() - first]))
"""


def seconds(question: tuple[str, ...], *cache: str) -> tuple[float, float]:
    """CPU seconds until the first answer, and of the second."""
    specs = ", ".join(f"ndl.{spec}" for spec in question)
    given = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMP", "NEEDLEPOINT"))}
    code = CODE.replace("{}", specs, 1)
    done = subprocess.run([sys.executable, "-c", code, *cache], env=given, check=True, capture_output=True, text=True)
    first, again = json.loads(done.stdout)
    return first, again


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'question':<18} {'cold':>6} {'bar':>5} {'warm':>6} {'bar':>5} {'steady':>7}")
    for name, question in QUESTIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            seconds(question, folder)
            cold = min(seconds(question)[0] for _ in range(repeats))
            rows = [seconds(question, folder) for _ in range(repeats)]
        warm, steady = min(first for first, _ in rows), min(again for _, again in rows)
        bar, warm_bar = BARS[name]
        warm_bar = steady + ABOVE if warm_bar is None else warm_bar
        missed = " missed" if cold > bar or warm > warm_bar else ""
        print(f"{name:<18} {cold:6.2f} {bar:5.1f} {warm:6.2f} {warm_bar:5.1f} {steady:7.2f}{missed}", flush=True)


if __name__ == "__main__":
    main()
