"""Pictures of a bundle, as SVG: python -m bench.whole_job.pictures BUNDLE FOLDER (`make bench-pictures`).

Each picture names the digest of its bundle in its metadata, so that a test finds one that is older than the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.whole_job.backfill.pictures import backfill_figures
from bench.whole_job.backfill.report import WHAT as BACKFILL
from bench.whole_job.bars import cost, per_million
from bench.whole_job.bundle import read_bundle
from bench.whole_job.formats.pictures import formats_figures
from bench.whole_job.formats.report import WHAT as FORMATS
from bench.whole_job.growth.pictures import growth_figures
from bench.whole_job.growth.report import WHAT as GROWTH
from bench.whole_job.report import lines_of, marginal
from bench.whole_job.start.pictures import start_figures
from bench.whole_job.start.report import WHAT as START

SHORT = {"one": "one table", "three": "three tables"}
Json = Mapping[str, Any]
# Text stays text, and ids do not depend on chance.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tallystick", "font.size": 9})


def main(bundle_file: Path, folder: Path) -> None:
    """Write the pictures of a bundle. Safe to repeat: they are replaced by the same bytes."""
    bundle = read_bundle(bundle_file)
    figures = {
        BACKFILL: backfill_figures,
        FORMATS: formats_figures,
        GROWTH: growth_figures,
        START: start_figures,
    }
    for name, figure in figures.get(bundle["what"], whole_job_figures)(bundle).items():
        path = folder / f"{bundle_file.stem}-{name}.svg"
        metadata = {"Date": None, "Description": f"bundle sha256 {bundle['sha256']}"}
        figure.savefig(path, format="svg", metadata=metadata, bbox_inches="tight")
        # matplotlib ends some lines with a space.
        lines = (line.rstrip() for line in path.read_text().splitlines())
        path.write_text("\n".join(lines) + "\n")


def whole_job_figures(bundle: Json) -> dict[str, Figure]:
    """Return the pictures of a bundle of `make bench` by name."""
    cases = {SHORT[case]: case for case in _cases(bundle)}
    lines = {
        title: (lines_of(bundle, case, "full"), lines_of(bundle, case, "small"))
        for title, case in cases.items()
    }
    further = {title: marginal(bundle, case) for title, case in cases.items()}
    return {
        "cost": cost(lines, bundle["settings"]["records"]),
        "per-million": per_million(further),
    }


def _cases(bundle: Json) -> list[str]:
    there = {run["case"] for run in bundle["runs"] if run["size"] == "full"}
    return [case for case in ("one", "three") if case in there]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
