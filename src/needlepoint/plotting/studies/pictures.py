"""Pictures of a study: curves of a metric with training points and z-scores, or maps over two parameters."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.plotting.contest import plot_contest
from needlepoint.plotting.studies.curves import draw_curves
from needlepoint.plotting.studies.data import Plottable, read
from needlepoint.plotting.studies.maps import draw_maps
from needlepoint.plotting.style import saved, styled
from needlepoint.studies.verdicts import Contest

KINDS, SUFFIXES = ("curves", "map"), (".png", ".pdf", ".svg")


@styled
def plot(
    study: Plottable,
    metric: str | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    kind: str | None = None,
    levels: int | Sequence[float] | None = None,
    ax: Any = None,
    path: str | PathLike[str] | None = None,
) -> Any:
    """Return a picture of one metric of a study, and save it if `path` is given.

    metric  metric, overlap such as "overlaps.key", chosen penalty such as "resolved.lam_key", or share of runs by their
            end such as "share_swapped"; None is the risk on clean labels ("excess_risk", or "clean_risk"
            on the attention-indexed model)
    x, y    swept paths of the axes, or the last parts of them; None chooses the numeric ones with most values
    kind    "curves" draws the metric against `x`, with training points and their z-scores, one curve for each
            combination of the other axes; "map" draws the prediction over `x` and `y`; None draws a map if two numeric
            axes have three or more values each and nothing was simulated
    levels  contours of a map, or their number
    ax      matplotlib axes to draw the curves or the one map on, without z-scores; they are returned
    path    file name ending in .png, .pdf or .svg

    Points that did not converge are marked, never left out.
    """
    target = picture_path(path)
    if isinstance(study, Contest):
        return plot_contest(study, ax=ax, path=target)
    if kind not in (None, *KINDS):
        raise InvalidParameter(
            f"plot(kind={shown(kind)}): kind must be 'curves', 'map' or None (chosen from the study)."
        )
    data = read(study, metric)
    rich = [p for p in data.numeric if len(data.axes[p]) >= 3]
    if kind is None:
        kind = "map" if y is not None or levels is not None or (len(rich) >= 2 and not data.simulated) else "curves"
    if kind == "map":
        figure = draw_maps(data, x, y, levels, ax)
    elif y is not None or levels is not None:
        name = "y" if y is not None else "levels"
        raise InvalidParameter(f"plot({name}=..., kind='curves'): {name} belongs to maps; curves show the metric as y.")
    else:
        figure = draw_curves(data, x, ax)
    return saved(figure if ax is None else ax, target)


def picture_path(path: str | PathLike[str] | None) -> Path | None:
    if path is None:
        return None
    if not isinstance(path, (str, PathLike)):
        raise InvalidParameter(f"plot(path={shown(path)}): path must be a file name ending in {', '.join(SUFFIXES)}.")
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InvalidParameter(f"plot(path={shown(str(path))}): the file name must end in {', '.join(SUFFIXES)}.")
    if not target.parent.is_dir():
        raise InvalidParameter(
            f"plot(path={shown(str(path))}): there is no folder {shown(str(target.parent))}; create it first."
        )
    return target
