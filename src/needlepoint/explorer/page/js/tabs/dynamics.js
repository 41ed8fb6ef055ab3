// Training dynamics: where gradient descent of erf attention goes from any start, over the flow that drives it.

import { Asking } from "../asking.js";
import { Chart, colour, ink } from "../chart.js";
import { Code, number, python } from "../code.js";
import { panel, slider } from "../controls.js";
import { debounced, digits, fill, h } from "../dom.js";
import { tex } from "../math.js";

const FLOW = String.raw`\dot\kappa=-(1-\kappa^2)\,\partial_\kappa R,\qquad \dot\nu=-(1-\nu^2)\,\partial_\nu R,\qquad \kappa=\langle k,k^*\rangle,\ \nu=\langle v,v^*\rangle`;
const MODEL = String.raw`f(X)=\sum_i \mathrm{erf}(\lambda\langle x_i,k\rangle)\,\langle x_i,v\rangle,\qquad \|k\|=\|v\|=1`;
const MARKS = { minimum: ["circle", 2], maximum: ["square", 1], saddle: ["x", 3] };

export const dynamics = {
  id: "dynamics",
  title: "Training dynamics",
  question: "Does gradient descent find the key, and from where?",
  fields: {
    tokens: { default: 3, lo: 2, hi: 20, whole: true },
    snr: { default: 4, lo: 0.25, hi: 200, log: true },
    scale: { default: 0.4, lo: 0.02, hi: 3, log: true },
    lr: { default: 0.02, lo: 0.0005, hi: 0.2, log: true },
    steps: { default: 1500, lo: 100, hi: 20000, log: true, whole: true },
    key: { default: 0.1, lo: -1, hi: 1 },
    value: { default: -0.3, lo: -1, hi: 1 },
    d: { default: 0, lo: 0, hi: 400, whole: true },
  },
  mount: (root, context) => new Dynamics(root, context),
};

class Dynamics {
  constructor(root, { state, ask }) {
    this.state = state;
    this.flowing = new Asking(ask);
    this.running = new Asking(ask);
    this.paths = [];
    this.controls = panel(
      slider(state, "tokens", "tokens", "L"),
      slider(state, "snr", "snr", String.raw`\mu`),
      slider(state, "scale", "scale", String.raw`\lambda`),
      slider(state, "lr", "step size", String.raw`\ell`),
      slider(state, "steps", "steps"),
      slider(state, "key", "start: key", String.raw`\kappa`),
      slider(state, "value", "start: value", String.raw`\nu`),
      slider(state, "d", "train at d (0: theory only)", "d"),
    );
    this.square = new Chart("Paths of key and value over the flow", { tall: true });
    this.risk = new Chart("Excess risk along the run");
    this.play = h("button", { type: "button", className: "main", id: "play", onclick: () => this.animate() }, "play");
    this.clear = h("button", { type: "button", onclick: () => this.forget() }, "clear paths");
    this.said = h("p", { className: "verdict", id: "verdict", "aria-live": "polite" });
    this.code = new Code();
    const hint = h("p", { className: "small" }, "Click in the square to start a run there. Arrows: direction of the flow, darker where it is faster. Dashed: where the key turns. Line: theory; dots: one training run at dimension d.");
    const charts = h("div", { className: "charts" }, h("div", {}, this.square.element, hint), h("div", {}, this.risk.element, h("div", { className: "row" }, this.play, this.clear)));
    const about = h("details", {}, h("summary", {}, "equations"), tex(MODEL, true), tex(FLOW, true));
    fill(root, this.said, this.flowing.element, this.running.element, h("div", { className: "view" }, this.controls.element, h("div", {}, charts, this.code.element, about)));
    this.square.plot.addEventListener("click", (event) => this.clicked(event));
    this.again = debounced(() => this.gone || this.ask(), 120);
  }

  leave() {
    cancelAnimationFrame(this.frame);
    this.flowing.cancel();
    this.running.cancel();
  }

  texts() {
    const v = this.state.values;
    return { task: `SpikedSLR(tokens=${v.tokens}, snr=${number(v.snr)})`, model: `KeyValueAttention(Erf(scale=${number(v.scale)}), unit_norm=True)` };
  }

