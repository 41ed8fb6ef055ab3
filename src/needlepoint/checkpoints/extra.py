"""Packages that only real checkpoints need; without them, one sentence says what to install."""

from __future__ import annotations

import importlib
from typing import Any

from needlepoint.core.errors import InvalidParameter


def need(module: str, what: str) -> Any:
    """Return a module of the extra `checkpoints`; raises InvalidParameter with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = {"sklearn": "scikit-learn"}.get(module.split(".")[0], module.split(".")[0])
        raise InvalidParameter(f"{what} needs {package}: pip install 'needlepoint[checkpoints]'.") from None
