// Heads of a checkpoint: a square for each, its spectrum beside that of random weights, and what each rank would lose.

import { Asking } from "../asking.js";
import { Chart, colour, ink } from "../chart.js";
import { Code } from "../code.js";
import { digits, fill, h } from "../dom.js";
import { tex } from "../math.js";

const NUMBERS = { outliers: "outliers above the level", effective: "effective rank", stable: "stable rank", misfit: "misfit to the null", symmetric: "symmetric share" };
const MODEL = String.raw`M_h=W_Q^{(h)\top}W_K^{(h)}\ \text{beside independent Gaussian weights of the same shapes}`;

export const heads = {
  id: "heads",
  title: "Heads of a model",
  question: "What do the heads of a trained model look like beside random ones?",
  fields: {
    name: { default: "", text: true },
    number: { default: "outliers", options: Object.keys(NUMBERS) },
    layer: { default: -1, lo: -1, hi: 10000, whole: true },
    head: { default: -1, lo: -1, hi: 10000, whole: true },
  },
  mount: (root, context) => new HeadsView(root, context),
};

class HeadsView {
  constructor(root, { state, ask }) {
    Object.assign(this, { state, heads: [], losses: new Map(), notes: [] });
    this.asking = new Asking(ask);
    this.one = new Asking(ask);
    this.cutting = new Asking(ask);
    this.side = h("div", { className: "side" });
    this.map = new Chart("Heads of a model");
    this.spectrum = new Chart("Singular values of a head");
    this.loss = new Chart("Loss at each rank");
    this.said = h("p", { className: "verdict", id: "verdict" });
    this.about = h("div", {});
    this.words = h("textarea", { rows: 3, maxLength: 60000, "aria-label": "calibration text", placeholder: "Paste some thousand words of text to see what each rank would lose on it." });
    this.words.style.width = "100%";
    this.cut = h("button", { type: "button", id: "cut", onclick: () => this.ask() }, "measure the loss at each rank");
    this.code = new Code();
    const details = h("details", {}, h("summary", {}, "equations"), tex(MODEL, true));
    const charts = h("div", { className: "charts" }, this.map.element, this.spectrum.element);
    const content = h("div", {}, charts, this.about, this.words, h("div", { className: "row" }, this.cut, this.cutting.element), this.loss.element, this.code.element, details);
    fill(root, this.said, this.asking.element, this.one.element, h("div", { className: "view" }, this.side, content));
    this.map.onClick((point) => state.set({ layer: point.y, head: point.x }));
    this.asking.run({ kind: "files" }, (event) => this.listed(event), { label: "the folder" });
  }

  leave() {
    for (const asking of [this.asking, this.one, this.cutting]) asking.cancel();
  }

  listed(event) {
    if (event.event !== "files") return;
    this.names = event.checkpoints;
    if (!this.names.length) fill(this.said, "There is no checkpoint here: start the page as ", h("code", {}, "needlepoint explore FOLDER"), " with a model's folder, or one that has such folders.");
    else setTimeout(() => this.gone || this.update());
  }

  update() {
    if (!this.names?.length) return this.draw();
    const v = this.state.values;
    const name = this.names.includes(v.name) ? v.name : this.names[0];
    if (name !== this.name) {
      this.name = name;
      this.heads = [];
      this.losses.clear();
      this.asking.run({ kind: "heads", name }, (event) => this.arrived(event), { label: "reading the heads" });
    }
    const chosen = JSON.stringify([name, v.layer, v.head]);
    if (v.layer >= 0 && v.head >= 0 && chosen !== this.chosen) {
      this.chosen = chosen;
      this.one.run({ kind: "heads", name, layer: v.layer, head: v.head }, (event) => this.opened(event), { gentle: true, label: "the head" });
    }
    this.controls();
    this.write();
    return this.draw();
  }

  controls() {
    const v = this.state.values;
    const select = (id, label, current, options) => {
      const element = h("select", { id: `select-${id}`, "aria-label": label, onchange: () => this.state.set({ [id]: element.value, ...(id === "name" ? { layer: -1, head: -1 } : {}) }) }, options.map(([value, text]) => h("option", { value, selected: value === current }, text)));
      return h("label", { className: "control" }, h("span", { className: "name" }, label), element);
    };
    const grid = h("div", { className: "grid" }, this.heads.map((one) => h("button", { type: "button", "aria-pressed": one.layer === v.layer && one.head === v.head, onclick: () => this.state.set({ layer: one.layer, head: one.head }) }, `${one.layer}.${one.head}`)));
    const focus = document.activeElement?.textContent;
    const inside = this.side.contains(document.activeElement);
    fill(this.side, select("name", "model", this.name, this.names.map((n) => [n, n])), select("number", "colour", v.number, Object.entries(NUMBERS)), h("p", { className: "small" }, "layer.head"), grid);
    if (inside) [...grid.children].find((button) => button.textContent === focus)?.focus();
  }

