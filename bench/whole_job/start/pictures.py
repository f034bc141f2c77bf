"""The picture of a start bundle: CPU seconds by step and process, and what the modules of each step take to load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.whole_job.start.imports import LIBRARIES, STANDARD
from bench.whole_job.start.report import loading, parts

COLORS = (
    *("#0b6e4f", "#8fc9b1", "#4a5568", "#b8c0cc", "#c05621", "#f6ad55", "#2b6cb0", "#90cdf4"),
    *("#6b46c1", "#d6bcfa", "#97266d", "#fbb6ce"),
)
Json = Mapping[str, Any]


def start_figures(bundle: Json) -> dict[str, Figure]:
    """Return the pictures by name."""
    names = list(bundle["contenders"])
    figure = Figure(figsize=(9, 1.2 + 0.5 * len(names)), layout="constrained")
    axes = figure.subplots()
    bars = {name: parts(bundle, name) for name in names}
    _stacked(
        axes, {name: {f"{s}: {p}": v for (s, p), v in bar.items()} for name, bar in bars.items()}
    )
    axes.set_title("CPU seconds by step and process", loc="left")
    return {"processes": figure, "loading": _loading(bundle, names)}


def _loading(bundle: Json, names: list[str]) -> Figure:
    bars = {
        f"{name.removeprefix('tallystick-')}: {step}": seconds
        for name in names
        for step, seconds in loading(bundle, name).items()
        if seconds
    }
    figure = Figure(figsize=(9, 1.2 + 0.35 * len(bars)), layout="constrained")
    axes = figure.subplots()
    _stacked(axes, bars, order=[*LIBRARIES, STANDARD])
    axes.set_title("seconds to load Python's modules", loc="left")
    return figure


def _stacked(
    axes: Axes, bars: Mapping[str, Mapping[str, float]], order: list[str] | None = None
) -> None:
    kinds = order or list(dict.fromkeys(kind for bar in bars.values() for kind in bar))
    widest = max(sum(bar.values()) for bar in bars.values())
    shown: set[str] = set()
    for place, bar in enumerate(bars.values()):
        left = 0.0
        for kind in kinds:
            width = bar.get(kind, 0.0)
            if width < 0.002 * widest:
                continue
            color = COLORS[kinds.index(kind) % len(COLORS)]
            label = None if kind in shown else kind
            shown.add(kind)
            axes.barh(place, width, left=left, color=color, label=label)
            if width > 0.04 * widest:
                axes.text(
                    left + width / 2, place, f"{width:.1f}", ha="center", va="center", fontsize=7
                )
            left += width
        axes.text(left, place, f"  {left:.1f}", va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
