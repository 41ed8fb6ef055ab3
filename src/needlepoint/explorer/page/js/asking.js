// A line that says what is under way: a bar, a button that stops it, and the sentence of what went wrong.

import { fill, h } from "./dom.js";

export class Asking {
  constructor(ask) {
    this.ask = ask;
    this.bar = h("progress", { max: 1, "aria-label": "progress" });
    this.stop = h("button", { type: "button", onclick: () => this.cancel() }, "stop");
    this.said = h("span", { "aria-live": "polite" });
    this.element = h("div", { className: "state asking" }, this.bar, this.stop, this.said);
    this.show(false);
  }

  // Asks, ending what was asked before. With `gentle` the question before is let finish first, so that its worker stays
  // warm, and of those that come meanwhile only the last is asked: for sliders.
  async run(question, onEvent, { gentle = false, label = "computing" } = {}) {
    if (gentle && this.controller) {
      this.next = [question, onEvent, { gentle, label }];
      return;
    }
    this.cancel();
    const controller = (this.controller = new AbortController());
    this.next = null;
    this.show(true, label);
    const take = (event) => {
      if (this.controller !== controller) return;
      if (event.event === "started") this.element.dataset.worker = event.worker;
      if (event.event === "progress") this.bar.value = event.done;
      else onEvent(event);
    };
    try {
      await this.ask(question, { onEvent: take, signal: controller.signal });
      if (this.controller === controller) this.show(false);
    } catch (error) {
      if (this.controller === controller) this.show(false, error.name === "AbortError" ? "stopped" : "", error);
    } finally {
      if (this.controller === controller) {
        this.controller = null;
        if (this.next) this.run(...this.next);
      }
    }
  }

  show(busy, text = "", error = null) {
    this.bar.hidden = this.stop.hidden = !busy;
    if (busy) this.bar.removeAttribute("value");
    this.element.dataset.busy = busy;
    fill(this.said, error && error.name !== "AbortError" ? h("span", { className: "problem" }, error.message) : text);
  }

  cancel() {
    this.next = null;
    if (!this.controller) return;
    this.controller.abort();
    this.controller = null;
    this.show(false, "stopped");
  }
}
