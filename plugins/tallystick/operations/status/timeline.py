"""Commits as a time line: of each, what its swap added to the tables, and how long after its plan it came.

Rows and bytes are in the reports of the commits. A report or a plan that gc has deleted leaves them unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.report import FileReport, Report
from tallystick.lake import Lake

READERS = 8
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """What a commit wrote into a table."""

    files: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineInterval:
    """One committed interval. `planned_at` and `tables` are None if its plan or its report is gone."""

    committed: CommittedInterval
    planned_at: datetime | None
    tables: Mapping[str, TableRows] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineCommit:
    """One commit with its intervals, or with the tables whose files it compacted."""

    record: keys.RecordKey
    version: int
    committed_at: datetime
    library: str
    intervals: tuple[TimelineInterval, ...]
    compacted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Commits, newest first. `before`: the record of the next older commit; None if there is none."""

    commits: tuple[TimelineCommit, ...]
    before: keys.RecordKey | None


def read_timeline(lake: Lake, *, limit: int, before: keys.RecordKey | None = None) -> Timeline:
    """Return at most `limit` commits, newest first, from the commit `before` on (None: from the last one).

    Raises RootVanished if there is no root, Corrupt if a record is damaged. The chain ends at a record that is gone.
    """
    key = before or lake.load_existing().root.record
    records: list[Record] = []
    while key is not None and len(records) < limit:
        record = lake.record(key)
        if record is None:
            key = None
            break
        records.append(record)
        key = record.parent
    return Timeline(commits=with_reports(lake, records), before=key)


def with_reports(lake: Lake, records: Iterable[Record]) -> tuple[TimelineCommit, ...]:
    """Return the commits of these records with what their reports and plans contain."""
    found = tuple(records)
    intervals = [one for record in found for one in record.intervals]
    plans = read_all([one.plan for one in intervals], lambda key: _readable(lake.plan, key))
    reports = read_all(
        [one.report for one in intervals if one.report is not None],
        lambda key: _readable(lake.report, key),
    )
    return tuple(
        TimelineCommit(
            record=record.key,
            version=record.version,
            committed_at=record.committed_at,
            library=record.library,
            intervals=tuple(_interval(one, plans, reports) for one in record.intervals),
            compacted=tuple(sorted({keys.compaction_parts(k)[0] for k in record.compactions})),
        )
        for record in found
    )


def read_all(names: Iterable[K], read: Callable[[K], V]) -> dict[K, V]:
    """Return `read(name)` of each name; several at once, because each is a request."""
    wanted = list(dict.fromkeys(names))
    with ThreadPoolExecutor(max_workers=READERS) as readers:
        return dict(zip(wanted, readers.map(read, wanted), strict=True))


def rows_by_table(files: Iterable[FileReport]) -> Mapping[str, TableRows]:
    """Return the sums of files, rows and bytes by table."""
    sums: dict[str, list[int]] = {}
    for file in files:
        one = sums.setdefault(file.table, [0, 0, 0])
        one[0] += 1
        one[1] += file.rows
        one[2] += file.size_bytes
    return {
        table: TableRows(files=files_, rows=rows, size_bytes=size)
        for table, (files_, rows, size) in sorted(sums.items())
    }


def _interval(
    one: CommittedInterval,
    plans: Mapping[keys.PlanKey, Plan | None],
    reports: Mapping[keys.ReportKey, Report | None],
) -> TimelineInterval:
    plan = plans[one.plan]
    report = None if one.report is None else reports[one.report]
    # An interval without offsets has no report, because it has no rows.
    tables = None if report is None and one.report is not None else rows_by_table(_files(report))
    return TimelineInterval(
        committed=one, planned_at=None if plan is None else plan.planned_at, tables=tables
    )


def _files(report: Report | None) -> tuple[FileReport, ...]:
    return () if report is None else report.files


def _readable(read: Callable[[str], V | None], key: str) -> V | None:
    try:
        return read(key)
    except Corrupt:  # `tally verify` reports it; it must not hide the other commits
        return None
