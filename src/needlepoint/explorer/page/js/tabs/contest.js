// The first screen: risk against alpha for every model at its own best penalty, and against the penalty at one alpha.

import { Chart, colour, ink, trusted } from "../chart.js";
import { Code, number, python } from "../code.js";
import { panel, selection, slider } from "../controls.js";
import { debounced, digits, fill, h, within } from "../dom.js";
import { tex } from "../math.js";
import { contestants, taskText } from "../tasks.js";
import { live, shown, verdict } from "../verdict.js";
import { known, Work } from "../work.js";
import { Check } from "./check.js";

const ALPHAS = [0.75, 1.1, 1.6, 2.3, 3.4, 5, 7.5, 12];
const FACTORS = [0.05, 0.1, 0.2, 0.35, 0.6, 1, 1.6, 2.8, 5, 10, 20];
const LAWS = {
  SpikedSLR: String.raw`y=\langle x_{i^*},v^*\rangle+\epsilon\,\xi,\qquad x_{i}\sim\mathcal N\!\big(\sqrt{\mu}\,k^*\,\mathbb 1[i=i^*],\,I\big),\qquad i^*\sim\mathrm{Unif}\{1..L\}`,
  MaxSLR: String.raw`y=\langle x_{i^*},v^*\rangle+\epsilon\,\xi,\qquad x_i\sim\mathcal N(0,I),\qquad P(i^*=i)\propto e^{\sqrt{\mu}\,\langle x_i,k^*\rangle}`,
};
const MODEL = String.raw`f(X)=\sum_{i=1}^{L}\sigma(Xk)_i\,\langle x_i,v\rangle,\qquad (k,v)=\arg\min\ \tfrac12\sum_{\mu=1}^{\alpha d}\big(y_\mu-f(X_\mu)\big)^2+\tfrac{r_k}2\|k\|^2+\tfrac{r_v}2\|v\|^2`;

export const contest = {
  id: "contest",
  title: "Which is best",
  question: "Which attention is best, and by how much?",
  fields: {
    task: { default: "SpikedSLR", options: ["SpikedSLR", "MaxSLR"] },
    tokens: { default: 2, lo: 2, hi: 6, whole: true },
    snr: { default: 2, lo: 0.25, hi: 16, log: true },
    noise: { default: 0.3, lo: 0.05, hi: 1, log: true },
    alpha: { default: 3.4, lo: 0.5, hi: 20, log: true },
    penalty: { default: 1, lo: 0.05, hi: 20, log: true },
    without: { default: "", text: true },
  },
  mount: (root, context) => new Contest(root, context),
};

class Contest {
  constructor(root, { state, ask, table, own }) {
    Object.assign(this, { state, table, everyone: contestants(own) });
    this.bayes = { name: "Bayes", model: "None", index: -1 };
    this.work = new Work(ask, () => this.progress());
    this.controls = panel(
      selection(state, "task", "task", [["SpikedSLR", "spiked: one token is shifted"], ["MaxSLR", "max: the largest token counts"]]),
      slider(state, "tokens", "tokens", "L"),
      slider(state, "snr", "snr", String.raw`\mu`),
      slider(state, "noise", "noise", String.raw`\epsilon`),
      slider(state, "alpha", "samples / d", String.raw`\alpha`),
      slider(state, "penalty", "penalty, times the best"),
    );
    this.left = new Chart("Risk against samples, each model at its own best penalty");
    this.right = new Chart("Risk against the penalty");
    this.verdict = h("p", { className: "verdict", id: "verdict", "aria-live": "polite" });
    this.status = h("div", { className: "state", id: "state" });
    this.rows = h("div", { className: "scroll" });
    this.code = new Code();
    this.check = new Check(this, ask);
    const law = h("div", {});
    this.law = law;
    const about = h("details", {}, h("summary", {}, "equations"), law, tex(MODEL, true), this.meaning());
    const charts = h("div", { className: "charts" }, this.left.element, this.right.element);
    const content = h("div", {}, charts, this.rows, this.check.element, this.code.element, about);
    fill(root, this.verdict, this.status, h("div", { className: "view" }, this.controls.element, content));
    this.left.onClick((point) => state.set({ alpha: Number(point.x) }));
    this.right.onClick((point) => state.set({ penalty: Number(point.x) }));
    this.refine = debounced(() => this.gone || this.ask(), 350);
  }

  meaning() {
    const text = "Bayes is the least risk that any method can reach with these samples. Risk is the mean squared error on noisy test labels in the limit of large d. Dotted pieces of a curve are solved but not to be trusted: there may be many minima.";
    return h("p", { className: "small" }, text);
  }

  // The models that are not left out.
  get models() {
    const without = this.state.values.without.split(",");
    return this.everyone.filter(({ name }) => !without.includes(name));
  }

  leave() {
    this.work.cancel();
    this.check.stop();
  }

  best(contestant, alpha) {
    const question = { kind: "best", task: taskText(this.state.values), model: contestant.model, alphas: [alpha] };
    return question;
  }

