// A study that was saved: its points as curves, a table and the text that says what was asked. Read, never written to.

import { Asking } from "../asking.js";
import { Chart, colour, ink } from "../chart.js";
import { selection } from "../controls.js";
import { digits, fill, h } from "../dom.js";

const SHOWN = 60; // rows of the table; the CSV has all

export const study = {
  id: "study",
  title: "A study",
  question: "What does a saved study say?",
  fields: {
    name: { default: "", text: true },
    x: { default: "", text: true },
    metric: { default: "", text: true },
  },
  mount: (root, context) => new StudyView(root, context),
};

class StudyView {
  constructor(root, { state, ask, extra }) {
    Object.assign(this, { state, study: extra.study ?? null });
    this.asking = new Asking(ask);
    this.side = h("div", { className: "side" });
    this.chart = new Chart("A study", { tall: true });
    this.text = h("pre", { tabIndex: 0 });
    this.table = h("div", { className: "scroll" });
    this.said = h("p", { className: "verdict", id: "verdict" });
    fill(root, this.said, this.asking.element, h("div", { className: "view" }, this.side, h("div", {}, this.chart.element, this.text, this.table)));
    if (!this.study) this.asking.run({ kind: "files" }, (event) => this.listed(event), { label: "the folder" });
  }

  leave() {
    this.asking.cancel();
  }

  listed(event) {
    if (event.event !== "files") return;
    this.names = event.studies;
    if (!this.names.length) fill(this.said, "There is no study here: start the page as ", h("code", {}, "needlepoint explore FOLDER"), " with a folder that has .sqlite files of a sweep.");
    this.update();
  }

  update() {
    const { name } = this.state.values;
    const wanted = name || this.names?.[0];
    if (!this.study && !wanted) return;
    if (wanted && this.names && this.study?.name !== wanted && this.asked !== wanted) {
      this.asked = wanted;
      setTimeout(() => this.gone || this.asking.run({ kind: "study", name: wanted }, (event) => this.arrived(event), { label: "reading" }));
      return;
    }
    if (this.study) this.show();
  }

  arrived(event) {
    if (event.event !== "study") return;
    this.study = event;
    this.show();
  }

  get numeric() {
    return this.study.columns.filter((name) => !name.endsWith("_error") && this.study.rows.some((row) => typeof row[this.at(name)] === "number"));
  }

  at(name) {
    return this.study.columns.indexOf(name);
  }

  show() {
    const { study: found } = this;
    const axes = Object.keys(found.axes);
    const { values } = this.state;
    const metrics = this.numeric.filter((name) => !axes.includes(name));
    const x = axes.includes(values.x) ? values.x : (axes.find((name) => this.numeric.includes(name)) ?? axes[0]);
    const metric = metrics.includes(values.metric) ? values.metric : (["excess_risk", "clean_risk", "risk"].find((name) => metrics.includes(name)) ?? metrics[0]);
    const choose = (field, label, current, options) => {
      const control = selection(this.state, field, label, options.map((o) => [o, o]));
      control.element.querySelector("select").value = current;
      return control.element;
    };
    fill(this.side, this.names ? choose("name", "study", found.name, this.names) : h("p", { className: "small" }, found.name), choose("x", "x axis", x, axes), choose("metric", "number", metric, metrics));
    fill(this.said, h("b", {}, found.name), `: ${found.rows.length} rows over ${axes.join(", ")}${found.more ? ` (${found.more} more are not shown)` : ""}.`);
    this.said.dataset.rows = found.rows.length;
    this.text.textContent = found.text;
    this.curves(x, metric, axes);
    this.listing();
  }

  curves(x, metric, axes) {
    const { rows } = this.study;
    const others = axes.filter((name) => name !== x && this.study.axes[name].length > 1);
    const groups = new Map();
    for (const row of rows) {
      const name = others.map((o) => `${o.split(".").at(-1)} = ${short(row[this.at(o)])}`).join(", ");
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(row);
    }
    const cell = (row, name) => (this.at(name) < 0 ? null : row[this.at(name)]);
    const order = (a, b) => (typeof a[this.at(x)] === "number" ? a[this.at(x)] - b[this.at(x)] : 0);
    const traces = [];
    [...groups].forEach(([name, group], i) => {
      const theory = [...group].sort(order);
      const xs = theory.map((row) => cell(row, x));
      const style = { name: name || metric, legendgroup: name, marker: { color: colour(i), size: 5, symbol: theory.map((row) => (cell(row, "stable") === false ? "circle-open" : "circle")) } };
      traces.push({ x: xs, y: theory.map((row) => cell(row, metric)), type: "scatter", mode: "lines+markers", line: { color: colour(i), width: 1.8 }, error_y: { type: "data", array: theory.map((row) => cell(row, `${metric}_error`) ?? 0), thickness: 1, color: colour(i) }, ...style });
      const measured = group.filter((row) => cell(row, `measured_${metric}`) !== null && cell(row, `measured_${metric}`) !== undefined);
      if (measured.length) traces.push({ x: measured.map((row) => cell(row, x)), y: measured.map((row) => cell(row, `measured_${metric}`)), error_y: { type: "data", array: measured.map((row) => cell(row, `measured_${metric}_error`) ?? 0), color: ink("ink"), thickness: 1.2 }, type: "scatter", mode: "markers", name: `${name || metric}, trained`, marker: { symbol: "diamond-open", size: 9, color: colour(i) } });
    });
    const numbers = rows.map((row) => cell(row, x)).filter((v) => typeof v === "number" && v > 0);
    const wide = numbers.length > 2 && Math.max(...numbers) > 8 * Math.min(...numbers) && numbers.length === rows.length;
    this.chart.draw(traces, { x: { title: x, type: typeof rows[0]?.[this.at(x)] === "string" ? "category" : wide ? "log" : "linear" }, y: { title: metric.replaceAll("_", " ") }, showlegend: traces.length > 1, legend: { orientation: "h", y: -0.2, yanchor: "top" } });
  }

  listing() {
    const { columns, rows } = this.study;
    const used = columns.filter((_, i) => rows.some((row) => row[i] !== null && row[i] !== ""));
    const head = h("tr", {}, used.map((name) => h("th", {}, name)));
    const body = rows.slice(0, SHOWN).map((row) => h("tr", {}, used.map((name) => h("td", {}, short(row[this.at(name)])))));
    fill(this.table, h("table", {}, h("thead", {}, head), h("tbody", {}, body)), rows.length > SHOWN ? h("p", { className: "small" }, `The first ${SHOWN} of ${rows.length} rows.`) : null);
  }
}

function short(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "number" ? digits(value, 5) : String(value).slice(0, 80);
}
