"""Equations by KaTeX in the reader's browser, from the explorer's copy: nothing is fetched from anywhere."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.domains.math import MathDomain
from sphinx.util.math import get_node_equation_number


def _inline(writer: Any, node: nodes.math) -> None:
    tex = writer.encode(node.astext()).strip()
    writer.body.append(f'<span class="math notranslate" data-tex="inline">{tex}</span>')
    raise nodes.SkipNode


def _display(writer: Any, node: nodes.math_block) -> None:
    """Write an equation, with its number and an anchor if it has a label."""
    tex = node.astext().strip()
    if "\\\\" in tex and "\\begin" not in tex:  # lines of one equation, as sphinx itself treats them
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    wrapped = "math-wrapper" in node.parent.get("classes", ())  # the theme's own box, which carries the anchor
    anchor = "" if wrapped or not node["ids"] else f' id="{node["ids"][0]}"'
    writer.body.append(f'<div class="equation notranslate"{anchor}>')
    writer.body.append(f'<span data-tex="display">{writer.encode(tex)}</span>')
    if node["number"]:
        number = get_node_equation_number(writer, node)
        writer.body.append(f'<span class="eqno">({number})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append("</div>\n")
    raise nodes.SkipNode


class Equations(MathDomain):
    """Numbers begin anew on every page, so a reference to an equation of another page names that page too."""

    def resolve_xref(self, env: Any, fromdocname: str, builder: Any, typ: str, target: str, *rest: Any) -> Any:
        found = super().resolve_xref(env, fromdocname, builder, typ, target, *rest)
        if found is not None and self.equations[target][0] != fromdocname:
            page, number = self.equations[target]
            found.clear()
            found += nodes.Text(f"({number}, {page.rsplit('/')[-1]})")
        return found


def setup(app: Any) -> dict[str, Any]:
    app.add_domain(Equations, override=True)
    app.add_html_math_renderer("bundled", (_inline, None), (_display, None))
    for file in ("katex/katex.min.css", "docs.css"):
        app.add_css_file(file)
    for file in ("katex/katex.min.js", "render-math.js"):
        app.add_js_file(file, loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
