"""The explorer in a notebook: the same component, which asks over messages to the kernel instead of over HTTP."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from needlepoint.core.errors import InvalidParameter, NeedlepointError, brief
from needlepoint.explorer.bundle import KATEX, PAGE, PLOTLY, bundled
from needlepoint.explorer.questions.asking import read
from needlepoint.explorer.settings import Settings
from needlepoint.explorer.workers.handle import LAST

START = """
function overKernel(model) {
  const waiting = new Map();
  let count = 0;
  model.on("msg:custom", (message) => waiting.get(message.id)?.(message.event));
  return function ask(question, { onEvent = () => {}, signal } = {}) {
    const id = (count += 1);
    return new Promise((resolve, reject) => {
      const found = [];
      const settle = (action, value) => {
        waiting.delete(id);
        action(value);
      };
      waiting.set(id, (event) => {
        try {
          take(event, found, onEvent);
          if (event.event === "done") settle(resolve, found);
        } catch (error) {
          settle(reject, error);
        }
      });
      signal?.addEventListener("abort", () => {
        model.send({ id, cancel: true });
        settle(reject, new DOMException("cancelled", "AbortError"));
      });
      model.send({ id, question });
    });
  };
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "needlepoint";
  el.append(root);
  const table = new Table(JSON.parse(model.get("table")));
  mount(root, { ask: overKernel(model), table, address: false, initial: model.get("initial") });
}
export default { render };
"""


@functools.cache
def script() -> str:
    """Return the module of the widget: plotly and KaTeX with the page's own modules, each once in a notebook."""
    plotly, katex = (path.read_text(encoding="utf-8") for path in (PLOTLY, KATEX))
    loading = f"if (!globalThis.Plotly) {{\n{plotly}\n}}\nif (!globalThis.katex) {{\n{katex}\n}}\n"
    return loading + bundled("ask.js", "table.js", "explorer.js") + START


def widget(initial: dict[str, Any], settings: Settings) -> Any:
    """Return the widget, opened at the state `initial`; its questions are answered by worker processes."""
    try:
        anywidget: Any = importlib.import_module("anywidget")
        traitlets: Any = importlib.import_module("traitlets")
    except ImportError:
        raise InvalidParameter("explore in a notebook needs anywidget: pip install 'needlepoint[notebook]'.") from None
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    table = (PAGE / "table" / "best.json").read_text(encoding="utf-8")
    fields = {
        "_esm": script(),
        "_css": style,
        "initial": traitlets.Dict(initial).tag(sync=True),
        "table": traitlets.Unicode(table).tag(sync=True),
    }
    made = type("ExplorerWidget", (anywidget.AnyWidget,), fields)()
    answering = Answering(made.send, settings)
    made.on_msg(lambda _, message, __: answering.take(message))
    return made


class Answering:
    """Answers the messages of one widget, each question in a worker process; a cancelled one is killed."""

    def __init__(self, send: Any, settings: Settings):
        self.send, self.settings = send, settings
        self.running: dict[int, subprocess.Popen[str] | None] = {}
        self.idle: list[subprocess.Popen[str]] = []
        self.lock = threading.Lock()
        self.slots = threading.Semaphore(settings.limits.workers)

    def take(self, message: Any) -> None:
        """Take a message of the page: a question, or that one is cancelled."""
        if not isinstance(message, dict) or not isinstance(message.get("id"), int):
            return None
        number = message["id"]
        if message.get("cancel"):
            with self.lock:
                process = self.running.pop(number, None)
            if process is not None:
                self._kill(process)
            return None
        with self.lock:
            if len(self.running) >= self.settings.limits.queue:
                return self._say(number, {"event": "refused", "sentence": "Too many questions wait; ask again."})
            self.running[number] = None
        threading.Thread(target=self._answer, args=(number, message.get("question")), daemon=True).start()
        return None

    def _say(self, number: int, event: dict[str, Any]) -> None:
        self.send({"id": number, "event": event})

    def _answer(self, number: int, document: Any) -> None:
        try:
            read(document)
        except NeedlepointError as error:
            self.running.pop(number, None)
            return self._say(number, {"event": "refused", "sentence": brief(str(error))})
        with self.slots:
            with self.lock:
                if number not in self.running:
                    return None
                process = self.idle.pop() if self.idle else self._start()
                self.running[number] = process
            return self._stream(number, process, document)

    def _stream(self, number: int, process: subprocess.Popen[str], document: Any) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._say(number, {"event": "started", "worker": process.pid})
        process.stdin.write(json.dumps(document) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                continue
            if number in self.running:
                self._say(number, event)
            if event["event"] in LAST:
                with self.lock:
                    self.running.pop(number, None)
                    self.idle.append(process)
                return
        self.running.pop(number, None)

    def _start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "needlepoint.explorer.workers.worker"]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        assert process.stdin is not None
        process.stdin.write(json.dumps(self.settings.for_workers()) + "\n")
        process.stdin.flush()
        return process

    def _kill(self, process: subprocess.Popen[str]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """Kill every worker."""
        with self.lock:
            everyone = [*self.idle, *filter(None, self.running.values())]
            self.idle, self.running = [], {}
        for process in everyone:
            self._kill(process)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
