"""The pictures of a growth bundle: one for the number of records, one for the other axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.whole_job.growth.report import lines
from bench.whole_job.report import MIB, ContenderLine

COLORS = ("#0b6e4f", "#c05621", "#2b6cb0", "#6b46c1")
Json = Mapping[str, Any]


def growth_figures(bundle: Json) -> dict[str, Figure]:
    """Return the pictures by name."""
    others = [axis for axis in bundle["axes"] if axis != "records"]
    found = {}
    if "records" in bundle["axes"]:
        found["records"] = records(bundle)
    if others:
        found["others"] = other_axes(bundle, others)
    return found


def records(bundle: Json) -> Figure:
    """Draw CPU seconds, CPU seconds per million records, and memory, by the number of records; both scales are logs."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, title in zip(
        panels, ("CPU seconds", "CPU seconds per million", "MB at the peak"), strict=True
    ):
        axes.set_title(title, loc="left")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.spines[["top", "right"]].set_visible(False)
    for color, (name, points) in zip(
        COLORS, _by_contender(bundle, "records").items(), strict=False
    ):
        counts = [size["records"] for size, _ in points]
        cpu = [_least(line) for _, line in points]
        figures = (
            cpu,
            [spent / count * 1e6 for spent, count in zip(cpu, counts, strict=True)],
            [line.memory_bytes / MIB for _, line in points],
        )
        for axes, values in zip(panels, figures, strict=True):
            axes.plot(counts, values, marker="o", markersize=4, color=color, label=_short(name))
            axes.text(counts[-1], values[-1], f" {values[-1]:,.3g}", fontsize=8, va="bottom")
    panels[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("records in an interval; the least of the rounds", fontsize=8)
    return figure


def other_axes(bundle: Json, names: Sequence[str]) -> Figure:
    """Draw CPU seconds and wall time by size, with a row for each axis."""
    figure = Figure(figsize=(9, 2.4 * len(names)), layout="constrained")
    grid = figure.subplots(len(names), 2, squeeze=False)
    for (left, right), name in zip(grid, names, strict=True):
        left.set_title(f"{name}: CPU seconds", loc="left")
        right.set_title("wall time in seconds", loc="left")
        _grouped_bars(left, bundle, name, "cpu_s")
        _grouped_bars(right, bundle, name, "wall_s")
    return figure


def _grouped_bars(axes: Axes, bundle: Json, name: str, what: str) -> None:
    series = _by_contender(bundle, name)
    alone = all(len(points) == 1 for points in series.values())
    if alone:  # the contenders are the sizes
        series = {"": [({"name": _short(c)}, points[0][1]) for c, points in series.items()]}
    width = 0.8 / len(series)
    for number, (contender, points) in enumerate(series.items()):
        places = [place + number * width for place in range(len(points))]
        spreads = [getattr(line, what) for _, line in points]
        axes.bar(
            places,
            [spread.middle for spread in spreads],
            width,
            color=COLORS[number],
            label=_short(contender),
        )
        for place, spread in zip(places, spreads, strict=True):
            axes.vlines(place, spread.least, spread.most, color="black", linewidth=0.8)
            axes.text(
                place, spread.most, f"{spread.middle:.1f}", ha="center", va="bottom", fontsize=7
            )
    points = next(iter(series.values()))
    middle = 0.4 - width / 2
    axes.set_xticks(
        [place + middle for place in range(len(points))],
        [s["name"].replace("-", " ") for s, _ in points],
    )
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    if not alone:
        axes.legend(frameon=False, fontsize=7)


def _by_contender(bundle: Json, axis: str) -> dict[str, list[tuple[Json, ContenderLine]]]:
    found: dict[str, list[tuple[Json, ContenderLine]]] = {}
    for size, line in lines(bundle, axis):
        if line.cpu_s is not None:
            found.setdefault(line.contender, []).append((size, line))
    return found


def _least(line: ContenderLine) -> float:
    assert line.cpu_s is not None
    return line.cpu_s.least


def _short(contender: str) -> str:
    return contender.removeprefix("tallystick-")
