"""`tally compact`: parses sizes and times, runs a compaction with a bar on a terminal, and renders the result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

from tallystick.cli.errors import bars
from tallystick.cli.text import grid, many, paragraph, shown, size
from tallystick.errors import InvalidRequest
from tallystick.lake import Lake
from tallystick.operations.compact import (
    CompactedFiles,
    CompactOptions,
    CompactResult,
    compact,
    would_compact,
)

_SIZE = re.compile(r"([0-9]{1,6})(KB|MB|GB)")
_UNITS = {"KB": 10, "MB": 20, "GB": 30}


def size_bytes(text: str, option: str) -> int:
    """Parse a size such as `64KB`, `128MB` or `1GB`, in powers of 1,024; raises InvalidRequest that names the option."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise InvalidRequest(
            f"{option}: expected a size, found {text!r}.",
            hint="use a whole number and KB, MB or GB, e.g. 128MB.",
        )
    return int(found[1]) << _UNITS[found[2]]


def options(
    lake: Lake,
    *,
    tables: Sequence[str],
    older_than: timedelta,
    target: str | None,
    min_files: int,
) -> CompactOptions:
    """Return the options of a compaction."""
    until = lake.runtime.now() - older_than
    return CompactOptions(
        until=until.replace(microsecond=0),
        tables=tuple(tables),
        target_bytes=None if target is None else size_bytes(target, "--target-size"),
        files_min=min_files,
    )


def compacted(lake: Lake, wanted: CompactOptions, *, dry_run: bool) -> CompactResult:
    """Run a compaction in this process, or only choose its files. Safe to repeat: `compact` is."""
    # PyIceberg is slow to import.
    from tallystick.operations.compact.local import LocalWriter
    from tallystick.tables.staging import IcebergTables

    writer = LocalWriter(lake)
    if dry_run:
        return would_compact(lake, writer, wanted)
    with bars() as watch:
        tables = IcebergTables(lake.store, lake.runtime)
        return compact(lake, tables, writer, wanted, watch=watch)


def text(answer: CompactResult) -> str:
    """Return the answer as text: a line per table, then what was left."""
    if not answer.tables and not answer.left:
        return paragraph(f"Nothing to compact at {answer.uri}, version {answer.version}.")
    how = "dry run: nothing was changed" if answer.dry_run else f"version {answer.version}"
    parts = [paragraph(f"Compacted {answer.uri}; {how}."), _tables(answer.tables)]
    if answer.left:
        why = ", ".join(sorted(set(map(shown, answer.left.values()))))
        parts.append(
            paragraph(
                f"{many(len(answer.left), 'compaction')} not published ({why}). No table has their files, and gc deletes "
                "them; the next run makes them again."
            )
        )
    return "\n\n".join(part for part in parts if part)


def _tables(tables: Mapping[str, CompactedFiles]) -> str:
    headings = ("table", "files", "now", "bytes", "bytes now", "rows")
    rows = [
        (
            name,
            f"{one.files_before:,}",
            f"{one.files_after:,}",
            size(one.bytes_before),
            size(one.bytes_after) if one.bytes_after else "",
            f"{one.rows:,}",
        )
        for name, one in sorted(tables.items())
    ]
    return grid(headings, rows, right=headings[1:]) if rows else ""
