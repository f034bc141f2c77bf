"""Commit records: immutable, one per swap that commits an interval, chained by `parent`.

A record contains the tables and pages of the root that its swap wrote. From it, a reader can read an old version, and gc
finds the objects that the retained versions reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import StoredObject, StoredValue
from tallystick.format.interval import Interval, Request
from tallystick.format.page import PageRef, Totals
from tallystick.format.report import RangeAccount
from tallystick.format.root import RootTable


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedInterval(StoredValue):
    """One interval that a swap committed: its plan, its report, the record that it replaced, the account of each offset.

    `report` is None if the interval has no offsets. `added` and `dropped` name data files by table.
    """

    interval: Interval
    plan: keys.PlanKey
    report: keys.ReportKey | None
    request: Request
    generation: int
    fingerprint: str
    replaces: keys.RecordKey | None
    totals: Totals
    accounts: tuple[RangeAccount, ...]
    added: Mapping[str, tuple[str, ...]]
    dropped: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        if self.report is not None:
            keys.check_report(self.report)
        if self.replaces is not None:
            keys.check_record(self.replaces)
        for files in (self.added, self.dropped):
            for table, names in files.items():
                for name in names:
                    keys.check_data_file(name, table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(StoredObject):
    """One commit: the intervals that it committed, the compactions that it published, and the tables and pages after it.

    A record has either intervals or compactions. `compacted`: of a record with compactions, the one before it.
    """

    FORMAT: ClassVar[str] = "tallystick.record/1"

    key: keys.RecordKey
    version: int
    root_id: str
    parent: keys.RecordKey | None
    committed_at: datetime
    library: str
    intervals: tuple[CommittedInterval, ...]
    tables: Mapping[str, RootTable]
    pages: tuple[PageRef, ...]
    compactions: tuple[keys.CompactionKey, ...] = ()
    compacted: keys.RecordKey | None = None

    def __post_init__(self) -> None:
        if keys.record_version(self.key) != self.version:
            raise ValueError(
                f"expected the key of a record of version {self.version}, found {self.key}"
            )
        if self.parent is not None and keys.record_version(self.parent) >= self.version:
            raise ValueError(
                f"expected a parent before version {self.version}, found {self.parent}"
            )
        keys.check_uuid(self.root_id)
        keys.check_instant(self.committed_at)
        if bool(self.intervals) is bool(self.compactions):
            raise ValueError("expected a record that commits intervals or publishes compactions")
        for compaction in self.compactions:
            keys.check_compaction(compaction)
        if self.compacted is not None and (
            not self.compactions or keys.record_version(self.compacted) >= self.version
        ):
            raise ValueError(f"expected an earlier record with compactions, found {self.compacted}")
