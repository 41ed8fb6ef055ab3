"""Entry point of `python -m needlepoint`."""

from needlepoint.cli.app import main

main()
