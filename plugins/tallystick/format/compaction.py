"""Compactions: immutable, one per group of small files of one table that were rewritten into shared files.

The object lists, for each shared file, its runs. A run is all rows of one file that the report of a committed plan
listed. The rows of a shared file are numbered in the order of its runs, so the rows of a reported file are a range of row
numbers, also in a table whose rows have no lineage. If a shared file is not sorted, its rows are in the order of their
numbers. If it is sorted, its row order has the run of the row at each position, and the rows of a run are
numbered in their order there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import StoredObject, StoredValue
from tallystick.format.columns import TableColumn, check_columns
from tallystick.format.interval import Interval
from tallystick.format.report import FileReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(StoredValue):
    """All rows of one reported file. `source`: the compaction that had moved them before, or None."""

    AS_LIST: ClassVar[bool] = True

    key: str
    rows: int
    source: keys.CompactionId | None = None

    def __post_init__(self) -> None:
        keys.data_file_parts(self.key)
        if self.rows < 1:
            raise ValueError(f"{self.key}: expected a run of at least one row, found {self.rows}")
        if self.source is not None:
            keys.check_uuid(self.source)

    @property
    def interval(self) -> Interval:
        """The interval of the plan that wrote the file."""
        return _interval_of(keys.data_file_parts(self.key)[1])

    @property
    def plan(self) -> keys.PlanKey:
        """The plan that wrote the file."""
        return keys.plan_of_data_file(self.key)


@lru_cache(maxsize=16_384)
def _interval_of(part: str) -> Interval:
    """Return the interval of a key's part. A compaction has thousands of runs, of some hundred intervals."""
    start, end = keys.part_interval(part)
    return Interval(start=start, end=end)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder(StoredValue):
    """The object with the run of each row of a sorted shared file, and the ids of the columns by which it is sorted.

    Its format is that of the compaction's version: Parquet with one column, `run`, of 32-bit integers.
    """

    key: str
    etag: str
    sorted_by: tuple[int, ...]

    def __post_init__(self) -> None:
        keys.row_order_parts(self.key)
        if not self.sorted_by or not self.etag:
            raise ValueError(f"{self.key}: expected columns to sort by and an ETag")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRun:
    """A run, and its row numbers `first <= number < end` in its shared file."""

    run: Run
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile(StoredValue):
    """One file with the rows of several runs: in their order, or sorted, and then `order` has the run of each row."""

    file: FileReport
    runs: tuple[Run, ...]
    order: RowOrder | None = None

    def __post_init__(self) -> None:
        rows = sum(run.rows for run in self.runs)
        if rows != self.file.rows:
            raise ValueError(
                f"{self.file.key}: expected the {rows} rows of its runs, found {self.file.rows}"
            )

    def placed(self) -> Iterator[PlacedRun]:
        """Yield the runs with their row numbers."""
        for run, end in zip(self.runs, accumulate(r.rows for r in self.runs), strict=True):
            yield PlacedRun(run=run, first=end - run.rows, end=end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction(StoredObject):
    """Shared files of one table. `columns`, `partition_by`: those of the root when the files were written."""

    FORMAT: ClassVar[str] = "tallystick.compaction/1"

    key: keys.CompactionKey
    pipeline: str
    uuid: str
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...]
    files: tuple[SharedFile, ...]
    library: str

    def __post_init__(self) -> None:
        keys.check_name(self.pipeline, "pipeline")
        keys.check_uuid(self.uuid)
        check_columns(self.columns)
        for shared in self.files:
            keys.check_shared_file(shared.file.key, self.table, self.id)
            if shared.order is not None:
                keys.check_row_order(shared.order.key, self.table, self.id)
        named = [run.key for run in self.runs]
        if len(set(named)) != len(named):
            raise ValueError("expected each moved file once, found a file twice")
        for key in named:
            keys.check_data_file(key, self.table)
        if not self.files:
            raise ValueError("expected a compaction with a shared file, found none")

    @property
    def table(self) -> str:
        """The table whose files were rewritten."""
        return keys.compaction_parts(self.key)[0]

    @property
    def id(self) -> keys.CompactionId:
        """The compaction's id, by which entries name it."""
        return keys.compaction_parts(self.key)[1]

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, file by file."""
        return tuple(run for shared in self.files for run in shared.runs)

    @property
    def intervals(self) -> frozenset[Interval]:
        """The intervals whose rows were moved."""
        return frozenset(run.interval for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionGrant(StoredValue):
    """A compaction that may be published: gc keeps its files, and cancels the grant when it is old."""

    key: keys.CompactionKey
    granted_at: datetime

    def __post_init__(self) -> None:
        keys.check_compaction(self.key)
        keys.check_instant(self.granted_at)
