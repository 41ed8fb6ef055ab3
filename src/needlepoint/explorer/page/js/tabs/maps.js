// Phase diagrams: one number over two fields of a question, refined where the answer changes; a click opens a point.

import { Asking } from "../asking.js";
import { Chart, colour, ink, logTicks } from "../chart.js";
import { Code, number, python } from "../code.js";
import { panel, selection, slider } from "../controls.js";
import { debounced, digits, fill, h, within } from "../dom.js";

const MAPS = {
  linear: { title: "ridge, linear: where the theory holds", task: "SpikedSLR(tokens=2, snr=2, noise=0.3)", model: "KeyValueAttention(Linear())", learner: "Ridge(alpha=4, lam=0.5)", x: ["learner.alpha", 0.7, 12, "samples / d  (α)"], y: ["learner.lam", 0.1, 10, "penalty  (r)"], on: "stable" },
  softmax: { title: "ridge, softmax: where the theory holds", task: "SpikedSLR(tokens=2, snr=2, noise=0.3)", model: "KeyValueAttention(Softmax())", learner: "Ridge(alpha=4, lam=0.5)", x: ["learner.alpha", 0.7, 12, "samples / d  (α)"], y: ["learner.lam", 0.1, 10, "penalty  (r)"], on: "stable" },
  erf: { title: "erf on the sphere: oracle or swapped", task: "SpikedSLR(tokens=10, snr=200)", model: "KeyValueAttention(Erf(scale=0.3), unit_norm=True)", learner: "Population(within='all')", x: ["task.snr", 0.5, 200, "snr  (μ)"], y: ["model.activation.scale", 0.02, 3, "scale  (λ)"], on: "branch" },
  indexed: { title: "query-key matrix: error of the estimate", task: "AttentionIndexed(2, Wishart(0.5), noise_var=0.1)", model: "TiedAttention()", learner: "Ridge(alpha=0.3, lam=0.02)", x: ["learner.alpha", 0.05, 2, "samples / d²  (α)"], y: ["learner.lam", 0.003, 1, "penalty  (r)"], on: "stable" },
};

export const maps = {
  id: "maps",
  title: "Phase diagrams",
  question: "Where does the answer change?",
  fields: {
    map: { default: "linear", options: Object.keys(MAPS) },
    points: { default: 6, lo: 4, hi: 16, whole: true },
    levels: { default: 1, lo: 0, hi: 3, whole: true },
    x: { default: 0, lo: 0, hi: 1e6 },
    y: { default: 0, lo: 0, hi: 1e6 },
  },
  mount: (root, context) => new Maps(root, context),
};

class Maps {
  constructor(root, { state, ask, open }) {
    Object.assign(this, { state, open, points: [] });
    this.asking = new Asking(ask);
    this.controls = panel(
      selection(state, "map", "map", Object.entries(MAPS).map(([id, { title }]) => [id, title])),
      slider(state, "points", "points along an axis"),
      slider(state, "levels", "times refined"),
    );
    this.chart = new Chart("Phase diagram", { tall: true });
    this.start = h("button", { type: "button", className: "main", id: "draw", onclick: () => this.ask() }, "draw the map");
    this.said = h("p", { className: "verdict", id: "verdict", "aria-live": "polite" });
    this.point = h("div", { id: "point" });
    this.code = new Code();
    const hint = h("p", { className: "small" }, "Squares: the first grid and what was refined where the label changes. Hollow: solved but not to be trusted, or no answer. Click a square to see it.");
    const content = h("div", {}, h("div", { className: "row" }, this.start, this.asking.element), this.chart.element, hint, this.point, this.code.element);
    fill(root, this.said, h("div", { className: "view" }, this.controls.element, content));
    this.chart.onClick((found) => found.customdata !== undefined && this.choose(this.points[found.customdata]));
    this.again = debounced(() => this.gone || this.ask(), 250);
  }

  leave() {
    this.asking.cancel();
  }

  get map() {
    return MAPS[this.state.values.map];
  }

  update() {
    this.controls.show();
    const { map, points, levels } = this.state.values;
    const key = JSON.stringify([map, points, levels]);
    if (key !== this.key) {
      this.key = key;
      this.points = [];
      this.asking.cancel();
      this.again();
    }
    this.write();
    this.draw();
    this.tell();
  }

  ask() {
    const { map } = this;
    const { points, levels } = this.state.values;
    this.points = [];
    const question = { kind: "map", task: map.task, model: map.model, learner: map.learner, x: map.x[0], x_values: spaced(map.x[1], map.x[2], points), y: map.y[0], y_values: spaced(map.y[1], map.y[2], points) };
    if (levels > 0) Object.assign(question, { on: map.on, levels });
    this.asking.run(question, (event) => this.arrived(event), { label: "the map" });
  }

  arrived(event) {
    if (event.event !== "point") return;
    this.points.push(event);
    this.chart.element.dataset.points = this.points.length;
    this.redraw ??= debounced(() => this.gone || this.draw(), 60);
    this.redraw();
    this.tell();
  }

  value(point) {
    const metrics = point.metrics ?? {};
    return (metrics.estimation_error ?? metrics.excess_risk ?? metrics.risk)?.[0] ?? null;
  }

  choose(point) {
    this.state.set({ x: point.at[0], y: point.at[1] });
  }

