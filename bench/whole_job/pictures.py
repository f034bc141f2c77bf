"""Pictures of a bundle, as SVG: python -m bench.whole_job.pictures BUNDLE FOLDER (`make bench-pictures`).

Each picture names the digest of its bundle in its metadata, so that a test finds one that is older than the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.whole_job.bundle import read_bundle
from bench.whole_job.growth.pictures import growth_figures
from bench.whole_job.growth.report import WHAT as GROWTH
from bench.whole_job.report import ContenderLine, lines_of, marginal
from bench.whole_job.start.pictures import start_figures
from bench.whole_job.start.report import WHAT as START

OURS, OTHERS = ("#0b6e4f", "#8fc9b1"), ("#4a5568", "#b8c0cc")
SHORT = {"one": "one table", "three": "three tables"}
Json = Mapping[str, Any]
# Text stays text, and ids do not depend on chance.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tallystick", "font.size": 9})


def main(bundle_file: Path, folder: Path) -> None:
    """Write the pictures of a bundle. Safe to repeat: they are replaced by the same bytes."""
    bundle = read_bundle(bundle_file)
    figures = {GROWTH: growth_figures, START: start_figures}
    for name, figure in figures.get(bundle["what"], whole_job_figures)(bundle).items():
        path = folder / f"{bundle_file.stem}-{name}.svg"
        metadata = {"Date": None, "Description": f"bundle sha256 {bundle['sha256']}"}
        figure.savefig(path, format="svg", metadata=metadata, bbox_inches="tight")
        # matplotlib ends some lines with a space.
        lines = (line.rstrip() for line in path.read_text().splitlines())
        path.write_text("\n".join(lines) + "\n")


def whole_job_figures(bundle: Json) -> dict[str, Figure]:
    """Return the pictures of a bundle of `make bench` by name."""
    return {"cost": cost(bundle), "per-million": per_million(bundle)}


def cost(bundle: Json) -> Figure:
    """Draw CPU seconds and wall time of the large topic, with the part that a small topic needs too."""
    cases = _cases(bundle)
    rows = max(len(lines_of(bundle, case, "full")) for case in cases)
    figure = Figure(figsize=(9, (0.7 + 0.28 * rows) * len(cases)), layout="constrained")
    grid = figure.subplots(len(cases), 2, squeeze=False)
    for (left, right), case in zip(grid, cases, strict=True):
        full, small = lines_of(bundle, case, "full"), lines_of(bundle, case, "small")
        start = {one.contender: one for one in small}
        left.set_title(f"{SHORT[case]}: CPU seconds", loc="left")
        right.set_title("wall time in seconds", loc="left")
        for axes, what in ((left, "cpu_s"), (right, "wall_s")):
            _bars(axes, full, start, what)
        right.set_yticklabels([])
    records = bundle["settings"]["records"]
    figure.supxlabel(
        f"pale: what {records['small']:,} records take, mostly the start of processes; dark: the rest of "
        f"{records['full']:,}. Thin line: least to most.",
        fontsize=8,
    )
    return figure


def _bars(
    axes: Axes, full: Sequence[ContenderLine], start: Mapping[str, ContenderLine], what: str
) -> None:
    shown = [one for one in full if getattr(one, what) is not None]
    for place, one in enumerate(shown):
        spread = getattr(one, what)
        before = getattr(start[one.contender], what) if one.contender in start else None
        begin = min(before.middle, spread.middle) if before is not None else 0.0
        dark, pale = OURS if one.contender.startswith("tallystick") else OTHERS
        axes.barh(place, begin, color=pale)
        axes.barh(place, spread.middle - begin, left=begin, color=dark)
        axes.hlines(place, spread.least, spread.most, color="black", linewidth=0.8)
        axes.text(spread.most, place, f"  {spread.middle:.1f}", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), [one.contender for one in shown])
    _plain(axes)


def per_million(bundle: Json) -> Figure:
    """Draw the CPU seconds per further million records."""
    cases = _cases(bundle)
    rows = max(len(marginal(bundle, case)) for case in cases)
    figure = Figure(figsize=(9, 0.8 + 0.28 * rows), layout="constrained")
    for axes, case in zip(figure.subplots(1, len(cases), squeeze=False)[0], cases, strict=True):
        found = sorted(marginal(bundle, case).items(), key=lambda item: item[1])
        for place, (name, cpu_s) in enumerate(found):
            dark, _ = OURS if name.startswith("tallystick") else OTHERS
            axes.barh(place, cpu_s, color=dark)
            axes.text(cpu_s, place, f"  {cpu_s:.2f}", va="center", fontsize=8)
        axes.set_yticks(range(len(found)), [name for name, _ in found])
        axes.set_title(SHORT[case], loc="left")
        _plain(axes)
    figure.supxlabel("CPU seconds per further million records", fontsize=8)
    return figure


def _plain(axes: Axes) -> None:
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def _cases(bundle: Json) -> list[str]:
    there = {run["case"] for run in bundle["runs"] if run["size"] == "full"}
    return [case for case in ("one", "three") if case in there]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
