// The Python and the command line that give what is shown, with buttons that copy them.

import { h } from "./dom.js";

export function number(x) {
  return Number.isInteger(x) ? x.toFixed(1) : String(x);
}

export function python(text) {
  return text.replace(/\b(SpikedSLR|MaxSLR|AttentionIndexed|Wishart|PowerLaw|Eigenvalues|KeyValueAttention|Softmax|SoftmaxOne|Softplus|Linear|Erf|TiedAttention|DirectAttention|Ridge|BayesOptimal|Population|ProjectedDescent|Overlaps|GradientFlow|OnlineSGD)\(/g, "ndl.$1(");
}

export function shell(text) {
  return `"${text}"`;
}

export class Code {
  constructor() {
    this.python = h("pre", { id: "python", tabIndex: 0 });
    this.command = h("pre", { id: "command", tabIndex: 0 });
    this.element = h("div", { className: "code" }, block("Python", this.python), block("command line", this.command));
  }

  show(pythonText, commandText) {
    this.python.textContent = pythonText;
    this.command.textContent = commandText;
  }
}

function block(title, pre) {
  const button = h("button", { type: "button" }, "copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(pre);
      button.textContent = "selected";
    }
    setTimeout(() => (button.textContent = "copy"), 1500);
  });
  return h("div", {}, h("div", { className: "row" }, h("span", { className: "small" }, title), button), pre);
}