  arrived(event) {
    if (event.event === "checkpoint") fill(this.said, event.text);
    if (event.event !== "layer") return;
    this.heads.push(...event.heads);
    this.notes = event.notes;
    this.map.element.dataset.heads = this.heads.length;
    this.controls();
    this.draw();
    if (this.state.values.layer < 0) {
      const [first] = event.heads;
      this.state.set({ layer: first.layer, head: first.head }, false);
    }
  }

  opened(event) {
    if (event.event !== "head") return;
    this.head = event.head;
    this.spectrum.element.dataset.head = `${event.head.layer}.${event.head.head}`;
    this.draw();
  }

  ask() {
    this.losses.clear();
    this.cutting.run({ kind: "losses", name: this.name, words: this.words.value }, (event) => {
      if (event.event === "losses") this.cutNotes = event.notes;
      if (event.event === "loss") this.losses.set(`${event.layer}.${event.head}`, event);
      this.loss.element.dataset.losses = this.losses.size;
      this.draw();
    }, { label: "running the text through the model" });
  }

  draw() {
    const { number, layer, head } = this.state.values;
    const layers = [...new Set(this.heads.map((one) => one.layer))];
    const columns = [...new Set(this.heads.map((one) => one.head))].sort((a, b) => a - b);
    const z = layers.map((l) => columns.map((c) => this.heads.find((one) => one.layer === l && one.head === c)?.[number] ?? null));
    const map = { type: "heatmap", x: columns, y: layers, z, colorscale: "Viridis", xgap: 1, ygap: 1, colorbar: { thickness: 10, outlinewidth: 0, tickfont: { color: ink("ink") } }, hovertemplate: "layer %{y}, head %{x}: %{z:.4g}<extra></extra>", name: NUMBERS[number] };
    const ring = layer >= 0 ? [{ type: "rect", x0: head - 0.5, x1: head + 0.5, y0: layer - 0.5, y1: layer + 0.5, line: { color: colour(1), width: 3 } }] : [];
    this.map.draw(layers.length ? [map] : [], { x: { title: "head", dtick: columns.length > 16 ? 4 : 1 }, y: { title: "layer", autorange: "reversed", dtick: layers.length > 16 ? 4 : 1 }, shapes: ring });
    this.drawHead();
    this.drawLoss(`${layer}.${head}`);
  }

  drawHead() {
    const one = this.head;
    if (!one) return this.spectrum.draw([], { x: { title: "rank" }, y: { title: "singular value" } });
    const ranks = one.values.map((_, i) => i + 1);
    const count = one.outliers.length;
    const traces = [{ x: ranks, y: one.values, type: "scatter", mode: "lines+markers", name: "singular values", marker: { size: 5, color: ranks.map((r) => (r <= count ? colour(1) : colour(0))) }, line: { color: colour(0), width: 1.4 } }];
    const line = (y, name) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: ink("soft"), dash: name === "level" ? "dash" : "dot", width: 1.2 } });
    this.spectrum.draw(traces, { x: { title: "rank" }, y: { title: "singular value", rangemode: "tozero" }, shapes: [line(one.edge, "edge"), line(one.level, "level")], annotations: [{ x: 1, xref: "paper", y: one.level, text: "level of random weights", showarrow: false, xanchor: "right", yanchor: "bottom", font: { size: 11, color: ink("soft") } }] });
    const rows = { "outliers above the level": count, "effective rank": digits(one.ranks.effective), "stable rank": digits(one.ranks.stable), "ranks with 90 % of the square": one.ranks.r90, "misfit to the null": digits(one.misfit), "symmetric share": digits(one.symmetric), trace: digits(one.trace) };
    const table = h("table", {}, h("tbody", {}, Object.entries(rows).map(([name, value]) => h("tr", {}, h("td", {}, name), h("td", {}, String(value))))));
    return fill(this.about, h("h2", {}, `Layer ${one.layer}, head ${one.head}`), table, this.notes.map((note) => h("p", { className: "small" }, note)));
  }

  drawLoss(name) {
    const loss = this.losses.get(name);
    this.loss.element.hidden = !this.losses.size;
    if (!loss) return;
    const predicted = { x: loss.predicted.map((_, i) => i), y: loss.predicted, type: "scatter", mode: "lines", name: "predicted, to first order", line: { color: colour(0) } };
    const measured = { x: loss.ranks, y: loss.measured, type: "scatter", mode: "markers", name: "measured on the text", marker: { color: colour(1), size: 7 } };
    this.loss.draw([predicted, measured], { x: { title: `rank kept in layer ${loss.layer}, head ${loss.head}` }, y: { title: "attention loss", type: "log" }, showlegend: true, legend: { orientation: "h", y: 1.15 } });
  }

  write() {
    const file = this.name.split("/").at(-1);
    const { layer, head } = this.state.values;
    const one = layer >= 0 ? `, layer=${layer}, head=${head}` : "";
    this.code.show(`import needlepoint as ndl\n\ncheckpoint = ndl.read_checkpoint("${file}")\nreport = ndl.heads(checkpoint${one})\nprint(report)`, `needlepoint heads ${file}${layer >= 0 ? ` --layer ${layer} --head ${head}` : ""}`);
  }
}
