"""The command line: `app` collects the commands of `verbs`, `contest`, `figures`, `studies`, `indexed` and
`catalogue`, which share `options` and `examples`; `interrupts` handles Ctrl-C.

Nothing heavy is imported before a command needs it: `--help` takes a tenth of a second.
"""

from needlepoint.cli.app import main, run

__all__ = ["main", "run"]