  // The chosen point: its numbers, and a way to open it where a tab has that question.
  tell() {
    const { map } = this;
    const trusted = this.points.filter((p) => p.trusted).length;
    const labels = [...new Set(this.points.map((p) => (map.on === "branch" ? p.branch : null)).filter(Boolean))];
    fill(this.said, this.points.length ? `${this.points.length} points, ${trusted} of them trusted${labels.length ? `; branches: ${labels.join(", ")}` : ""}.` : "The map appears row by row.");
    const { x, y } = this.state.values;
    const point = this.points.find((p) => p.at[0] === x && p.at[1] === y);
    if (!point) return fill(this.point);
    const metrics = Object.entries(point.metrics ?? {}).map(([name, [value, error]]) => h("tr", {}, h("td", {}, name.replaceAll("_", " ")), h("td", {}, within(value, error))));
    const go = this.opener(point);
    return fill(
      this.point,
      h("h2", {}, `${map.x[3]} = ${digits(x)}, ${map.y[3]} = ${digits(y)}`),
      h("p", { className: point.trusted ? "small" : "small warn" }, [point.status, point.branch, point.trusted ? "trusted" : "not to be trusted", point.message, ...(point.notes ?? [])].filter(Boolean).join("; ")),
      h("table", {}, h("tbody", {}, metrics)),
      go ? h("button", { type: "button", id: "open-point", onclick: go }, "open this point") : null,
    );
  }

  opener(point) {
    const [x, y] = point.at;
    const { map } = this.state.values;
    if (map === "erf") return () => this.open("dynamics", { tokens: 10, snr: x, scale: y });
    if (map === "indexed") return () => this.open("spectra", { alpha: x, lam: y });
    return () => this.open("contest", { alpha: x });
  }

  draw() {
    const { map } = this;
    const values = this.points.map((p) => this.value(p));
    const finite = values.filter((v) => v !== null && v > 0).map(Math.log10).sort((a, b) => a - b);
    const [low, high] = [finite[0] ?? 0, finite[Math.floor(0.95 * (finite.length - 1))] ?? 1];
    const marker = (inside) => ({ symbol: inside ? "square" : "square-open", size: this.size(), color: [], cmin: low, cmax: high, colorscale: "Viridis", line: { width: 1 } });
    const parts = [true, false].map((inside) => ({ x: [], y: [], text: [], customdata: [], type: "scatter", mode: "markers", name: inside ? "trusted" : "not to be trusted", marker: marker(inside), hovertemplate: "%{text}<extra></extra>" }));
    this.points.forEach((point, i) => {
      const part = parts[point.trusted ? 0 : 1];
      part.x.push(point.at[0]);
      part.y.push(point.at[1]);
      part.customdata.push(i);
      part.text.push(`${digits(point.at[0])}, ${digits(point.at[1])}: ${values[i] === null ? point.message || point.status : digits(values[i], 4)} ${point.branch ?? ""}`);
      part.marker.color.push(values[i] > 0 ? Math.log10(values[i]) : high);
    });
    parts[0].marker.colorbar = { title: { text: "log10 of the excess risk or error", side: "right", font: { size: 11 } }, thickness: 12, len: 0.9, outlinewidth: 0, tickfont: { color: ink("ink") } };
    parts[0].marker.symbol = this.points.filter((p) => p.trusted).map((p) => (p.branch === "swapped" ? "diamond" : "square"));
    const { x, y } = this.state.values;
    const chosen = x && y ? [{ x: [x], y: [y], type: "scatter", mode: "markers", name: "chosen", marker: { symbol: "circle-open", size: 20, color: colour(1), line: { width: 3 } }, hoverinfo: "skip" }] : [];
    this.chart.draw([...parts, ...chosen], { x: { title: map.x[3], type: "log", range: padded(map.x), tickvals: logTicks(map.x[1], map.x[2]) }, y: { title: map.y[3], type: "log", range: padded(map.y), tickvals: logTicks(map.y[1], map.y[2]) } });
  }

  size() {
    const across = Math.max(200, this.chart.plot.clientWidth - 160) / this.state.values.points;
    return Math.max(6, Math.min(26, 0.7 * across)) / (this.points.length > 1.2 * this.state.values.points ** 2 ? 1.6 : 1);
  }

  write() {
    const { map } = this;
    const { points, levels } = this.state.values;
    const axis = ([path, lo, hi]) => `"${path}": list(np.geomspace(${number(lo)}, ${number(hi)}, ${points}))`;
    const refine = levels ? `, refine=ndl.Refine("${map.on}", levels=${levels})` : "";
    const code = `import numpy as np\nimport needlepoint as ndl\n\nstudy = ndl.sweep(\n    ${python(map.task)},\n    ${python(map.model)},\n    ${python(map.learner)},\n    over={${axis(map.x)},\n          ${axis(map.y)}}${refine},\n)\nndl.plot(study)`;
    const table = ([path, lo, hi]) => `"${path}" = {from = ${lo}, to = ${hi}, points = ${points}, spacing = "log"}`;
    this.code.show(code, `# in map.toml:\ntask = "${map.task}"\nmodel = "${map.model}"\nlearner = "${map.learner}"\n[over]\n${table(map.x)}\n${table(map.y)}${levels ? `\n[refine]\non = "${map.on}"\nlevels = ${levels}` : ""}\n\n# then:\nneedlepoint sweep map.toml --plot map.png`);
  }
}

export function spaced(lo, hi, count) {
  return Array.from({ length: count }, (_, i) => (i === 0 ? lo : i === count - 1 ? hi : lo * (hi / lo) ** (i / (count - 1))));
}

function padded([, lo, hi]) {
  const room = 0.05 * Math.log10(hi / lo);
  return [Math.log10(lo) - room, Math.log10(hi) + room];
}
