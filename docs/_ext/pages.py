"""Pages that are written from the package when the documentation is built: the reference, and a page a figure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parent.parent / "images" / "figures"
HELP_WIDTH = 100  # columns of a command's help text; a code block of the theme has about as many


@dataclass(frozen=True)
class Group:
    """A page of the reference: names whose module begins with one of `homes`; `members` shows methods as well."""

    slug: str
    title: str
    homes: tuple[str, ...]
    says: str
    members: bool = False
    first: tuple[str, ...] = ()  # the names to begin with, wherever they live; the others follow by the alphabet


# The longest home that fits decides, so that a new name finds its page by where it lives.
GROUPS = (
    Group(
        "verbs",
        "Verbs",
        ("theory.predicting", "simulation.simulating", "theory.comparing", "plotting", "papers", "explorer"),
        "Ask a question of the theory, ask the same question of training, put the two side by side, draw the answer.",
        first=("predict", "simulate", "compare", "contest", "plot", "explore"),
    ),
    Group(
        "tasks",
        "Tasks",
        ("tasks",),
        "A task is a law of data, without a sample size or a dimension. Targets are laws of the hidden matrix of the "
        "attention-indexed model.",
    ),
    Group("models", "Models", ("models",), "A model is a predictor; its activation says how scores become weights."),
    Group(
        "learners",
        "Learners and losses",
        ("learners", "losses"),
        "A learner says how the weights of a model are chosen, and a loss what its errors cost.",
    ),
    Group(
        "specs",
        "Declaring specs",
        ("core.specs",),
        "What a task or a model of your own is written with. [How to write one](../extending.md#a-theory-of-your-own).",
    ),
    Group(
        "results",
        "Results",
        ("core",),
        "What the verbs return. Every number is an `Estimate` with an error, every result has a `Status`.",
        members=True,
        first=("Prediction", "Measurement", "Comparison", "Contest", "Estimate", "Status"),
    ),
    Group(
        "studies",
        "Studies",
        ("studies",),
        "Questions asked at many places, on one machine or many, kept in one file. [How to use them](../studies.md).",
        members=True,
        first=("sweep", "Study", "open_study", "Simulation", "Refine"),
    ),
    Group(
        "checkpoints",
        "Real transformers",
        ("checkpoints",),
        "What the theory says about weights that people have. [How to use it](../real-models.md), and "
        "[what cannot be concluded](../real-models-limits.md).",
        first=("read_checkpoint", "heads", "truncation", "probe"),
    ),
    Group(
        "infinite-data",
        "Statements at infinite data",
        ("theory.location", "theory.location.population"),
        "What is known in closed form, or as one integral, about attention on single-location regression at infinite "
        "data. [The derivations](../theory/softmax-location.md).",
        members=True,
    ),
    Group(
        "erf-landscape",
        "The landscape of erf attention",
        ("theory.location.erf",),
        "Fixed points and flow of erf attention on the sphere. [The derivations](../theory/erf-location.md).",
        members=True,
    ),
    Group(
        "bayes-samples",
        "Bayes-optimal learning from samples",
        ("theory.location.bayes",),
        "Branches of the state evolution and where they end. [The derivations](../theory/bayes-samples.md).",
        members=True,
    ),
    Group(
        "phases",
        "Phases of field models",
        ("theory.fields",),
        "Solutions one by one, and where they exchange their order. [The derivations](../theory/fields.md).",
        members=True,
    ),
    Group(
        "indexed",
        "Statements on the attention-indexed model",
        ("theory.indexed",),
        "Thresholds, and power laws of learning. [The derivations](../theory/attention-indexed.md).",
        members=True,
    ),
    Group("errors", "Errors", ("core.errors",), "What is raised on purpose. The message says what to do next."),
    Group("more", "Settings", ("",), "What concerns the library as a whole.", first=("use_cache",)),
)


def grouped() -> dict[str, list[str]]:
    """Return the public names of the package by the page of the reference that they are on."""
    import needlepoint as ndl

    claimed = {name: g.slug for g in GROUPS for name in g.first}

    def group_of(home: str) -> str:
        fitting = [(len(h), g.slug) for g in GROUPS for h in g.homes if home == h or home.startswith(f"{h}.") or not h]
        return max(fitting)[1]

    found: dict[str, list[str]] = {g.slug: [] for g in GROUPS}
    for name in ndl.__all__:
        found[claimed.get(name) or group_of(ndl._HOME[name])].append(name)
    first = {g.slug: g.first for g in GROUPS}

    def place(slug: str, name: str) -> tuple[int, str]:
        return (first[slug].index(name) if name in first[slug] else len(first[slug]), name.lower())

    return {slug: sorted(names, key=lambda n: place(slug, n)) for slug, names in found.items() if names}


def write(path: Path, text: str) -> None:
    """Write a page if it has changed, so that an unchanged one is not built again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_all(pages: dict[Path, str], folder: Path) -> None:
    """Write the pages of a folder, and remove those of an earlier build that are no longer there."""
    for path, text in pages.items():
        write(path, text)
    for path in folder.glob("*.md"):
        if path not in pages:
            path.unlink()


