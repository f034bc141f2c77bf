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
    Spread,
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
    parts = [
        head(bundle),
        title(bundle),
        aligned(rows(lines(bundle))),
        "CPU seconds by step:",
        aligned(step_rows(bundle)),
        failures(bundle),
        notes(bundle),
    ]
    return "\n\n".join(part for part in parts if part)


def title(bundle: Json) -> str:
    """Return what was run."""
    settings = bundle["settings"]
    return f"{settings['intervals']} hourly intervals of {settings['interval_records']:,} records, one table"


def lines(bundle: Json) -> list[ContenderLine]:
    """Return a line per contender, the cheapest first."""
    return lines_of(bundle, CASE, SIZE, base=BASE)


def rows(lines: Sequence[ContenderLine]) -> list[list[str]]:
    """Return the figures of each contender below a header."""
    header = ["contender", "CPU-s", "wall s", "MB", "S3 req", "MB rest", "x CPU", "x wall"]
    return [
        header,
        *(
            [
                name_text(one),
                _spread_text(one, one.cpu_s, digits=1),
                middle_text(one.wall_s),
                f"{one.memory_bytes / MIB:,.0f}",
                f"{one.requests:,.0f}" if one.requests else "-",
                f"{one.rest_bytes / 1e6:,.1f}",
                _spread_text(one, one.ratio, digits=2),
                "-" if one.wall_ratio is None else f"{one.wall_ratio.middle:.2f}",
            ]
            for one in lines
        ),
    ]


def _spread_text(line: ContenderLine, spread: Spread | None, *, digits: int) -> str:
    """Return the median with the least and the most; the figure alone if there was one run."""
    if spread is None or line.runs > 1:
        return spread_text(spread, digits=digits)
    return f"{spread.middle:.{digits}f}"


def step_rows(bundle: Json) -> list[list[str]]:
    """Return the median CPU seconds of each kind of step, and the number of commands that a run starts."""
    found = [["contender", *KINDS, "commands"]]
    for line in lines(bundle):
        spent = by_kind(bundle, line.contender)
        if not spent:
            continue
        cells = [f"{spent[kind]:.1f}" if kind in spent else "-" for kind in KINDS]
        commands = next(len(r["steps"]) for r in _good(bundle, line.contender))
        found.append([line.contender, *cells, str(commands)])
    return found


def by_kind(bundle: Json, contender: str) -> dict[str, float]:
    """Return the median CPU seconds of each kind of step that a contender has; no kind if no run of it counts."""
    spent = [_by_kind(run) for run in _good(bundle, contender)]
    return {
        kind: median(one[kind] for one in spent) for kind in KINDS if spent and kind in spent[0]
    }


def _good(bundle: Json, contender: str) -> list[Json]:
    return [r for r in bundle["runs"] if r["contender"] == contender and r["ok"]]


def _by_kind(run: Json) -> dict[str, float]:
    found: dict[str, float] = {}
    for step in run["steps"]:
        kind = step_kind(step["name"])
        found[kind] = found.get(kind, 0.0) + float(step["cpu_s"])
    return found


def notes(bundle: Json) -> str:
    """Return what the columns are, and how many runs were noisy."""
    cores = bundle["machine"]["cores"]
    noisy = sum(is_noisy(r, cores) for r in bundle["runs"])
    return "\n".join(
        [
            "Median (least-most). MB: peak of anonymous memory of all processes. MB rest: all that the run left.",
            "x: how many times less than the better of spark-loop and spark-submits in the same round.",
            f"{noisy} of {len(bundle['runs'])} runs had other programs on more than {NOISY:.0%} of the machine.",
        ]
    )
