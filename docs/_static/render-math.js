// Renders what docs/_ext/katex_math.py has written. An equation that KaTeX cannot read stays as its source, in red.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll("[data-tex]")) {
    katex.render(element.textContent, element, {
      displayMode: element.dataset.tex === "display",
      throwOnError: false,
    });
  }
});
