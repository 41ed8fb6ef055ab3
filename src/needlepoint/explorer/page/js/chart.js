// Pictures by plotly in the colours of the page, with downloads of the picture and of its numbers.

import { h } from "./dom.js";

export const COLOURS = ["#0b63b0", "#d1495b", "#2f8f5b", "#b7791f", "#7a4fb5", "#00838f", "#a0522d"];
const DARK = ["#6cb4ff", "#ff8494", "#6fd39b", "#f2bd63", "#bf9df0", "#5fd3de", "#d9a27c"];
const CONFIG = {
  displaylogo: false,
  responsive: true,
  showSendToCloud: false,
  plotlyServerURL: "",
  displayModeBar: false,
  doubleClick: "reset",
};

export function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

export function colour(index) {
  return (isDark() ? DARK : COLOURS)[index % COLOURS.length];
}

export function ink(name) {
  const dark = { ink: "#e6eaf1", soft: "#a2adbf", line: "#303949", ground: "#12161d" };
  const light = { ink: "#1d2430", soft: "#596273", line: "#e3e7ee", ground: "#ffffff" };
  return (isDark() ? dark : light)[name];
}

function axis(given = {}) {
  const { title, ...rest } = given;
  const line = { gridcolor: ink("line"), zerolinecolor: ink("line"), linecolor: ink("soft"), ticks: "outside", ticklen: 4, tickcolor: ink("line") };
  return { ...line, showline: true, automargin: true, title: { text: title ?? "", font: { size: 13 }, standoff: 8 }, ...rest };
}

// Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, or only at these where there are many.
export function logTicks(lo, hi) {
  const steps = hi / lo > 300 ? [1] : [1, 2, 5];
  const found = [];
  for (let power = Math.floor(Math.log10(lo)) - 1; power <= Math.log10(hi) + 1; power += 1) {
    for (const step of steps) found.push(Number((step * 10 ** power).toPrecision(3)));
  }
  return found;
}

export class Chart {
  constructor(label, { tall = false, links = true } = {}) {
    this.plot = h("div", { className: tall ? "plot tall" : "plot", role: "img", "aria-label": label });
    this.links = h("div", { className: "row links" });
    if (links) {
      this.links.append(
        h("button", { type: "button", onclick: () => this.picture("svg") }, "picture (SVG)"),
        h("button", { type: "button", onclick: () => this.picture("png") }, "picture (PNG)"),
        h("button", { type: "button", onclick: () => this.numbers() }, "numbers (CSV)"),
      );
    }
    this.label = label;
    this.element = h("div", { className: "chart" }, this.plot, this.links);
    this.traces = [];
  }

  // Draws traces; `x`, `y` are axes of plotly's layout with `title` as a text.
  draw(traces, { x = {}, y = {}, ...layout } = {}) {
    this.traces = traces;
    const Plotly = globalThis.Plotly;
    if (!Plotly || !this.plot.clientWidth) return Promise.resolve(); // not shown, or not yet
    const font = { family: "system-ui, sans-serif", size: 12, color: ink("ink") };
    const whole = {
      font,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 56, r: 10, t: 12, b: 44 },
      showlegend: false,
      hovermode: "closest",
      hoverlabel: { bgcolor: ink("ground"), bordercolor: ink("soft"), font: { color: ink("ink"), size: 12 } },
      dragmode: false,
      ...layout,
      xaxis: axis(x),
      yaxis: axis(y),
    };
    return Plotly.react(this.plot, traces, whole, CONFIG);
  }

  onClick(action) {
    const wait = () => (this.plot.on ? this.plot.on("plotly_click", (event) => action(event.points[0])) : setTimeout(wait, 50));
    wait();
  }

  picture(format) {
    const size = { width: this.plot.clientWidth, height: this.plot.clientHeight, scale: format === "png" ? 2 : 1 };
    return globalThis.Plotly.downloadImage(this.plot, { format, filename: slug(this.label), ...size });
  }

  csv() {
    const rows = [["curve", "x", "y", "error"]];
    for (const trace of this.traces) {
      if (trace.z) trace.z.forEach((row, i) => row.forEach((z, j) => rows.push([trace.name ?? "", trace.x[j], trace.y[i], z])));
      else trace.x?.forEach((x, i) => trace.y[i] !== null && rows.push([trace.name ?? "", x, trace.y[i], trace.error_y?.array?.[i] ?? ""]));
    }
    return rows.map((row) => row.map((cell) => (/[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell)).join(",")).join("\n");
  }

  numbers() {
    save(`${slug(this.label)}.csv`, this.csv(), "text/csv");
  }
}

export function save(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function slug(text) {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60);
}

// A curve as two traces, solid where it is trusted and dashed where it is not; both have the points between them.
export function trusted(points, style) {
  const solid = points.map((p) => (p.trusted ? p.y : null));
  const dashed = points.map((p, i) => {
    const near = !p.trusted || (points[i - 1] && !points[i - 1].trusted) || (points[i + 1] && !points[i + 1].trusted);
    return near ? p.y : null;
  });
  const shared = { x: points.map((p) => p.x), type: "scatter", mode: "lines", name: style.name, text: points.map((p) => p.text ?? ""), hovertemplate: `${style.name}: %{y:.4g} at %{x:.3g}<br>%{text}<extra></extra>` };
  const line = { color: style.colour, width: style.width ?? 2 };
  return [
    { ...shared, y: solid, line: { ...line, dash: style.dash ?? "solid" } },
    { ...shared, y: dashed, line: { ...line, dash: "dot" }, opacity: 0.8, name: `${style.name} (not trusted)` },
  ];
}
