"""A worker: a process that reads questions as lines of JSON and writes the events of their answers as lines of JSON.

It knows nothing of the network. What the library prints goes to standard error, so that it cannot mix with answers, and
when the server goes away, so does the worker, in the middle of whatever it computes.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, TextIO

from needlepoint.core.errors import NeedlepointError, brief
from needlepoint.core.text.jsonio import plain

NO_MEMORY = "this needs more memory than there is; ask for something smaller."


def main() -> None:
    """Answer questions until standard input is closed."""
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    settings = json.loads(lines.get())
    try:
        warm(settings)
        _say(out, {"event": "ready"})
    except NeedlepointError as error:
        _say(out, {"event": "broken", "sentence": brief(str(error))})
    while True:
        respond(json.loads(lines.get()), tuple(settings["folders"]), out)


def _listen(lines: queue.Queue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)  # the server has gone; nobody waits for what is being computed


def warm(settings: dict[str, Any]) -> None:
    """Import what most answers need, and run the user's theory file; kernels come from the user's cache folder."""
    import needlepoint as ndl
    from needlepoint.cli.options import run_activations

    ndl.use_cache()
    run_activations(None if settings["theory"] is None else Path(settings["theory"]))
    _ = ndl.predict, ndl.contest, ndl.simulate


def respond(document: Any, folders: tuple[str, ...], out: TextIO) -> None:
    """Answer one question; the last event is "done", "refused" or "failed"."""
    from needlepoint.explorer.questions.asking import read

    try:
        read(document).answer(lambda event: _say(out, event), folders)
        _say(out, {"event": "done"})
    except NeedlepointError as error:
        _say(out, {"event": "refused", "sentence": brief(str(error))})
    except MemoryError:
        _say(out, {"event": "refused", "sentence": NO_MEMORY})
    except Exception as error:
        traceback.print_exc()
        if "RESOURCE_EXHAUSTED" in str(error):
            _say(
                out,
                {"event": "refused", "sentence": "this needs more memory than there is; ask for something smaller."},
            )
        else:
            sentence = f"this is a defect of needlepoint ({type(error).__name__}); the terminal shows where."
            _say(out, {"event": "failed", "sentence": sentence})


def _say(out: TextIO, event: dict[str, Any]) -> None:
    out.write(json.dumps(plain(event), allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
