"""The function `explore`: the page, the widget in a notebook, or a study saved as one file."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.progress import in_notebook
from needlepoint.core.results import Result


def explore(
    opened: Any = None,
    *,
    export: str | PathLike[str] | None = None,
    theory: str | PathLike[str] | None = None,
    folders: Sequence[str | PathLike[str]] = (),
    port: int = 0,
) -> Any:
    """Return the explorer as a widget in a notebook; elsewhere serve it as a page until interrupted.

    opened   a prediction or measurement whose setting the explorer opens at, or the path of a study
    export   write the study at `opened` to this .html file instead, which needs no server, and return the path
    theory   a Python file with tasks, models and activations of your own
    folders  studies and checkpoints, or folders of them, that the page may open
    port     of the page on 127.0.0.1; 0 takes a free one

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> asked = ndl.SpikedSLR(2, snr=1.0), None, ndl.BayesOptimal()
    >>> ndl.sweep(*asked, {"task.snr": [1.0, 2.0]}, store=folder / "study.sqlite").close()
    >>> ndl.explore(folder / "study.sqlite", export=folder / "page.html").name
    'page.html'
    """
    from needlepoint.explorer.settings import Settings

    paths = [Path(p) for p in folders]
    if isinstance(opened, (str, PathLike)):
        paths.insert(0, Path(opened))
    elif opened is not None and not isinstance(opened, Result):
        raise InvalidParameter(f"explore({shown(opened)}): takes a prediction, a measurement, or the path of a study.")
    if export is not None:
        from needlepoint.explorer.export import export_study

        return export_study(paths[:1], Path(export))
    initial = at(opened) if isinstance(opened, Result) else {}
    settings = Settings(tuple(paths), None if theory is None else Path(theory)).checked()
    if in_notebook():
        from needlepoint.explorer.widget import widget

        return widget(initial, settings)
    from needlepoint.explorer.server.serving import serve

    return serve(settings, port=port, initial=initial)


def at(result: Result) -> dict[str, str]:
    """Return the state of the page, as the fields of its address, that shows the setting of a result.

    Fields that the page does not have are left out; what lies outside its sliders is taken to their ends.
    """
    task, model, learner = result.task, result.model, result.learner
    found: dict[str, Any] = {"tab": "contest", "task": type(task).__name__}
    values = {name: getattr(task, name, None) for name in ("tokens", "snr", "noise")}
    values["alpha"] = getattr(learner, "alpha", None)
    if hasattr(task, "target"):
        lam, rank = getattr(learner, "lam", None), getattr(getattr(task, "target", None), "rank_ratio", None)
        noise = getattr(task, "noise_var", None)
        found = {"tab": "spectra", "model": f"{type(model).__name__}()"}
        values |= {"rank": rank, "lam": lam, "noise": noise}
    elif hasattr(learner, "lr"):
        scale = getattr(getattr(model, "activation", None), "scale", None)
        found = {"tab": "dynamics"}
        values |= {"scale": scale, "lr": getattr(learner, "lr", None), "steps": getattr(learner, "steps", None)}
    numbers = {n: v for n, v in values.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    return {name: str(value) for name, value in {**found, **numbers}.items()}
