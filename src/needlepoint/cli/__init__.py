"""The command line: `app` puts it together from `verbs`, `figures`, `studies` and `indexed`; they share `options`.

Nothing heavy is imported before a command needs it: `--help` takes a tenth of a second. `interrupts` is Ctrl-C.
"""

from needlepoint.cli.app import main, run

__all__ = ["main", "run"]
