"""The rows of `tally status`, `log` and `tables` for `--format vertical` and `csv`, from their JSON documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tallystick.format.page import TOTALS

Row = dict[str, Any]

_COUNTS = (*TOTALS, "offsets")
_OWNER = ("dag", "run", "clear")
STATUS = ("from", "to", "state", "generation", *_COUNTS, "dead_share", *_OWNER, "plan")
LOG = (
    *("version", "committed_at", "library", "from", "to", "generation", *_COUNTS, *_OWNER),
    *("replaces", "plan", "report", "record"),
)
TABLES = ("name", "rows", "files", "bytes", "partition_by", "columns", "metadata")


def status(document: Row) -> Iterator[Row]:
    """Yield a row per interval."""
    for interval in document["intervals"]:
        yield _flat(interval)


def log(document: Row) -> Iterator[Row]:
    """Yield a row per commit and interval, newest first."""
    for commit in document["commits"]:
        for interval in commit["intervals"]:
            yield {**commit, **_flat(interval)}


def tables(document: Row) -> Iterator[Row]:
    """Yield a row per table."""
    for table in document["tables"]:
        columns = (
            f"{c['name']} {c['type']}{'' if c['required'] else '?'}" for c in table["columns"]
        )
        yield {
            **table,
            "partition_by": ", ".join(table["partition_by"]),
            "columns": ", ".join(columns),
        }


def _flat(interval: Row) -> Row:
    totals = interval["totals"] or dict.fromkeys(_COUNTS)
    return {**interval, **totals, **interval["owner"]}
