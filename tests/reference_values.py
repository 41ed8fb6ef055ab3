"""Values from the papers and from independent derivations, as JSON files in tests/reference."""

import json
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parent / "reference"


def reference_values(name: str) -> Any:
    """Read the document `tests/reference/<name>.json`."""
    return json.loads((REFERENCE / f"{name}.json").read_text())
