"""The tables of a formats bundle: for each record set those of the whole job.

python -m bench.whole_job.bundle FILE    # prints them from a bundle
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.whole_job.contender import Case
from bench.whole_job.report import aligned, contender_rows, failures, head, least_rows, notes

WHAT = "bench/whole_job/formats"
CASE: Case = "one"
SIZES = ("full", "small")
Json = Mapping[str, Any]


def text_report(bundle: Json) -> str:
    """Return the tables of each record set as text, at most 100 columns wide."""
    parts = [head(bundle)]
    for name in bundle["sets"]:
        own = of_set(bundle, name)
        for size in sizes(own):
            parts.append(title(own, name, size))
            parts.append(aligned(contender_rows(own, CASE, size)))
            if is_compared(own, size):
                parts.append(aligned(least_rows(own, CASE)))
    return "\n\n".join(part for part in [*parts, failures(bundle), notes(bundle)] if part)


def of_set(bundle: Json, name: str) -> dict[str, Any]:
    """Return the bundle as one of a single record set, with its records, contenders and runs."""
    runs = [run for run in bundle["runs"] if run["set"] == name]
    return {**bundle, **bundle["sets"][name], "runs": runs}


def sizes(own: Json) -> list[str]:
    """Return the sizes that have runs, the larger one first."""
    there = {run["size"] for run in own["runs"]}
    return [size for size in SIZES if size in there]


def is_compared(own: Json, size: str) -> bool:
    """Return True for the larger size, if there are runs of both."""
    return size == SIZES[0] and len(sizes(own)) == len(SIZES)


def has_both(bundle: Json) -> bool:
    """Return True if there are runs of both sizes for each record set. Pictures are drawn only then."""
    return all(len(sizes(of_set(bundle, name))) == len(SIZES) for name in bundle["sets"])


def title(own: Json, name: str, size: str) -> str:
    """Return the record set with the number and the mean size of its records."""
    count = own["settings"]["records"][size]
    mean = own["records"][size]["value_bytes"] / count
    return f"{name}, {count:,} records of {mean:,.0f} bytes"
