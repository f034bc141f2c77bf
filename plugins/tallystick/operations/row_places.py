"""Finds where the rows of committed intervals are: in the files of their reports, or in shared files of compactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.compaction import Compaction
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.format.report import FileReport
from tallystick.lake import Lake
from tallystick.protocol.compacting import is_living


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """The rows at the positions `first <= position < first + rows` of a stored file."""

    key: str
    etag: str
    first: int
    rows: int


def rows_of_report(files: Iterable[FileReport]) -> tuple[FileRows, ...]:
    """Return the rows of files as they were staged."""
    return tuple(FileRows(key=f.key, etag=f.etag, first=0, rows=f.rows) for f in files)


def rows_of_commit(
    lake: Lake, entry: Entry, table: str, files: Iterable[FileReport]
) -> tuple[FileRows, ...]:
    """Return where the rows of the entry's commit are in one table, in the order of its report.

    `files`: those that the report lists for the table. Raises ObjectGoneError if the compaction that the entry names is
    gone: the root has moved, or the lake is damaged.
    """
    assert entry.committed is not None
    number = entry.committed.compactions.get(table)
    if number is None:
        return rows_of_report(files)
    moved = _moved(lake.compaction_of(keys.compaction(table, number)), {entry.interval: entry})
    return tuple(moved.get(f.key) or rows_of_report([f])[0] for f in files)


def _moved(compaction: Compaction, entries: Mapping[Interval, Entry]) -> dict[str, FileRows]:
    """Return where the rows of each living run are, by the reported file."""
    return {
        placed.run.key: FileRows(
            key=shared.file.key,
            etag=shared.file.etag,
            first=placed.first,
            rows=placed.run.rows,
        )
        for shared in compaction.files
        for placed in shared.placed()
        if is_living(compaction, entries.get(placed.run.interval), placed.run)
    }


def rows_by_interval(
    lake: Lake, table: str, live: Mapping[str, FileRows], entries: Iterable[Entry]
) -> list[tuple[Interval, FileRows]]:
    """Return where the rows of these entries' commits are, with their interval, by time.

    `live`: the files that the table lists, as rows of the whole file. Reads a compaction per shared file, and no report.
    """
    by_interval = {e.interval: e for e in entries}
    found: list[tuple[Interval, FileRows]] = []
    compactions: set[keys.CompactionId] = set()
    for key, rows in live.items():
        if keys.kind(key) == "shared file":
            compactions.add(keys.shared_file_parts(key)[1])
            continue
        start, end = keys.part_interval(keys.data_file_parts(key)[1])
        interval = Interval(start=start, end=end)
        if interval in by_interval:
            found.append((interval, rows))
    for number in sorted(compactions):
        compaction = lake.compaction_of(keys.compaction(table, number))
        intervals = {run.key: run.interval for run in compaction.runs}
        moved = _moved(compaction, by_interval)
        found += [(intervals[key], rows) for key, rows in moved.items() if rows.key in live]
    return sorted(found, key=lambda one: (one[0].start, one[1].key, one[1].first))
