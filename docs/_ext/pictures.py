"""Pictures of the figure pages: those that `needlepoint reproduce` has drawn, made small.

python docs/_ext/pictures.py out    # the folder of make demo
"""

from __future__ import annotations

import sys
from pathlib import Path

PICTURES = Path(__file__).parent.parent / "images" / "figures"
WIDTH = 1365  # pixels; a page of the documentation has 830, and some screens two for each
COLOURS = 96  # of the palette: lines and letters need few, maps some more


def shrink(source: Path, target: Path) -> None:
    """Write a picture with at most WIDTH columns and COLOURS colours."""
    from PIL import Image

    picture = Image.open(source).convert("RGB")
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)


def main(folder: Path) -> None:
    from needlepoint.papers.figures import figures

    known = figures()
    missing = [name for name in known if not (folder / f"{name}.png").exists()]
    for name in known:
        if name not in missing:
            shrink(folder / f"{name}.png", PICTURES / f"{name}.png")
    for path in PICTURES.glob("*.png"):
        if path.stem not in known:
            path.unlink()
    print(f"{len(known) - len(missing)} pictures in {PICTURES.name}" + (f"; not drawn: {missing}" if missing else ""))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
