// Equations by KaTeX; where it is not there the source stands.

export function tex(source, display = false) {
  const element = document.createElement(display ? "div" : "span");
  if (display) element.className = "equation";
  const katex = globalThis.katex;
  if (katex) katex.render(source, element, { displayMode: display, throwOnError: false, output: "html" });
  else element.textContent = source;
  return element;
}
