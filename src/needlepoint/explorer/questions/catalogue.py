"""What this explorer has: asked once by a page that opens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from needlepoint.explorer.questions.asking import Emit
from needlepoint.explorer.questions.reading import Reader


@dataclass(frozen=True)
class Hello:
    """Which parts of the user's own are there, so that the page can offer them."""

    @classmethod
    def read(cls, reader: Reader) -> Hello:
        return cls()

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        emit({"event": "own", "folders": len(folders), **own_specs()})


def own_specs() -> dict[str, Any]:
    """Return the user's own specs by family: their names, fields, and a spec with default values where there is one."""
    import needlepoint.specs_by_name  # noqa: F401
    from needlepoint.core.errors import InvalidParameter
    from needlepoint.core.specs import build, declared, lookup, names

    found: dict[str, list[dict[str, Any]]] = {"task": [], "model": [], "activation": []}
    for name in names():
        cls = lookup(name)
        if cls.__module__.partition(".")[0] == "needlepoint" or cls.family not in found:
            continue
        try:
            example: str | None = repr(build(name))
        except InvalidParameter:
            example = None
        fields = [field.name for field in declared(cls)]
        found[cls.family].append({"name": name, "fields": fields, "example": example, "module": cls.__module__})
    return found
