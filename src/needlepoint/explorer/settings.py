"""What an explorer is started with: who may ask, which folders it may read, and the user's own theory."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from needlepoint.core.errors import InvalidParameter
from needlepoint.explorer.limits import LIMITS, Limits


@dataclass(frozen=True)
class Settings:
    """How one explorer runs.

    folders  study files and checkpoints that the page may open are in these, or are these
    theory   a Python file with tasks, models and activations of the user's own; it is run
    hosts    names beside 127.0.0.1, localhost and [::1] that a request may be addressed to
    token    what every request but those for the page's own files must carry
    """

    folders: tuple[Path, ...] = ()
    theory: Path | None = None
    hosts: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    limits: Limits = LIMITS

    def checked(self) -> Settings:
        """Return the settings with absolute paths; raise one sentence for a folder that is not there."""
        for path in self.folders:
            if not path.exists():
                raise InvalidParameter(f"explore: there is no file or folder {path}.")
        theory = None if self.theory is None else self.theory.resolve()
        return replace(self, folders=tuple(p.resolve() for p in self.folders), theory=theory)

    def for_workers(self) -> dict[str, Any]:
        """Return what a worker needs to know, as plain JSON."""
        return {"folders": [str(p) for p in self.folders], "theory": None if self.theory is None else str(self.theory)}
