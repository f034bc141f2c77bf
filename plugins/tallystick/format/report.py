"""The report of one Spark attempt: the files that it staged, and its account of every offset.

The attempt itself writes its report, after everything else, with create-if-absent. The commit uses the report that the
stage task of its own run named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import StoredObject, StoredValue
from tallystick.format.lookback import LookbackUsed
from tallystick.format.offsets import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAccount(StoredValue):
    """The account of one planned range: its offsets by class; the classes add up to its length (I7).

    `records`: rows that the job gets. `dead_letters`: records that do not decode. `aborted`: records of aborted
    transactions. `control`: transaction markers. `absent`: removed by compaction. `lost`: gone from the log before they
    were read, accepted by an operator.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    dead_letters: int = 0
    aborted: int = 0
    control: int = 0
    absent: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        length = OffsetRange(start=self.start, end=self.end).length
        counts = (
            self.records,
            self.dead_letters,
            self.aborted,
            self.control,
            self.absent,
            self.lost,
        )
        if self.partition < 0 or min(counts) < 0:
            raise ValueError(
                f"{self.topic}[{self.partition}]: expected counts of at least 0, found a negative count"
            )
        if sum(counts) != length:
            raise ValueError(
                f"{self.topic}[{self.partition}] [{self.start}, {self.end}): expected an account of {length} offsets, "
                f"found {sum(counts)}"
            )


def mostly_dead(records: int, dead: int) -> bool:
    """Return True if there are at least as many dead letters as records: then the declaration is probably wrong."""
    return dead > 0 and dead >= records


_ACCOUNT = (
    "topic",
    "partition",
    "start",
    "end",
    "records",
    "dead_letters",
    "aborted",
    "control",
    "absent",
    "lost",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics(StoredValue):
    """The statistics of one column of one file, as in Iceberg's manifest entries.

    `lower` and `upper` are single-value serialised bounds in hexadecimal (Iceberg spec, Appendix D), or None.
    """

    AS_LIST: ClassVar[bool] = True

    id: int
    size_bytes: int
    values: int
    nulls: int
    lower: str | None = None
    upper: str | None = None

    def __post_init__(self) -> None:
        if min(self.id, self.size_bytes, self.values, self.nulls) < 0:
            raise ValueError(
                f"column {self.id}: expected statistics of at least 0, found a negative one"
            )
        for bound in (self.lower, self.upper):
            if bound is not None:
                bytes.fromhex(bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage(StoredValue):
    """The smallest and largest offset of one topic-partition among a file's rows (both inclusive)."""

    AS_LIST: ClassVar[bool] = True

    topic: str
    partition: int
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last or self.partition < 0:
            raise ValueError(
                f"{self.topic}[{self.partition}]: expected an offset range as lineage, found {self.first}..{self.last}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport(StoredValue):
    """One Parquet file that an attempt uploaded.

    `partition` is the Iceberg partition tuple: an integer, a string or null per partition field. Times and buckets give
    integers; truncate gives the column's type, decimals as text (`12.30`) and binary values as hexadecimal digits.
    `columns` contains statistics per column id. `lineage` is empty if the table aggregates. `split_offsets` are the byte
    offsets of row groups.
    """

    table: str
    key: str
    etag: str
    size_bytes: int
    rows: int
    partition: tuple[int | str | None, ...] = ()
    columns: tuple[ColumnStatistics, ...] = ()
    lineage: tuple[Lineage, ...] = ()
    split_offsets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        keys.check_name(self.table, "table")
        keys.check_table_file(self.key, self.table)
        if self.size_bytes <= 0 or self.rows <= 0 or not self.etag:
            raise ValueError(f"{self.key}: expected a file with bytes, rows and an ETag")
        if len({c.id for c in self.columns}) != len(self.columns):
            raise ValueError(f"{self.key}: expected one statistic per column id, found two")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(StoredObject):
    """All that one attempt staged for one plan. `key` is its own key; `accounts` cover the plan's ranges exactly.

    `lookback`: the earlier time that the job read, if its pipeline has a lookback.
    """

    FORMAT: ClassVar[str] = "tallystick.report/1"

    key: keys.ReportKey
    plan: keys.PlanKey
    plan_sha256: str
    fingerprint: str
    attempt: str
    library: str
    files: tuple[FileReport, ...]
    accounts: tuple[RangeAccount, ...]
    lookback: LookbackUsed | None = None

    def __post_init__(self) -> None:
        keys.check_report(self.key)
        keys.check_plan(self.plan)
        keys.check_attempt(self.attempt)
        if len({f.key for f in self.files}) != len(self.files):
            raise ValueError("expected each file once, found a file twice")

    def rows(self, table: str) -> int:
        """Return the number of rows staged for `table`."""
        return sum(f.rows for f in self.files if f.table == table)


def account_totals(accounts: tuple[RangeAccount, ...]) -> Mapping[str, int]:
    """Sum the classes over ranges: records, dead_letters, aborted, control, absent, lost."""
    return {name: sum(getattr(a, name) for a in accounts) for name in _ACCOUNT[4:]}
