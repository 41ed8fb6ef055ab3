// "Check this": training at the chosen point, streaming seed by seed, beside the prediction.

import { ink } from "../chart.js";
import { number } from "../code.js";
import { digits, fill, h, within } from "../dom.js";
import { taskText } from "../tasks.js";

export class Check {
  constructor(view, ask) {
    Object.assign(this, { view, ask, measured: null, controller: null });
    this.size = h("select", { id: "check-d", "aria-label": "dimension" }, [50, 100, 200, 400].map((d) => h("option", { value: d, selected: d === 100 }, `d = ${d}`)));
    this.who = h("select", { id: "check-model", "aria-label": "model" }, h("option", { value: "" }, "the best"), view.everyone.map(({ name }) => h("option", { value: name }, name)));
    this.start = h("button", { type: "button", className: "main", id: "check", onclick: () => this.run() }, "Check this by training");
    this.cancel = h("button", { type: "button", id: "check-cancel", disabled: true, onclick: () => this.stop() }, "cancel");
    this.bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "training" });
    this.said = h("span", { id: "check-said", "aria-live": "polite" });
    const note = "Training has a finite d: its distance to the limit shrinks like 1/d, so a large z at a small d is no contradiction yet.";
    this.element = h("div", {}, h("div", { className: "row" }, this.start, this.who, this.size, this.cancel, this.bar, this.said), h("p", { className: "small" }, note));
  }

  forget() {
    if (this.measured?.key !== this.key()) {
      this.stop();
      this.measured = null;
      this.said.textContent = "";
    }
  }

  key() {
    const { penalty, without, ...v } = this.view.state.values;
    return JSON.stringify(v);
  }

  async run() {
    this.stop();
    const controller = (this.controller = new AbortController());
    const v = this.view.state.values;
    const one = this.view.everyone.find(({ name }) => name === this.who.value) ?? this.view.winner;
    const question = { kind: "train", task: taskText(v), model: one.model, learner: `Ridge(alpha=${number(v.alpha)}, lam='optimal')`, d: Number(this.size.value), repeats: 24 };
    this.measured = { key: this.key(), one };
    this.busy(true, `training ${one.name}: starting`);
    let predicted = null;
    const onEvent = (event) => {
      if (this.controller !== controller) return;
      if (event.event === "started") this.element.dataset.worker = event.worker;
      if (event.event === "prediction") predicted = event.risk;
      if (event.event === "note") fill(this.said, event.sentence);
      if (event.event === "progress") this.bar.value = event.done;
      if (event.event === "measured") this.take(event, one, predicted);
    };
    try {
      await this.ask(question, { onEvent, signal: controller.signal });
    } catch (error) {
      if (error.name !== "AbortError") fill(this.said, h("span", { className: "problem" }, error.message));
    } finally {
      if (this.controller === controller) this.busy(false);
    }
  }

  take(event, one, predicted) {
    const { value, error, z } = event.metrics.risk;
    Object.assign(this.measured, { value, error, z, d: event.d, repeats: event.repeats });
    fill(this.said, `${one.name} trained at d = ${event.d}, ${event.repeats} seeds: risk ${within(value, error)}, predicted ${within(...predicted)}, z = ${digits(z, 2)}`);
    Object.assign(this.element.dataset, { repeats: event.repeats, z });
    this.view.draw();
  }

  busy(on, text) {
    this.bar.hidden = !on;
    this.bar.value = 0;
    this.cancel.disabled = !on;
    this.start.disabled = on;
    this.element.dataset.busy = on;
    if (text) fill(this.said, text);
  }

  stop() {
    if (!this.controller) return;
    this.controller.abort();
    this.controller = null;
    this.busy(false, this.measured?.repeats ? this.said.textContent + " (stopped)" : "stopped");
  }

  // The measured point with its standard error, for the chart of risk against alpha.
  traces(alpha) {
    const m = this.measured;
    if (!m?.repeats || m.key !== this.key()) return [];
    return [{ x: [alpha], y: [m.value], type: "scatter", mode: "markers", name: `${m.one.name}, trained`, error_y: { type: "data", array: [m.error], color: ink("ink"), thickness: 1.6, width: 5 }, marker: { symbol: "diamond-open", size: 11, color: ink("ink") }, hovertemplate: `trained at d = ${m.d}: %{y:.4g}, z = ${digits(m.z, 2)}<extra></extra>` }];
  }
}
