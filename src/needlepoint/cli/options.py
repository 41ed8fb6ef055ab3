"""What the commands share: options, reading specs from them, a progress bar, and a check of files to write."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlepoint.core.errors import InvalidParameter, one_line
from needlepoint.core.progress import watched

if TYPE_CHECKING:
    from needlepoint.core.specs import Spec

BAD_INPUT, NOT_CONVERGED = 2, 3
PICTURES = (".png", ".pdf", ".svg")

Task = Annotated[str | None, typer.Option(help='As in Python: "SpikedSLR(tokens=3, snr=2)"; see `needlepoint tasks`')]
Model = Annotated[
    str | None,
    typer.Option(help='"KeyValueAttention(Softmax())"; leave it out for BayesOptimal; see `needlepoint models`'),
]
Learner = Annotated[
    str | None, typer.Option(help='"Population()", "Ridge(alpha=5, lam=0.1)"; see `needlepoint learners`')
]
Activations = Annotated[
    Path | None,
    typer.Option(
        "--theory",
        "--activations",
        help="Python file with activations (@ndl.activation), tasks and models (@ndl.spec) of your own. The file is "
        "RUN as a program: name one that you trust",
    ),
]
SpecFile = Annotated[Path | None, typer.Option("--spec", help="TOML or JSON file with task, model, learner")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="Change a field: task.snr=4 (repeatable)")]
Seed = Annotated[int, typer.Option(help="Seed of what is random", min=0, max=2**63 - 1)]
Tol = Annotated[float | None, typer.Option(help="How well the answer is to be known; none is the solver's own choice")]
Ansatz = Annotated[
    str, typer.Option(help="rs (replica symmetry), or 1rsb: the lowest minimum of Ridge where training has many")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output")]
Repeats = Annotated[int, typer.Option(help="Independent repeats")]
Samples = Annotated[int, typer.Option(help="Test sequences a repeat")]
Starts = Annotated[
    int, typer.Option(help="Random weights from which the minimum of Ridge is sought in training; the lowest counts")
]
At = Annotated[str | None, typer.Option("--overlaps", help='Weights to measure at: "Overlaps(key=1, value=1)"')]
Picture = Annotated[Path | None, typer.Option("--plot", help="Draw the result: a .png, .pdf or .svg file")]
How = Annotated[str, typer.Option("--executor", help="serial, processes or dask")]
Workers = Annotated[int | None, typer.Option(help="Workers of the process pool or the local dask cluster")]
Memory = Annotated[str | None, typer.Option(help="Memory budget of the process pool, as '4 GB'")]
Address = Annotated[str | None, typer.Option(help="Address of a dask scheduler, tcp://...")]
StoreFile = Annotated[Path, typer.Argument(metavar="STORE", help="A store that sweep has written")]


def read_specs(
    task: str | None,
    model: str | None,
    learner: str | None,
    spec: Path | None,
    changes: list[str] | None,
    *,
    needed: Sequence[str] = ("task", "learner"),
    activations: Path | None = None,
) -> tuple[Any, Spec | None, Any]:
    """Return task, model and learner from options, which take precedence over a file; those `needed` must be given."""
    import needlepoint.specs_by_name  # noqa: F401
    from needlepoint.core.text.parsing import combine, read_spec_file

    run_activations(activations)
    document = read_spec_file(spec) if spec is not None else {}
    parts = combine(document, {"task": task, "model": model, "learner": learner}, changes or [])
    for name in needed:
        if parts[name] is None:
            raise InvalidParameter(f"--{name} is missing (or a --spec file that has it).")
    return parts["task"], parts["model"], parts["learner"]


def run_activations(path: Path | None) -> None:
    """Run a user's file, which declares activations, tasks or models; raise one sentence if that fails or it declares
    none.

    The module has the name of the file and its folder is searched first, so that worker processes can import it.
    """
    if path is None:
        return
    import importlib.util

    import needlepoint.specs_by_name  # noqa: F401
    from needlepoint.core.specs import lookup, names

    where, stem = f"--theory {path}", path.stem
    if not path.is_file() or path.suffix != ".py":
        raise InvalidParameter(f"{where}: this must be a Python file that exists, such as my_theory.py.")
    other = importlib.util.find_spec(stem) if stem.isidentifier() else None
    if not stem.isidentifier() or (other is not None and path.resolve() != Path(other.origin or ".").resolve()):
        raise InvalidParameter(
            f"{where}: a module is called {stem} already, or it cannot be the name of one; call the file otherwise, "
            "such as my_theory.py."
        )
    known = {name: lookup(name) for name in names()}
    spec = importlib.util.spec_from_file_location(stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InvalidParameter(f"{where}: running the file failed: {one_line(error)}") from None
    if {name: lookup(name) for name in names()} == known:
        raise InvalidParameter(
            f"{where}: the file declares nothing; write @ndl.activation('mine') above a function, or @ndl.spec above a "
            "class of a task or a model."
        )


def progress_bar(text: str) -> AbstractContextManager[Any]:
    """Return a context with a function of the fraction done and what is done, shown on standard error: a bar on a
    terminal, a line every few seconds elsewhere."""
    return watched(text, True)


def check_target(path: Path | None, kinds: Sequence[str] = PICTURES) -> None:
    """Raise InvalidParameter for a file that could not be written; called before anything is computed."""
    if path is None:
        return
    folder = path.absolute().parent
    if path.suffix.lower() not in kinds:
        ends = kinds[0] if len(kinds) == 1 else f"one of {', '.join(kinds)}"
        raise InvalidParameter(f"cannot write {path}: the name must end in {ends}.")
    if not folder.is_dir():
        raise InvalidParameter(f"cannot write {path}: there is no folder {folder}.")
    if path.is_dir():
        raise InvalidParameter(f"cannot write {path}: it is a folder.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidParameter(f"cannot write {path}: writing there is not permitted.")
