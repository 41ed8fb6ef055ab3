"""The command `explore` of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from needlepoint.cli.options import Activations, check_target, run_activations

Folders = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[PATH]...", help="Studies and checkpoints, or folders of them, that the page may open"),
]
Port = Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one", min=0, max=65535)]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="A further name by which the page may be addressed (repeatable)"),
]
Quiet = Annotated[bool, typer.Option("--no-browser", help="Print the address and open nothing")]

Export = Annotated[
    Path | None, typer.Option(help="Write the study at PATH to one .html file, which needs no server, and stop")
]


def explore(
    paths: Folders = None,
    theory: Activations = None,
    port: Port = 0,
    allow_host: Hosts = None,
    no_browser: Quiet = False,
    export: Export = None,
) -> None:
    """A page on this machine where curves move as sliders do; needs the extra `explorer`."""
    if export is not None:
        check_target(export, (".html",))
        from needlepoint.explorer.export import export_study

        run_activations(theory)
        print(export_study(paths or [], export))
        return
    from needlepoint.explorer.server.serving import serve
    from needlepoint.explorer.settings import Settings

    settings = Settings(tuple(paths or ()), theory, tuple(allow_host or ())).checked()
    run_activations(settings.theory)
    serve(settings, port=port, browser=not no_browser)
