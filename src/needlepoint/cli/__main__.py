"""Entry point of `python -m needlepoint.cli`."""

from needlepoint.cli.app import main

main()
