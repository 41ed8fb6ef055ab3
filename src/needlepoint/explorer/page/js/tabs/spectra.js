// Learned spectra: eigenvalues of the query-key matrix in the limit, the target behind, trained ones and one's own.

import { Asking } from "../asking.js";
import { Chart, colour, ink } from "../chart.js";
import { Code, number, python } from "../code.js";
import { panel, selection, slider } from "../controls.js";
import { debounced, digits, fill, h, within } from "../dom.js";
import { tex } from "../math.js";

const MODEL = String.raw`S=\frac{WW^\top}{\sqrt{p\,d}},\qquad \min_W\ \sum_{\mu=1}^{\alpha d^2}\big\|y_\mu-A(X_\mu S X_\mu^\top)\big\|^2+r\,\|W\|_F^2,\qquad S_0\ \text{the target}`;

export const spectra = {
  id: "spectra",
  title: "Learned spectra",
  question: "What does the spectrum of a learned query-key matrix say?",
  fields: {
    model: { default: "TiedAttention()", options: ["TiedAttention()", "DirectAttention()"] },
    tokens: { default: 2, lo: 1, hi: 6, whole: true },
    rank: { default: 0.5, lo: 0.05, hi: 2, log: true },
    noise: { default: 0.1, lo: 0, hi: 2 },
    alpha: { default: 0.3, lo: 0.02, hi: 2, log: true },
    lam: { default: 0.02, lo: 0.001, hi: 2, log: true },
    d: { default: 60, lo: 20, hi: 200, whole: true },
  },
  mount: (root, context) => new Spectra(root, context),
};

class Spectra {
  constructor(root, { state, ask }) {
    this.state = state;
    this.law = new Asking(ask);
    this.training = new Asking(ask);
    this.own = new Asking(ask);
    this.trained = [];
    this.controls = panel(
      selection(state, "model", "model", [["TiedAttention()", "tied: S = W Wᵀ"], ["DirectAttention()", "direct: S entry by entry"]]),
      slider(state, "tokens", "tokens", "T"),
      slider(state, "rank", "rank of the target over d", "k_0"),
      slider(state, "noise", "noise variance", String.raw`\Delta`),
      slider(state, "alpha", "samples / d²", String.raw`\alpha`),
      slider(state, "lam", "penalty", "r"),
      slider(state, "d", "d of trained matrices", "d"),
    );
    this.chart = new Chart("Spectrum of the learned matrix", { tall: true });
    this.marks = new Chart("Thresholds in samples", { links: false });
    this.marks.plot.style.height = "96px";
    this.said = h("p", { className: "verdict", id: "verdict", "aria-live": "polite" });
    this.start = h("button", { type: "button", className: "main", id: "train", onclick: () => this.train() }, "train");
    this.file = h("input", { type: "file", id: "own-file", "aria-label": "eigenvalues or a matrix", onchange: () => this.take(this.file.files[0]) });
    this.drop = h("div", { className: "drop" }, "Your own: drop a text file with eigenvalues (any layout) or a square matrix (one row a line). It goes to this machine's worker and nowhere else. ", this.file);
    for (const [name, on] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
      this.drop.addEventListener(name, (event) => {
        event.preventDefault();
        this.drop.classList.toggle("over", on);
        if (name === "drop") this.take(event.dataTransfer.files[0]);
      });
    }
    this.code = new Code();
    const about = h("details", {}, h("summary", {}, "equations"), tex(MODEL, true));
    const content = h("div", {}, h("div", { className: "charts one" }, this.chart.element), this.marks.element, h("div", { className: "row" }, this.start, this.training.element), this.drop, this.own.element, this.code.element, about);
    fill(root, this.said, this.law.element, h("div", { className: "view" }, this.controls.element, content));
    this.marks.onClick((point) => state.set({ alpha: point.x }));
    this.again = debounced(() => this.gone || this.ask(), 60);
  }

  leave() {
    for (const asking of [this.law, this.training, this.own]) asking.cancel();
  }

  texts() {
    const v = this.state.values;
    return { task: `AttentionIndexed(${v.tokens}, Wishart(${number(v.rank)}), noise_var=${number(v.noise)})`, model: v.model, alpha: v.alpha, lam: v.lam };
  }

  update() {
    this.controls.show();
    const key = JSON.stringify(this.texts());
    if (key !== this.key) {
      this.key = key;
      this.trained = [];
      this.again();
    }
    this.write();
    this.draw();
  }

  ask() {
    const asked = this.key;
    this.law.run({ kind: "spectrum", ...this.texts() }, (event) => this.arrived(event, asked), { gentle: true, label: "the law" });
  }

  arrived(event, asked) {
    if (event.event === "spectrum") this.spectrum = { ...event, asked };
    if (event.event === "thresholds") this.limits = event;
    this.say();
    this.draw();
  }

  train() {
    this.trained = [];
    const asked = this.key;
    const question = { kind: "trained spectrum", ...this.texts(), d: this.state.values.d, repeats: 4 };
    this.training.run(question, (event) => {
      if (event.event === "eigenvalues" && asked === this.key) this.trained.push(event.values);
      this.chart.element.dataset.trained = this.trained.length;
      this.draw();
    }, { label: `training at d = ${this.state.values.d}` });
  }

  async take(file) {
    if (!file) return;
    if (file.size > 3e6) return this.own.show(false, "", new Error("The file has more than 3 MB; a matrix of 600 x 600 is the largest."));
    const rows = (await file.text()).split(/\r?\n/).map((line) => line.split(/[\s,;]+/).filter(Boolean).map(Number)).filter((row) => row.length);
    if (!rows.length || rows.flat().some((x) => !Number.isFinite(x))) return this.own.show(false, "", new Error("The file must have numbers only."));
    const take = (values) => {
      this.mine = values;
      this.chart.element.dataset.own = values.length;
      this.draw();
    };
    if (rows.length > 1 && rows.every((row) => row.length === rows.length)) {
      return this.own.run({ kind: "eigenvalues", rows }, (event) => event.event === "eigenvalues" && take(event.values), { label: "its eigenvalues" });
    }
    return take(rows.flat());
  }