  update() {
    this.controls.show();
    this.again();
    this.write();
  }

  ask() {
    const v = this.state.values;
    const base = JSON.stringify(this.texts());
    if (base !== this.base) {
      this.base = base;
      this.paths = [];
      this.flowing.run({ kind: "flow", ...this.texts() }, (event) => this.flowed(event), { gentle: true, label: "the flow" });
    }
    const { key, value, lr, steps, d } = v;
    const run = { kind: "run", ...this.texts(), key, value, lr, steps: Math.round(steps), d };
    const text = JSON.stringify(run);
    if (text === this.run) return;
    this.run = text;
    const mine = { base, start: [key, value] };
    this.running.run(run, (event) => this.arrived(event, mine), { gentle: true, label: "the run" });
  }

  flowed(event) {
    if (event.event === "flow") this.flow = event;
    this.draw();
  }

  arrived(event, mine) {
    if (event.event !== "path" || mine.base !== this.base) return;
    if (event.of === "theory") this.paths.push({ ...mine, theory: event });
    else this.paths.at(-1).training = event;
    this.paths = this.paths.slice(-12);
    const end = event.end[0] ?? "";
    const last = { key: event.key.at(-1), value: event.value.at(-1), risk: event.excess.at(-1) };
    const words = { oracle: "It finds the key (up to the common sign of key and value)", swapped: "It ends swapped: the key along the value teacher", other: "It has not arrived" }[end] ?? "It stopped";
    if (event.of === "theory") fill(this.said, h("b", {}, words), `: after ${event.steps.at(-1)} steps κ = ${digits(last.key)}, ν = ${digits(last.value)}, excess risk ${digits(last.risk)}.`);
    this.said.dataset.key = last.key;
    this.draw();
    this.animate();
  }

  forget() {
    this.paths = [];
    this.draw();
  }

  clicked(event) {
    const axes = this.square.plot._fullLayout;
    if (!axes?.xaxis) return;
    const box = this.square.plot.getBoundingClientRect();
    const x = axes.xaxis.p2d(event.clientX - box.left - axes.margin.l);
    const y = axes.yaxis.p2d(event.clientY - box.top - axes.margin.t);
    const place = (z) => Math.round(100 * z) / 100;
    if (Math.abs(x) <= 1 && Math.abs(y) <= 1) this.state.set({ key: place(x), value: place(y) });
  }

