"""The tables of a start bundle: CPU seconds by process, and of the processes in Python by what they load.

python -m bench.whole_job.bundle FILE    # prints them from a bundle
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from bench.whole_job.contender import Case
from bench.whole_job.report import NOISY, aligned, failures, head, is_noisy
from bench.whole_job.start.imports import LIBRARIES, STANDARD

WHAT = "bench/whole_job/start"
CASE: Case = "one"
SIZE = "small"
ENDED = "between the last look and the end"
Json = Mapping[str, Any]


def parts(bundle: Json, contender: str) -> dict[tuple[str, str], float]:
    """Return the median CPU seconds of each step's parts, in the order of the steps."""
    runs = [run for run in bundle["runs"] if run["contender"] == contender and run["ok"]]
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for step in run["steps"]:
            for part, seconds in step["parts"].items():
                found.setdefault((step["name"], part), []).append(seconds)
            rest = max(0.0, step["cpu_s"] - sum(step["parts"].values()))
            found.setdefault((step["name"], ENDED), []).append(rest)
    # A part that not every run has counts as 0 in the others.
    return {
        key: median([*spent, *[0.0] * (len(runs) - len(spent))]) for key, spent in found.items()
    }


def loading(bundle: Json, contender: str) -> dict[str, dict[str, float]]:
    """Return the seconds of loading by step, in their order, and library."""
    order = [*LIBRARIES, STANDARD]
    found = bundle["imports"][contender]
    steps = dict.fromkeys(
        step["name"]
        for run in bundle["runs"]
        if run["contender"] == contender
        for step in run["steps"]
    )
    return {
        step: {name: found[step][name] for name in order if name in found[step]} for step in steps
    }


def text_report(bundle: Json) -> str:
    """Return the tables as text, at most 100 columns wide."""
    found = [head(bundle), f"{bundle['settings']['records'][SIZE]:,} records into one table"]
    for contender in bundle["contenders"]:
        found += [contender, aligned(part_rows(bundle, contender))]
        found += [aligned(loading_rows(bundle, contender))]
    return "\n\n".join(part for part in [*found, failures(bundle), notes(bundle)] if part)


def part_rows(bundle: Json, contender: str) -> list[list[str]]:
    """Return the header and a row for each process of each step."""
    rows = [["step", "process", "CPU-s"]]
    for (step, part), seconds in parts(bundle, contender).items():
        if seconds >= 0.005:
            rows.append([step, part, f"{seconds:.2f}"])
    return rows


def loading_rows(bundle: Json, contender: str) -> list[list[str]]:
    """Return the header and a row for each library: seconds of loading by step."""
    found = {step: seconds for step, seconds in loading(bundle, contender).items() if seconds}
    return [
        ["seconds of loading", *found],
        *(
            [name, *(f"{seconds.get(name, 0.0):.2f}" for seconds in found.values())]
            for name in [*LIBRARIES, STANDARD]
            if any(name in seconds for seconds in found.values())
        ),
    ]


def notes(bundle: Json) -> str:
    """Return what the figures are, and how many runs were noisy."""
    noisy = sum(is_noisy(r, bundle["machine"]["cores"]) for r in bundle["runs"])
    return "\n".join(
        [
            "Medians of CPU seconds. Loading: seconds that Python's modules take, all processes of a step",
            "together, from one run each with Python's own profile.",
            f"{noisy} of {len(bundle['runs'])} runs had other programs on more than {NOISY:.0%} of the machine.",
        ]
    )
