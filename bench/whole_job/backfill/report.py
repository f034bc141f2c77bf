"""The tables of a backfill's bundle: raw figures, ratios to the better of the two plain Sparks, and CPU seconds by step.

python -m bench.whole_job.bundle FILE    # prints them from a bundle
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.whole_job.contender import Case, step_kind
from bench.whole_job.report import (
    MIB,
    NOISY,
    ContenderLine,
    aligned,
    failures,
    head,
    is_noisy,
    lines_of,
    middle_text,
    name_text,
    spread_text,
)

WHAT = "bench/whole_job/backfill"
BASE = ("spark-loop", "spark-submits")
CASE: Case = "one"
SIZE = "full"
KINDS = ("plan", "stage", "commit", "job")
Json = Mapping[str, Any]


def text_report(bundle: Json) -> str:
    """Return the tables as text, at most 100 columns wide."""
    settings = bundle["settings"]
    lines = lines_of(bundle, CASE, SIZE, base=BASE)
    parts = [
        head(bundle),
        f"{settings['intervals']} hourly intervals of {settings['interval_records']:,} records, one table",
        aligned(_rows(lines)),
        "CPU seconds by step:",
        aligned(_step_rows(bundle, lines)),
        failures(bundle),
        _notes(bundle),
    ]
    return "\n\n".join(part for part in parts if part)


def _rows(lines: Sequence[ContenderLine]) -> list[list[str]]:
    header = ["contender", "CPU-s", "wall s", "MB", "S3 req", "MB rest", "x CPU", "x wall"]
    return [
        header,
        *(
            [
                name_text(one),
                spread_text(one.cpu_s),
                middle_text(one.wall_s),
                f"{one.memory_bytes / MIB:,.0f}",
                f"{one.requests:,.0f}" if one.requests else "-",
                f"{one.rest_bytes / 1e6:,.1f}",
                spread_text(one.ratio, digits=2),
                "-" if one.wall_ratio is None else f"{one.wall_ratio.middle:.2f}",
            ]
            for one in lines
        ),
    ]


def _step_rows(bundle: Json, lines: Sequence[ContenderLine]) -> list[list[str]]:
    """Return the median CPU seconds of each kind of step, and the number of commands that a run starts."""
    rows = [["contender", *KINDS, "commands"]]
    for line in lines:
        good = [r for r in bundle["runs"] if r["contender"] == line.contender and r["ok"]]
        if not good:
            continue
        spent = [_by_kind(run) for run in good]
        cells = [
            f"{median(one[kind] for one in spent):.1f}" if kind in spent[0] else "-"
            for kind in KINDS
        ]
        rows.append([line.contender, *cells, str(len(good[0]["steps"]))])
    return rows


def _by_kind(run: Json) -> dict[str, float]:
    found: dict[str, float] = {}
    for step in run["steps"]:
        kind = step_kind(step["name"])
        found[kind] = found.get(kind, 0.0) + float(step["cpu_s"])
    return found


def _notes(bundle: Json) -> str:
    cores = bundle["machine"]["cores"]
    noisy = sum(is_noisy(r, cores) for r in bundle["runs"])
    return "\n".join(
        [
            "Median (least-most). MB: peak of anonymous memory of all processes. MB rest: all that the run left.",
            "x: how many times less than the better of spark-loop and spark-submits in the same round.",
            f"{noisy} of {len(bundle['runs'])} runs had other programs on more than {NOISY:.0%} of the machine.",
        ]
    )
