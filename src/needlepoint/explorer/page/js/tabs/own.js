// Your own theory: tasks and models of the file that the explorer was started with, asked as on the command line.

import { Asking } from "../asking.js";
import { Chart, colour, logTicks, trusted } from "../chart.js";
import { Code, number, python } from "../code.js";
import { panel, selection, slider, words } from "../controls.js";
import { fill, h, within } from "../dom.js";
import { spaced } from "./maps.js";

export const own = {
  id: "own",
  title: "Your own theory",
  question: "What does a theory of your own say?",
  fields: {
    task: { default: "", text: true },
    model: { default: "", text: true },
    learner: { default: "Ridge(alpha=2, lam=0.5)", text: true },
    over: { default: "learner.alpha", text: true },
    lo: { default: 0.5, lo: 1e-3, hi: 1e3, log: true },
    hi: { default: 8, lo: 1e-3, hi: 1e3, log: true },
    points: { default: 6, lo: 2, hi: 24, whole: true },
  },
  mount: (root, context) => new Own(root, context),
};

class Own {
  constructor(root, { state, ask, own: mine }) {
    Object.assign(this, { state, mine, points: [] });
    this.asking = new Asking(ask);
    const overs = ["learner.alpha", "learner.lam", "task.snr", "task.noise", "task.noise_var"];
    this.controls = panel(
      words(state, "task", "task"),
      words(state, "model", "model"),
      words(state, "learner", "learner"),
      selection(state, "over", "curve over", overs.map((o) => [o, o])),
      slider(state, "lo", "from"),
      slider(state, "hi", "to"),
      slider(state, "points", "points"),
    );
    this.one = h("button", { type: "button", className: "main", id: "predict", onclick: () => this.predict() }, "predict");
    this.many = h("button", { type: "button", id: "curve", onclick: () => this.curve() }, "curve");
    this.chart = new Chart("A theory of your own");
    this.answer = h("pre", { id: "answer", tabIndex: 0 });
    this.said = h("p", { className: "verdict", id: "verdict", "aria-live": "polite" });
    this.code = new Code();
    fill(root, this.said, h("div", { className: "view" }, this.controls.element, h("div", {}, this.listing(), h("div", { className: "row" }, this.one, this.many, this.asking.element), this.answer, this.chart.element, this.code.element)));
    this.answer.hidden = true;
  }

  leave() {
    this.asking.cancel();
  }

  get texts() {
    const { task, model, learner } = this.state.values;
    const first = (family, other) => this.mine[family][0]?.example ?? (this.mine[family][0] ? `${this.mine[family][0].name}()` : other);
    const activation = this.mine.activation[0] ? `KeyValueAttention(${first("activation", "")})` : "KeyValueAttention(Softmax())";
    return { task: task || first("task", "SpikedSLR(tokens=2, snr=2, noise=0.3)"), model: model || first("model", activation), learner };
  }

  get file() {
    return [...this.mine.task, ...this.mine.model, ...this.mine.activation][0]?.module ?? "my_theory";
  }

  listing() {
    const rows = ["task", "model", "activation"].flatMap((family) => this.mine[family].map((one) => h("tr", {}, h("td", {}, family), h("td", {}, one.name), h("td", {}, one.fields.filter((name) => name !== "source").join(", ")))));
    if (rows.length) return h("table", { id: "own" }, h("thead", {}, h("tr", {}, ["", "name", "fields"].map((t) => h("th", {}, t)))), h("tbody", {}, rows));
    return h("p", { className: "small" }, "Nothing of your own is here: start the page as ", h("code", {}, "needlepoint explore --theory my_theory.py"), ". What the library has can be asked below all the same.");
  }

  update() {
    this.controls.show();
    const texts = this.texts;
    for (const name of ["task", "model"]) document.getElementById(`text-${name}`).value ||= texts[name];
    const key = JSON.stringify(texts);
    if (key !== this.key) this.points = [];
    this.key = key;
    this.write();
    this.draw();
  }

  predict() {
    this.asking.run({ kind: "predict", ...this.texts }, (event) => {
      if (event.event !== "prediction") return;
      this.answer.hidden = false;
      this.answer.textContent = event.text;
      fill(this.said, event.risk ? ["risk ", h("b", {}, within(...event.risk)), event.trusted ? "; trusted." : `; not to be trusted (${event.status}).`] : event.status);
      this.said.dataset.risk = event.risk?.[0];
    }, { label: "solving" });
  }

  curve() {
    const { over, lo, hi, points } = this.state.values;
    this.points = [];
    const question = { kind: "map", ...this.texts, x: over, x_values: spaced(Math.min(lo, hi), Math.max(lo, hi), points) };
    this.asking.run(question, (event) => {
      if (event.event === "point") this.points.push(event);
      this.chart.element.dataset.points = this.points.length;
      this.draw();
    }, { label: "the curve" });
  }

  draw() {
    this.chart.element.hidden = !this.points.length;
    const curve = this.points.filter((p) => p.risk).map((p) => ({ x: p.at[0], y: p.risk[0], trusted: p.trusted, text: within(...p.risk) }));
    this.chart.draw(trusted(curve, { name: "risk", colour: colour(0) }), { x: { title: this.state.values.over, type: "log", tickvals: logTicks(Math.min(this.state.values.lo, this.state.values.hi), Math.max(this.state.values.lo, this.state.values.hi)) }, y: { title: "risk" } });
    const missing = this.points.filter((p) => p.message);
    if (missing.length) fill(this.said, h("span", { className: "problem" }, missing[0].message));
  }

  write() {
    const { task, model, learner } = this.texts;
    const { over, lo, hi, points } = this.state.values;
    this.code.show(
      `import numpy as np\nimport needlepoint as ndl\nfrom ${this.file} import *  # your file\n\nquestion = ${python(task)}, ${python(model)}, ${python(learner)}\nprint(ndl.predict(*question))\nstudy = ndl.sweep(*question, over={"${over}": list(np.geomspace(${number(lo)}, ${number(hi)}, ${points}))})\nndl.plot(study)`,
      `needlepoint predict --theory ${this.file}.py --task "${task}" \\\n    --model "${model}" \\\n    --learner "${learner}"`,
    );
  }
}