  // What is known of a model at one alpha: the solver's answer if there is one, the table's value otherwise.
  point(contestant, alpha) {
    const event = known(this.best(contestant, alpha))?.find((e) => e.event === "point");
    return event ? live(event) : this.table.at(this.state.values, contestant.name, alpha);
  }

  around(contestant) {
    const best = this.point(contestant, this.state.values.alpha);
    if (!best?.lam) return null;
    const v = this.state.values;
    const factors = v.penalty === 1 || FACTORS.includes(v.penalty) ? FACTORS : [...FACTORS, v.penalty].sort((a, b) => a - b);
    return { kind: "penalties", task: taskText(v), model: contestant.model, alpha: v.alpha, lam: best.lam, factors };
  }

  // Asks for the chosen alpha first, then for what lies around its penalty, then for the rest of the curves.
  ask() {
    const redraw = () => this.draw();
    const alpha = this.state.values.alpha;
    const everyone = [...this.models, this.bayes];
    const first = everyone.map((one) => ({ question: this.best(one, alpha), take: redraw, refused: redraw }));
    const rest = ALPHAS.filter((a) => a !== alpha).flatMap((a) => everyone.map((one) => ({ question: this.best(one, a), take: redraw })));
    const pending = first.filter(({ question }) => !known(question));
    const later = () => {
      if (this.gone) return;
      const around = this.models.map((one) => this.around(one)).filter(Boolean).map((question) => ({ question, take: redraw }));
      this.work.want([...around, ...rest]);
    };
    if (pending.length === 0) return later();
    let left = pending.length;
    const settled = () => {
      this.draw();
      left -= 1;
      if (left === 0) queueMicrotask(later);
    };
    this.work.want(pending.map((piece) => ({ ...piece, take: settled, refused: settled })));
    this.planned = pending.length + this.models.length + rest.length;
    return undefined;
  }

  update() {
    this.controls.show();
    this.work.want([]);
    this.check.forget();
    fill(this.law, tex(LAWS[this.state.values.task], true));
    this.draw();
    this.refine();
  }

  progress() {
    if (this.gone) return;
    const { work } = this;
    const { total, done, busy, problem } = work;
    const parts = [];
    if (busy) {
      parts.push(h("progress", { max: Math.max(1, total), value: done, "aria-label": "progress" }), `refining: ${done} of ${total} answers of the solver`);
      parts.push(h("button", { type: "button", id: "cancel", onclick: () => work.cancel() }, "stop"));
    } else {
      const left = this.missing();
      parts.push(left ? `${left} of the answers shown are from the table or missing.` : "All that is shown is the solver's.");
      if (left) parts.push(h("button", { type: "button", id: "refine", onclick: () => this.ask() }, "refine"));
    }
    if (problem) parts.push(h("span", { className: "problem" }, problem));
    fill(this.status, parts);
    this.status.dataset.busy = busy;
  }

  missing() {
    const alphas = [...ALPHAS, this.state.values.alpha];
    return [...this.models, this.bayes].flatMap((one) => alphas.map((a) => this.point(one, a))).filter((p) => p?.source !== "live").length;
  }

  draw() {
    if (this.gone) return;
    const v = this.state.values;
    const alphas = [...new Set([...ALPHAS, v.alpha])].sort((a, b) => a - b);
    const traces = [];
    const marks = [];
    for (const one of [...this.models, this.bayes]) {
      const shade = one.index < 0 ? ink("soft") : colour(one.index);
      const points = alphas.map((x) => ({ x, point: this.point(one, x) })).filter(({ point }) => point?.risk).map(({ x, point }) => ({ x, y: point.risk, trusted: point.trusted, text: `${shown(point)}, ${point.source}` }));
      traces.push(...trusted(points, { name: one.name, colour: shade, dash: one.index < 0 ? "dash" : "solid" }));
      const here = this.point(one, v.alpha);
      if (here?.risk) marks.push({ one, here, shade });
    }
    traces.push(...marks.map(({ one, here, shade }) => dot(v.alpha, here, shade, one.name)));
    traces.push(...this.check.traces(v.alpha));
    this.left.draw(traces, {
      x: { title: "samples / d  (α)", type: "log", tickvals: [0.5, 1, 2, 4, 8, 16], range: [Math.log10(Math.min(0.7, 0.95 * v.alpha)), Math.log10(Math.max(12.8, 1.05 * v.alpha))] },
      y: { title: "risk  (E)" },
      shapes: [line(v.alpha)],
    });
    this.drawPenalties();
    this.say(marks);
    this.progress();
  }