def write_reference(folder: Path) -> None:
    import needlepoint as ndl

    pages: dict[Path, str] = {}
    names = grouped()
    groups = [g for g in GROUPS if g.slug in names]
    for group in groups:
        pages[folder / f"{group.slug}.md"] = _reference_page(group, names[group.slug], lambda n: getattr(ndl, n))
    pages[folder / "command-line.md"] = _command_line()
    rows = "\n".join(
        f"| [{g.title}]({g.slug}.md) | {', '.join(f'[`{n}`](#needlepoint.{n})' for n in names[g.slug])} |"
        for g in groups
    )
    toc = "\n".join([*(g.slug for g in groups), "command-line"])
    pages[folder / "index.md"] = (
        "# Reference\n\nEvery public name of the package, with its signature, its formula where it has one, and an "
        "example that the tests run. In the examples the package is imported as `ndl`. The commands are on "
        "[a page of their own](command-line.md).\n\n"
        f"| page | names |\n|---|---|\n{rows}\n\n```{{toctree}}\n:hidden:\n\n{toc}\n```\n"
    )
    write_all(pages, folder)


def _link(name: str) -> str:
    return f"[`{name}`](#needlepoint.{name})"


def _reference_page(group: Group, names: list[str], get: Callable[[str], Any]) -> str:
    from needlepoint.core.results import Result
    from needlepoint.core.status import Status

    parts = [f"# {group.title}\n\n{group.says}\n\n```{{py:currentmodule}} needlepoint\n```\n"]
    for name in names:
        value = get(name)
        error = isinstance(value, type) and issubclass(value, Exception)
        kind = "exception" if error else "class" if isinstance(value, type) else "function"
        members = "   :members:\n" if group.members and kind == "class" else ""
        if kind == "class" and issubclass(value, Result):
            members += "   :inherited-members:\n"
        parts.append(f"## {name}\n\n```{{eval-rst}}\n.. auto{kind}:: needlepoint.{name}\n{members}```\n")
        if value is Status:
            rows = "\n".join(f"| `{status.name}` | {status.sentence} |" for status in Status)
            parts.append(f"| status | what it says |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def _command_line() -> str:
    """Return the page of the commands: what `--help` prints for each."""
    import typer

    from needlepoint.cli.app import app

    root = typer.main.get_command(app)
    parts = [
        "# Command line\n\nThe commands mirror the verbs. Tasks, models and learners are written as in Python and "
        "parsed, never evaluated. `--json` prints one JSON document on standard output, with progress and messages on "
        "standard error. Exit codes: 0 done, 2 bad input (one sentence says what), 3 not converged.\n"
    ]

    def describe(command: Any, path: str, level: int) -> None:
        with command.context_class(
            command, info_name=path, max_content_width=HELP_WIDTH, terminal_width=HELP_WIDTH
        ) as c:
            text = command.get_help(c)
        title = path if path != "needlepoint" else "needlepoint, all commands"
        parts.append(f"{'#' * level} {title}\n\n```text\n{text.strip()}\n```\n")
        for name, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                describe(inner, f"{path} {name}", 2 if path == "needlepoint" else 3)

    describe(root, "needlepoint", 2)
    return "\n".join(parts)


def write_figures(folder: Path) -> None:
    """Write a page for every figure of the registry, with its picture at the quick size."""
    from needlepoint.papers.citations import PAPERS
    from needlepoint.papers.figures import figures

    pages: dict[Path, str] = {}
    cards: dict[str, list[str]] = {}
    for figure in figures().values():
        picture = PICTURES / f"{figure.id}.png"
        image = f"../images/figures/{figure.id}.png"
        alt = re.sub(r"[\[\]]", "", figure.title)
        shown = f"![{alt}]({image})\n\n" if picture.exists() else ""
        pages[folder / f"{figure.id}.md"] = (
            f"# {figure.title}\n\n{shown}{figure.caption}\n\n"
            f"The picture is the quick size, as `make demo` draws it: theory as lines, training or Monte Carlo as "
            f"points. To draw it yourself, with its numbers as CSV files and every comparison in `agreement.csv`:\n\n"
            f"```sh\nneedlepoint reproduce {figure.id} --quick --out out\n"
            f"needlepoint reproduce {figure.id} --full --out full   # the paper's size, which takes longer\n```\n\n"
            f"The setting is that of [arXiv {figure.paper}](https://arxiv.org/abs/{figure.paper}). "
            f"[All figures](index.md), [what each shows](../figures.md).\n"
        )
        thumb = f"[![{alt}]({image})]({figure.id}.md)\n\n" if picture.exists() else ""
        cards.setdefault(figure.paper, []).append(f":::{{container}}\n{thumb}[{figure.title}]({figure.id}.md)\n:::\n")
    parts = ["# Figures, one by one\n\nEvery figure that `needlepoint reproduce` draws, at the quick size.\n"]
    for paper, found in cards.items():
        title = PAPERS[paper]["title"] if paper in PAPERS else f"arXiv {paper}"
        parts.append(f"## {title}\n\n::::{{container}} cards\n" + "\n".join(found) + "::::\n")
    toc = "\n".join(path.stem for path in pages)
    parts.append(f"```{{toctree}}\n:hidden:\n\n{toc}\n```\n")
    pages[folder / "index.md"] = "\n".join(parts)
    write_all(pages, folder)
