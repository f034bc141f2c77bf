"""The tables of a growth bundle: CPU seconds by step, time, memory and requests by size.

python -m bench.whole_job.bundle FILE    # prints them from a bundle
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from bench.whole_job.contender import Case
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

WHAT = "bench/whole_job/growth"
CASE: Case = "one"
STEPS = ("plan", "stage", "commit")
Json = Mapping[str, Any]


def text_report(bundle: Json) -> str:
    """Return a table for each axis as text, at most 100 columns wide."""
    parts = [head(bundle)]
    for name, axis in bundle["axes"].items():
        parts += [f"{name}: {axis['what']}", aligned(table(bundle, name))]
    return "\n\n".join(part for part in [*parts, failures(bundle), notes(bundle)] if part)


def table(bundle: Json, axis: str) -> list[list[str]]:
    """Return the header and a row for each contender and size of an axis."""
    header = ["size", "contender", "CPU-s", *STEPS, "wall s", "MB", "S3 req", "MB rest"]
    return [header, *(_row(bundle, axis, size, line) for size, line in lines(bundle, axis))]


def lines(bundle: Json, axis: str) -> Iterator[tuple[Json, ContenderLine]]:
    """Yield each size of an axis with the figures of each contender, in the order of the declaration."""
    own = {**bundle, "runs": [run for run in bundle["runs"] if run["axis"] == axis]}
    order = list(bundle["axes"][axis]["contenders"])
    for contender in order:
        for size in bundle["axes"][axis]["sizes"]:
            for line in lines_of(own, CASE, size["name"], base=()):
                if line.contender == contender:
                    yield size, line


def _row(bundle: Json, axis: str, size: Json, line: ContenderLine) -> list[str]:
    runs = [
        run
        for run in bundle["runs"]
        if (run["axis"], run["size"], run["contender"]) == (axis, size["name"], line.contender)
        and run["ok"]
    ]
    return [
        size["name"].replace("-", " "),
        name_text(line).removeprefix("tallystick-"),
        spread_text(line.cpu_s),
        *(_step_text(runs, step) for step in STEPS),
        middle_text(line.wall_s),
        f"{line.memory_bytes / MIB:,.0f}",
        f"{line.requests:,.0f}",
        f"{line.rest_bytes / 1e6:,.1f}",
    ]


def _step_text(runs: Sequence[Json], name: str) -> str:
    spent = [sum(step["cpu_s"] for step in run["steps"] if step["name"] == name) for run in runs]
    return f"{median(spent):.1f}" if spent else "-"


def notes(bundle: Json) -> str:
    """Return what the columns are, and how many runs were noisy."""
    cores = bundle["machine"]["cores"]
    noisy = sum(is_noisy(r, cores) for r in bundle["runs"])
    return "\n".join(
        [
            "Median (least-most). MB: peak of anonymous memory of all processes of a step. MB rest: all that",
            "the run left.",
            f"{noisy} of {len(bundle['runs'])} runs had other programs on more than {NOISY:.0%} of the machine.",
        ]
    )
