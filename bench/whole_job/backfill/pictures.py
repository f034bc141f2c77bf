"""The picture of a backfill's bundle: CPU seconds by step, and wall time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.whole_job.backfill.report import by_kind, lines

COLORS = {"plan": "#2b6cb0", "stage": "#0b6e4f", "commit": "#c05621", "job": "#4a5568"}
WALL = "#8fc9b1"
Json = Mapping[str, Any]


def backfill_figures(bundle: Json) -> dict[str, Figure]:
    """Return the picture by name."""
    shown = [line for line in lines(bundle) if line.cpu_s is not None and line.wall_s is not None]
    figure = Figure(figsize=(9, 0.9 + 0.28 * len(shown)), layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, line in enumerate(shown):
        begin = 0.0
        for kind, cpu_s in by_kind(bundle, line.contender).items():
            left.barh(place, cpu_s, left=begin, color=COLORS[kind])
            begin += cpu_s
        left.text(begin, place, f"  {begin:,.0f}", va="center", fontsize=8)
        assert line.wall_s is not None
        right.barh(place, line.wall_s.middle, color=WALL)
        right.text(
            line.wall_s.middle, place, f"  {line.wall_s.middle:,.0f}", va="center", fontsize=8
        )
    for kind, color in COLORS.items():
        left.barh(0, 0, color=color, label=kind)
    _plain(left, [line.contender for line in shown], "CPU seconds")
    _plain(right, [""] * len(shown), "wall time in seconds")
    left.legend(frameon=False, fontsize=7, loc="center right")
    return {"cost": figure}


def _plain(axes: Axes, names: list[str], title: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_title(title, loc="left")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
