"""The application: collects the commands, and turns a user's errors into one sentence and exit code 2."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from needlepoint.cli.catalogue import learners, models, tasks
from needlepoint.cli.checkpoints import heads, probe, truncate
from needlepoint.cli.contest import contest
from needlepoint.cli.examples import below
from needlepoint.cli.figures import cite, figures, reproduce
from needlepoint.cli.indexed import spectrum, thresholds
from needlepoint.cli.interrupts import INTERRUPTED
from needlepoint.cli.options import BAD_INPUT, NOT_CONVERGED
from needlepoint.cli.studies import study_app, sweep
from needlepoint.cli.verbs import compare, predict, simulate
from needlepoint.core.errors import NeedlepointError, NotConverged, brief, one_line
from needlepoint.core.process.caching import use_cache
from needlepoint.explorer.command import explore

_MEMORY = "this needs more memory than there is; take a smaller d, length, batch or number of runs."

app = typer.Typer(
    name="needlepoint",
    help="What attention layers learn when dimension and data are large, checked against training at finite size.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line with the arguments of this process, and exit with the code that `run` returns."""
    use_cache()
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        # compiled code may still run in other threads and would crash when the interpreter shuts down: skip that
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run one command and return its exit code: 0 done, 2 bad input, 3 not converged, 130 interrupted."""
    try:
        code = app(args, prog_name="needlepoint", standalone_mode=False)
    except NotConverged as error:
        return _fail(one_line(error), NOT_CONVERGED)
    except NeedlepointError as error:
        return _fail(one_line(error), BAD_INPUT)
    except KeyboardInterrupt:
        return _fail("interrupted.", INTERRUPTED)
    except MemoryError:
        return _fail(_MEMORY, BAD_INPUT)
    except OSError as error:
        return _fail(f"cannot read or write {error.filename or 'a file'}: {error.strerror or error}.", BAD_INPUT)
    except Exception as error:
        # errors of the option parser can format themselves; anything else is a defect and keeps its traceback
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # pyright: ignore[reportAttributeAccessIssue]  # of click
            return BAD_INPUT
        if "RESOURCE_EXHAUSTED" in str(error):
            return _fail(_MEMORY, BAD_INPUT)
        if hasattr(error, "format_message"):
            sentence = getattr(error, "format_message")()  # noqa: B009 (known to be there, not to the type checker)
            return _fail(" ".join(sentence.split()), BAD_INPUT)
        raise
    return code if isinstance(code, int) else 0


def _fail(sentence: str, code: int) -> int:
    print(f"needlepoint: {brief(sentence)}", file=sys.stderr)
    return code


def _say_version(asked: bool) -> None:
    if asked:
        import needlepoint as ndl

        print(f"needlepoint {ndl.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Options that come before a command."""


for command in (
    predict,
    simulate,
    compare,
    contest,
    sweep,
    thresholds,
    spectrum,
    figures,
    reproduce,
    heads,
    truncate,
    probe,
    explore,
    tasks,
    models,
    learners,
    cite,
):
    app.command(epilog=below(command.__name__))(command)
app.add_typer(study_app, name="study")
