// Sliders, selections and switches that are bound to a field of the state.

import { digits, h } from "./dom.js";
import { tex } from "./math.js";

// A range input with a number beside it. Logarithmic where the field says so; a typed number is taken as it is.
export function slider(state, name, label, symbol = "") {
  const field = state.tab.fields[name];
  const to = field.log ? Math.log : (x) => x;
  const back = field.log ? Math.exp : (x) => x;
  const steps = field.whole ? field.hi - field.lo : 120;
  const range = h("input", { type: "range", min: 0, max: steps, step: 1, "aria-label": label, id: `slider-${name}` });
  const now = h("input", { type: "text", className: "now", inputMode: "decimal", "aria-label": `${label}, as a number`, id: `number-${name}` });
  const at = () => back(to(field.lo) + ((to(field.hi) - to(field.lo)) * range.value) / steps);
  const rounded = () => (field.whole ? Math.round(at()) : Number(at().toPrecision(3)));
  range.addEventListener("input", () => state.set({ [name]: rounded() }, false));
  range.addEventListener("change", () => state.set({ [name]: rounded() }, true));
  now.addEventListener("change", () => state.set({ [name]: now.value }, true));
  const show = () => {
    const value = state.values[name];
    const place = (steps * (to(value) - to(field.lo))) / (to(field.hi) - to(field.lo));
    if (rounded() !== value) range.value = Math.round(place);
    if (document.activeElement !== now || now.value === "" || Number(now.value) !== value) now.value = digits(value, 6);
    range.setAttribute("aria-valuetext", digits(value, 6));
  };
  show();
  const element = h("label", { className: "control" });
  element.append(h("span", { className: "name" }, h("span", {}, `${label} `, symbol ? tex(symbol) : ""), now), range);
  return { element, show };
}

export function selection(state, name, label, options) {
  const select = h("select", { id: `select-${name}`, "aria-label": label });
  for (const [value, text] of options) select.append(h("option", { value }, text));
  select.addEventListener("change", () => state.set({ [name]: select.value }));
  const show = () => (select.value = state.values[name]);
  show();
  return { element: h("label", { className: "control" }, h("span", { className: "name" }, label), select), show };
}

export function words(state, name, label) {
  const input = h("input", { type: "text", id: `text-${name}`, "aria-label": label, spellcheck: false, autocomplete: "off" });
  input.addEventListener("change", () => state.set({ [name]: input.value }));
  const show = () => (input.value = state.values[name]);
  show();
  return { element: h("label", { className: "control" }, h("span", { className: "name" }, label), input), show };
}

export function panel(...controls) {
  const element = h("div", { className: "side" }, controls.map((control) => control.element ?? control));
  return { element, show: () => controls.forEach((control) => control.show?.()) };
}