  drawPenalties() {
    const v = this.state.values;
    const traces = [];
    let top = 0;
    let curves = 0;
    for (const one of this.models) {
      const best = this.point(one, v.alpha);
      if (!best?.risk) continue;
      const question = this.around(one);
      const events = (question && known(question))?.filter((e) => e.event === "point") ?? [];
      const points = events.map((e) => ({ x: e.factor, y: e.risk?.[0] ?? null, trusted: e.trusted, text: shown(live(e)) }));
      traces.push(...trusted(points, { name: one.name, colour: colour(one.index) }), dot(1, best, colour(one.index), `${one.name}, best`, "star"));
      curves += points.length ? 1 : 0;
      top = Math.max(top, 1.6 * best.risk);
    }
    const bayes = this.point(this.bayes, v.alpha);
    const shapes = [line(v.penalty)];
    if (bayes?.risk) shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: bayes.risk, y1: bayes.risk, line: { color: ink("soft"), dash: "dash", width: 1.5 } });
    const low = bayes?.risk ? 0.9 * bayes.risk : undefined;
    this.right.draw(traces, {
      x: { title: "penalty, times the model's own best", type: "log", tickvals: [0.05, 0.2, 1, 5, 20], range: [Math.log10(0.044), Math.log10(23)] },
      y: { title: "risk  (E)", range: top && low ? [low, top] : undefined },
      shapes,
      annotations: curves || !top ? [] : [{ x: 0.5, y: 0.96, xref: "paper", yref: "paper", text: "the curves come from the solver, after the best penalty", showarrow: false, font: { size: 12, color: ink("soft") } }],
    });
  }

  // The numbers at the chosen point: verdict, a row for each model, and the code that gives them.
  say(marks) {
    const v = this.state.values;
    const points = marks.filter(({ one }) => one.index >= 0).map(({ one, here }) => ({ name: one.name, point: here, one }));
    const bayes = marks.find(({ one }) => one.index < 0)?.here;
    const { best, parts } = verdict(points, bayes);
    this.winner = best?.one ?? this.models[0];
    fill(this.verdict, parts);
    this.verdict.dataset.source = points.every(({ point }) => point.source === "live") ? "live" : "table";
    const head = ["", "penalty (key / value)", "risk at its best", `risk at ${digits(v.penalty)} times the best`, "", "from"];
    const rows = [...this.everyone, this.bayes].map((one) => this.row(one));
    fill(this.rows, h("table", { id: "numbers" }, h("thead", {}, h("tr", {}, head.map((t) => h("th", {}, t)))), h("tbody", {}, rows)));
    this.write(v);
  }

  row(one) {
    const v = this.state.values;
    const inside = one.index < 0 || this.models.includes(one);
    const here = inside ? this.point(one, v.alpha) : null;
    const question = one.index < 0 || !inside ? null : this.around(one);
    const there = v.penalty === 1 ? (one.index < 0 ? null : here) : question && known(question)?.find((e) => e.factor === v.penalty);
    const other = there && (there.factor ? live(there) : there);
    const shade = one.index < 0 ? ink("soft") : colour(one.index);
    const swatch = h("span", { className: "swatch" });
    swatch.style.borderColor = shade;
    const doubt = here && !here.trusted ? h("span", { className: "warn" }, "not to be trusted") : here ? "trusted" : "";
    const cells = [h("label", {}, this.choice(one), " ", swatch, one.name), here?.lam?.map((x) => digits(x)).join(" / ") ?? "", here?.risk ? within(here.risk, here.error) : inside ? "…" : "left out", other?.risk ? within(other.risk, other.error) : one.index < 0 || !inside ? "" : "…", doubt, here?.source ?? ""];
    const element = h("tr", {}, cells.map((cell) => h("td", {}, cell)));
    element.dataset.model = one.name;
    if (here?.risk) element.dataset.risk = here.risk;
    element.dataset.source = here?.source ?? "";
    if (other?.risk) element.dataset.other = other.risk;
    return element;
  }

  // A box that leaves a model out of the pictures and of the work.
  choice(one) {
    if (one.index < 0) return "";
    const inside = this.models.includes(one);
    const change = () => {
      const without = new Set(this.state.values.without.split(",").filter(Boolean));
      if (inside) without.add(one.name);
      else without.delete(one.name);
      this.state.set({ without: [...without].sort().join(",") });
    };
    return h("input", { type: "checkbox", checked: inside, onchange: change, "aria-label": `show ${one.name}` });
  }

  write(v) {
    const models = this.models.map(({ name, model }) => `    "${name}": ${python(model)},`).join("\n");
    const task = taskText(v);
    this.code.show(
      `import needlepoint as ndl\n\ntask = ${python(task)}\nmodels = {\n${models}\n    "Bayes": None,\n}\nfound = ndl.contest(task, models, ndl.Ridge(${number(v.alpha)}, "optimal"))\nprint(found)`,
      `needlepoint contest --task "${task}" \\\n${this.models.map(({ model }) => `    --models "${model}" \\\n`).join("")}    --models None --learner "Ridge(alpha=${number(v.alpha)}, lam='optimal')"`,
    );
  }
}

function dot(x, point, shade, name, symbol = "circle") {
  const size = symbol === "star" ? 12 : 8;
  const fillColour = point.trusted ? shade : ink("ground");
  return { x: [x], y: [point.risk], name, type: "scatter", mode: "markers", error_y: { type: "data", array: [point.error ?? 0], color: shade, thickness: 1.2 }, marker: { symbol, size, color: fillColour, line: { color: shade, width: 1.8 } }, hovertemplate: `${name}: ${shown(point)}<extra></extra>` };
}

function line(x) {
  return { type: "line", yref: "paper", y0: 0, y1: 1, x0: x, x1: x, line: { color: ink("soft"), width: 1, dash: "dot" } };
}