  say() {
    const s = this.spectrum;
    if (!s) return;
    const [name, value] = s.metrics.estimation_error ? ["estimation error", s.metrics.estimation_error] : ["risk", s.metrics.risk];
    fill(this.said, h("b", {}, `${digits(100 * (1 - s.atom))} % of the directions are learned`), `; ${name} ${within(...value)}; `, s.trusted ? "trusted." : h("span", { className: "warn" }, `not to be trusted (${s.status}).`));
    this.said.dataset.atom = s.atom;
  }

  draw() {
    const s = this.spectrum;
    const traces = [];
    const shapes = [];
    if (s?.target[0]?.length) traces.push({ x: s.target[0], y: s.target[1], type: "scatter", mode: "lines", fill: "tozeroy", name: `target (rank ${digits(s.target_rank)} d)`, line: { color: ink("soft"), width: 1 }, fillcolor: "rgba(140,150,170,.18)" });
    const bins = this.bins();
    for (const [values, name, index] of [[this.trained.flat(), "trained", 1], [this.mine ?? [], "your own", 3]]) {
      if (values.length) traces.push(histogram(values, name, colour(index), bins));
    }
    if (s) {
      traces.push({ x: s.x, y: s.density, type: "scatter", mode: "lines", name: "learned, in the limit", line: { color: colour(0), width: 2.4 } });
      if (s.outliers.length) traces.push({ x: s.outliers, y: s.outliers.map(() => 0), type: "scatter", mode: "markers", name: "outliers", marker: { symbol: "triangle-up", size: 11, color: colour(0) }, cliponaxis: false });
    }
    const atom = s ? [{ x: 0, y: 1, xref: "x", yref: "paper", yanchor: "bottom", text: `${digits(100 * s.atom)} % at 0`, showarrow: false, font: { color: colour(0), size: 12 } }] : [];
    if (s?.atom > 0) shapes.push({ type: "line", x0: 0, x1: 0, yref: "paper", y0: 0, y1: 1, line: { color: colour(0), width: 2 } });
    const top = s ? Math.min(Math.max(...s.density.filter(Number.isFinite)), 8 * median(s.density.filter((y) => y > 0))) : 1;
    this.chart.draw(traces, { x: { title: "eigenvalue" }, y: { title: "density", range: [0, 1.15 * (top || 1)] }, shapes, annotations: atom, showlegend: true, legend: { orientation: "h", x: 1, xanchor: "right", y: 1.12 }, margin: { l: 56, r: 10, t: 40, b: 44 }, bargap: 0 });
    this.drawMarks();
  }

  bins() {
    const ends = [...(this.spectrum?.x ?? []), ...this.trained.flat()].filter(Number.isFinite);
    const high = Math.max(...ends, 0.1);
    const low = Math.min(...ends, 0);
    return { start: low, end: high + 1e-9, size: (high - low || 1) / 50 };
  }

  // The axis of alpha with the thresholds on it; a click goes there.
  drawMarks() {
    const v = this.state.values;
    const names = { interpolation: "labels can no longer be fitted", recovery: "the target is found", bayes_recovery: "any method can find it" };
    const known = Object.entries(names).filter(([name]) => Number.isFinite(this.limits?.[name]));
    const marks = { x: known.map(([name]) => this.limits[name]), y: known.map(() => 0), text: known.map(([name]) => names[name]), type: "scatter", mode: "markers+text", textposition: "top center", marker: { size: 10, color: colour(1), symbol: "line-ns-open" }, textfont: { size: 11, color: ink("ink") }, hovertemplate: "%{text}: α = %{x:.4g}<extra></extra>", cliponaxis: false };
    const now = { x: [v.alpha], y: [0], type: "scatter", mode: "markers", marker: { size: 11, color: colour(0) }, hovertemplate: "here: α = %{x:.4g}<extra></extra>" };
    this.marks.draw([marks, now], { x: { title: "samples / d²  (α)", type: "log", range: [Math.log10(0.019), Math.log10(2.1)], tickvals: [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2] }, y: { visible: false, range: [-0.5, 1] }, margin: { l: 20, r: 20, t: 4, b: 40 } });
  }

  write() {
    const { task, model, alpha, lam } = this.texts();
    const learner = `Ridge(alpha=${number(alpha)}, lam=${number(lam)})`;
    this.code.show(
      `import needlepoint as ndl\n\ntask = ${python(task)}\nmodel = ${python(model)}\nfound = ndl.predict(task, model, ${python(learner)})\nprint(found.spectrum)\nprint(ndl.thresholds(task, model))`,
      `needlepoint spectrum --task "${task}" --model "${model}" \\\n    --learner "${learner}" --plot spectrum.png`,
    );
  }
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? 1;
}

// Bars with the area of the share of the values that are not zero, so that they lie on the density.
function histogram(values, name, shade, bins) {
  const counts = Array.from({ length: 50 }, () => 0);
  const tiny = 1e-3 * Math.max(...values.map(Math.abs));
  for (const x of values) {
    const i = Math.floor((x - bins.start) / bins.size);
    if (Math.abs(x) > tiny && i >= 0 && i < 50) counts[i] += 1;
  }
  const x = counts.map((_, i) => bins.start + (i + 0.5) * bins.size);
  return { x, y: counts.map((n) => n / values.length / bins.size), type: "bar", width: bins.size, name, marker: { color: shade, opacity: 0.45 } };
}
