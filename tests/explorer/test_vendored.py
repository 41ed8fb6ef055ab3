"""What is vendored for the page is what npm has, and brings its licences."""

import hashlib
import json
import re
from pathlib import Path

import pytest

VENDOR = Path(__file__).parents[2] / "src" / "needlepoint" / "explorer" / "page" / "vendor"
PACKAGES = sorted(VENDOR.rglob("SOURCE.json"))


@pytest.mark.parametrize("source", PACKAGES, ids=lambda p: p.parent.name)
def test_vendored_files_are_those_of_the_package(source):
    said = json.loads(source.read_text())
    folder = source.parent
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {"SOURCE.json"}
    assert files == set(said["sha256"])
    for name, digest in said["sha256"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", said["integrity"])
    assert said["tarball"] == f"https://registry.npmjs.org/{said['package']}/-/{said['package']}-{said['version']}.tgz"


def test_both_packages_are_there_with_their_licences():
    assert [p.parent.name for p in PACKAGES] == ["plotly", "katex"]
    for source in PACKAGES:
        assert "Permission is hereby granted, free of charge" in (source.parent / "LICENSE").read_text()
    fonts = (VENDOR / "math" / "FONTS-LICENSE.txt").read_text()
    assert "SIL OPEN FONT LICENSE Version 1.1" in fonts
    for font in (VENDOR / "math" / "katex" / "fonts").iterdir():
        assert font.suffix == ".woff2"
        assert font.name.partition("-")[0] in fonts


def test_the_versions_are_those_in_the_files():
    charts = (VENDOR / "charts" / "plotly" / "plotly-cartesian.min.js").read_text(encoding="utf-8")
    assert f"v{json.loads((VENDOR / 'charts/plotly/SOURCE.json').read_text())['version']}" in charts[:200]
    assert sum(p.stat().st_size for p in VENDOR.rglob("*")) < 2.5e6