  // Plays the last path in time: a dot that moves, and the curve of the risk up to it.
  animate() {
    cancelAnimationFrame(this.frame);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || !this.paths.length) return this.draw();
    const began = performance.now();
    const step = (now) => {
      this.share = Math.min(1, (now - began) / 2500);
      this.draw();
      if (this.share < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
    return undefined;
  }

  draw() {
    const traces = this.flow ? [...arrows(this.flow), ...points(this.flow)] : [];
    const curves = [];
    this.paths.forEach((path, i) => {
      const last = i === this.paths.length - 1;
      const count = Math.max(1, Math.round((last ? (this.share ?? 1) : 1) * path.theory.steps.length));
      const shade = colour(last ? 0 : 4);
      const cut = (event) => ({ x: event.key.slice(0, count), y: event.value.slice(0, count), steps: event.steps.slice(0, count), excess: event.excess.slice(0, count) });
      const theory = cut(path.theory);
      traces.push({ x: theory.x, y: theory.y, mode: "lines", type: "scatter", name: "theory", line: { color: shade, width: last ? 3 : 1.5 }, hoverinfo: "skip" });
      traces.push({ x: [theory.x.at(-1)], y: [theory.y.at(-1)], mode: "markers", type: "scatter", name: "now", marker: { size: last ? 11 : 6, color: shade }, hoverinfo: "skip" });
      curves.push({ x: theory.steps, y: theory.excess, type: "scatter", mode: "lines", name: "theory", line: { color: shade, width: last ? 2.5 : 1.2 } });
      if (path.training) {
        const trained = cut(path.training);
        traces.push({ x: trained.x, y: trained.y, mode: "markers", type: "scatter", name: "training", marker: { size: 4, color: colour(1) }, hoverinfo: "skip" });
        curves.push({ x: trained.steps, y: trained.excess, type: "scatter", mode: "markers", name: "training", marker: { size: 4, color: colour(1) } });
      }
    });
    this.square.draw(traces, { x: { title: "κ (key)", range: [-1.04, 1.04], constrain: "domain" }, y: { title: "ν (value)", range: [-1.04, 1.04], scaleanchor: "x", constrain: "domain" }, annotations: this.flow ? heads(this.flow) : [] });
    this.risk.draw(curves, { x: { title: "steps" }, y: { title: "excess risk  (R)", rangemode: "tozero" } });
  }

  write() {
    const { task, model } = this.texts();
    const v = this.state.values;
    const every = Math.max(1, Math.floor(Math.round(v.steps) / 200));
    const learner = `ProjectedDescent(lr=${number(v.lr)}, steps=${Math.round(v.steps)}, start=Overlaps(key=${number(v.key)}, value=${number(v.value)}), record_every=${every})`;
    const code = `import needlepoint as ndl\n\ntask = ${python(task)}\nmodel = ${python(model)}\nlearner = ${python(learner)}\nfound = ndl.predict(task, model, learner)\nprint(found.trajectory.end())`;
    this.code.show(code, `needlepoint predict --task "${task}" \\\n    --model "${model}" \\\n    --learner "${learner}"`);
  }
}

function speed(flow) {
  return flow.key_dot.map((row, i) => row.map((x, j) => Math.hypot(x, flow.value_dot[i][j])));
}

function arrows(flow) {
  const fast = speed(flow);
  const most = Math.max(...fast.flat());
  const shade = ink("ground") === "#ffffff" ? [[0, "#ffffff"], [1, "#a9c9e8"]] : [[0, "#12161d"], [1, "#27507a"]];
  const z = fast.map((row) => row.map((s) => Math.log10(Math.max(s / most, 1e-3))));
  const line = { color: ink("soft"), width: 1.2, dash: "dash" };
  return [
    { type: "heatmap", x: flow.grid, y: flow.grid, z, colorscale: shade, showscale: false, hoverinfo: "skip", zsmooth: "best", name: "speed (log10)" },
    { x: flow.nullcline[0], y: flow.nullcline[1], type: "scatter", mode: "lines", line, name: "the key turns", hoverinfo: "skip" },
  ];
}

function heads(flow) {
  const found = [];
  const step = flow.grid[1] - flow.grid[0];
  for (let i = 1; i < flow.grid.length; i += 2) {
    for (let j = 1; j < flow.grid.length; j += 2) {
      const [x, y] = [flow.key_dot[i][j], flow.value_dot[i][j]];
      const size = Math.hypot(x, y);
      if (!(size > 0)) continue;
      const long = (1.3 * step) / size;
      found.push({ x: flow.grid[j] + (x * long) / 2, y: flow.grid[i] + (y * long) / 2, ax: flow.grid[j] - (x * long) / 2, ay: flow.grid[i] - (y * long) / 2, xref: "x", yref: "y", axref: "x", ayref: "y", text: "", showarrow: true, arrowhead: 2, arrowsize: 0.8, arrowwidth: 1, arrowcolor: ink("soft"), opacity: 0.75 });
    }
  }
  return found;
}

function points(flow) {
  const swapped = flow.swapped.kind === "minimum" ? [{ ...flow.swapped, name: "swapped minimum (off the square)" }] : [];
  return [...flow.points, ...swapped].map((p) => {
    const [symbol, index] = MARKS[p.kind] ?? ["diamond", 4];
    const name = p.name ?? p.kind;
    return { x: [p.key], y: [p.value], type: "scatter", mode: "markers", name, marker: { symbol, size: 11, color: colour(index), line: { color: ink("ground"), width: 1 } }, hovertemplate: `${name}: excess risk ${digits(p.excess)}<extra></extra>`, cliponaxis: false };
  });
}
