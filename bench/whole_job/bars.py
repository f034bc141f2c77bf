"""Pictures of CPU seconds and wall time as bars, with a row of panels for each case or record set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.whole_job.report import ContenderLine

OURS, OTHERS = ("#0b6e4f", "#8fc9b1"), ("#4a5568", "#b8c0cc")
Lines = Sequence[ContenderLine]


def cost(rows: Mapping[str, tuple[Lines, Lines]], records: Mapping[str, int]) -> Figure:
    """Draw CPU seconds and wall time of the large topic, with the part that a small topic needs too.

    `rows`: by title, the lines of the large and of the small topic; `records`: the records of `full` and `small`.
    """
    most = max(len(full) for full, _ in rows.values())
    figure = Figure(figsize=(9, (0.7 + 0.28 * most) * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), 2, squeeze=False)
    for (left, right), (title, (full, small)) in zip(grid, rows.items(), strict=True):
        start = {one.contender: one for one in small}
        left.set_title(f"{title}: CPU seconds", loc="left")
        right.set_title("wall time in seconds", loc="left")
        for axes, what in ((left, "cpu_s"), (right, "wall_s")):
            _bars(axes, full, start, what)
        right.set_yticklabels([])
    figure.supxlabel(
        f"pale: what {records['small']:,} records take, mostly the start of processes; dark: the rest of "
        f"{records['full']:,}. Thin line: least to most.",
        fontsize=8,
    )
    return figure


def _bars(axes: Axes, full: Lines, start: Mapping[str, ContenderLine], what: str) -> None:
    shown = [one for one in full if getattr(one, what) is not None]
    for place, one in enumerate(shown):
        spread = getattr(one, what)
        before = getattr(start[one.contender], what) if one.contender in start else None
        begin = min(before.middle, spread.middle) if before is not None else 0.0
        dark, pale = _colors(one.contender)
        axes.barh(place, begin, color=pale)
        axes.barh(place, spread.middle - begin, left=begin, color=dark)
        axes.hlines(place, spread.least, spread.most, color="black", linewidth=0.8)
        axes.text(spread.most, place, f"  {spread.middle:.1f}", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), [one.contender for one in shown])
    _plain(axes)


def per_million(rows: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw the CPU seconds per further million records; `rows`: by title, the figure of each contender."""
    most = max(map(len, rows.values()))
    figure = Figure(figsize=(9, 0.8 + 0.28 * most), layout="constrained")
    panels = figure.subplots(1, len(rows), squeeze=False)[0]
    for axes, (title, figures) in zip(panels, rows.items(), strict=True):
        found = sorted(figures.items(), key=lambda item: item[1])
        for place, (name, cpu_s) in enumerate(found):
            axes.barh(place, cpu_s, color=_colors(name)[0])
            axes.text(cpu_s, place, f"  {cpu_s:.2f}", va="center", fontsize=8)
        axes.set_yticks(range(len(found)), [name for name, _ in found])
        axes.set_title(title, loc="left")
        _plain(axes)
    figure.supxlabel("CPU seconds per further million records", fontsize=8)
    return figure


def _colors(contender: str) -> tuple[str, str]:
    return OURS if contender.startswith("tallystick") else OTHERS


def _plain(axes: Axes) -> None:
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
