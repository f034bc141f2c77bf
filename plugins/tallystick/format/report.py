"""What one Spark attempt staged: its files, and the account of every offset it read.

Written last, by the attempt itself, create-if-absent; the commit takes the report that its own run named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.format import keys
from tallystick.format.canonical import (
    built,
    corrupt,
    decode,
    encode,
    fields,
    integer,
    integers,
    text,
)
from tallystick.format.lookback import LookedBack, parse_looked_back
from tallystick.format.offsets import OffsetRange

FORMAT = "tallystick.report/1"
# A report of a job that looked back. A library that knows only the first would forget what the rows depend on.
FORMAT_LOOKED = "tallystick.report/2"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAccount:
    """What became of each offset of one planned range; the classes add up to its length (I7).

    `records`: rows handed to the job. `dead`: dead letters. `aborted`: records of aborted transactions. `control`:
    transaction markers. `absent`: compacted away. `lost`: gone before it was read, accepted by an operator.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    dead: int = 0
    aborted: int = 0
    control: int = 0
    absent: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        length = OffsetRange(start=self.start, end=self.end).length
        counts = (self.records, self.dead, self.aborted, self.control, self.absent, self.lost)
        if self.partition < 0 or min(counts) < 0:
            raise ValueError(f"{self.topic}[{self.partition}]: a count is negative")
        if sum(counts) != length:
            raise ValueError(
                f"{self.topic}[{self.partition}] [{self.start}, {self.end}): the account adds up to {sum(counts)}, "
                f"the range holds {length} offsets"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {name: getattr(self, name) for name in _ACCOUNT}


def mostly_dead(records: int, dead: int) -> bool:
    """True if half of the records or more are dead letters: likelier the declaration is wrong than the data."""
    return dead > 0 and dead >= records


_ACCOUNT = (
    "topic",
    "partition",
    "start",
    "end",
    "records",
    "dead",
    "aborted",
    "control",
    "absent",
    "lost",
)


def parse_account(value: Any, where: str) -> RangeAccount:
    """Read the JSON form; raises Corrupt."""
    f = fields(value, where)
    topic = f.take("topic", str)
    numbers = {name: f.take(name, int) for name in _ACCOUNT[1:]}
    f.done()
    return built(where, lambda: RangeAccount(topic=topic, **numbers))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Statistics of one column of one file, as Iceberg's manifest entries hold them.

    `lower` and `upper` are single-value serialised bounds in hexadecimal (Iceberg spec, Appendix D), or None.
    """

    id: int
    size_bytes: int
    values: int
    nulls: int
    lower: str | None = None
    upper: str | None = None

    def __post_init__(self) -> None:
        if min(self.id, self.size_bytes, self.values, self.nulls) < 0:
            raise ValueError(f"column {self.id}: a statistic is negative")
        for bound in (self.lower, self.upper):
            if bound is not None:
                bytes.fromhex(bound)

    def to_json(self) -> list[Any]:
        """Return the JSON form, a list: files are many and columns more."""
        return [self.id, self.size_bytes, self.values, self.nulls, self.lower, self.upper]


def parse_statistics(value: Any, where: str) -> ColumnStatistics:
    """Read the JSON form; raises Corrupt."""
    if not isinstance(value, list) or len(value) != 6:
        raise corrupt(where, "six values belong here")
    number, size_bytes, values, nulls = integers(value[:4], where, count=4)
    lower, upper = (None if bound is None else text(bound, where) for bound in value[4:])
    return built(
        where,
        lambda: ColumnStatistics(
            id=number, size_bytes=size_bytes, values=values, nulls=nulls, lower=lower, upper=upper
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The smallest and largest offset of one topic-partition among a file's rows (both inclusive)."""

    topic: str
    partition: int
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last or self.partition < 0:
            raise ValueError(f"{self.topic}[{self.partition}]: lineage {self.first}..{self.last}")

    def to_json(self) -> list[Any]:
        """Return the JSON form."""
        return [self.topic, self.partition, self.first, self.last]


def parse_lineage(value: Any, where: str) -> Lineage:
    """Read the JSON form; raises Corrupt."""
    if not isinstance(value, list) or len(value) != 4:
        raise corrupt(where, "four values belong here")
    topic = text(value[0], where)
    partition, first, last = integers(value[1:], where, count=3)
    return built(where, lambda: Lineage(topic=topic, partition=partition, first=first, last=last))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """One Parquet file that an attempt uploaded.

    `partition` holds the Iceberg partition tuple: an integer, a string or null per partition field (day, hour, month and
    year transforms give integers). `columns` holds statistics per column id. `lineage` is empty for tables that
    aggregate. `split_offsets` are the byte offsets of row groups.
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
        keys.check_data_file(self.key, self.table)
        if self.size_bytes <= 0 or self.rows <= 0 or not self.etag:
            raise ValueError(f"{self.key}: a file has bytes, rows and an ETag")
        if len({c.id for c in self.columns}) != len(self.columns):
            raise ValueError(f"{self.key}: two statistics for one column id")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "table": self.table,
            "key": self.key,
            "etag": self.etag,
            "size_bytes": self.size_bytes,
            "rows": self.rows,
            "partition": list(self.partition),
            "columns": [c.to_json() for c in self.columns],
            "lineage": [line.to_json() for line in self.lineage],
            "split_offsets": list(self.split_offsets),
        }


def parse_file(value: Any, where: str) -> FileReport:
    """Read the JSON form; raises Corrupt."""
    f = fields(value, where)
    table, key, etag = (f.take(name, str) for name in ("table", "key", "etag"))
    size_bytes, rows = (f.take(name, int) for name in ("size_bytes", "rows"))
    partition = f.take_list("partition", _partition_value)
    columns = f.take_list("columns", parse_statistics)
    lineage = f.take_list("lineage", parse_lineage)
    split_offsets = f.take_list("split_offsets", integer)
    f.done()
    return built(
        where,
        lambda: FileReport(
            table=table,
            key=key,
            etag=etag,
            size_bytes=size_bytes,
            rows=rows,
            partition=partition,
            columns=columns,
            lineage=lineage,
            split_offsets=split_offsets,
        ),
    )


def _partition_value(value: Any, where: str) -> int | str | None:
    if value is None or isinstance(value, str):
        return value
    return integer(value, where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that one attempt staged for one plan: `key` names itself, `accounts` cover the plan's ranges exactly.

    `looked`: what the job saw of earlier intervals, where its pipeline looks back.
    """

    key: str
    plan: str
    plan_sha256: str
    fingerprint: str
    attempt: str
    library: str
    files: tuple[FileReport, ...]
    accounts: tuple[RangeAccount, ...]
    looked: LookedBack | None = None

    def __post_init__(self) -> None:
        keys.check_report(self.key)
        keys.check_plan(self.plan)
        keys.check_attempt(self.attempt)
        if len({f.key for f in self.files}) != len(self.files):
            raise ValueError("a file is listed twice")

    def encode(self) -> bytes:
        """Return the canonical bytes; `looked` stands only in the second format."""
        form = {
            "key": self.key,
            "plan": self.plan,
            "plan_sha256": self.plan_sha256,
            "fingerprint": self.fingerprint,
            "attempt": self.attempt,
            "library": self.library,
            "files": [f.to_json() for f in self.files],
            "accounts": [a.to_json() for a in self.accounts],
        }
        if self.looked is None:
            return encode({"format": FORMAT, **form})
        return encode({"format": FORMAT_LOOKED, **form, "looked": self.looked.to_json()})

    def rows(self, table: str) -> int:
        """Rows staged for `table`."""
        return sum(f.rows for f in self.files if f.table == table)


def parse_report(body: bytes, *, where: str) -> Report:
    """Read a report's bytes; raises Corrupt naming `where`."""
    f = decode(body, where=where, format_name=FORMAT, later=(FORMAT_LOOKED,))
    names = ("key", "plan", "plan_sha256", "fingerprint", "attempt", "library")
    texts = {name: f.take(name, str) for name in names}
    files = f.take_list("files", parse_file)
    accounts = f.take_list("accounts", parse_account)
    looked = parse_looked_back(f.take_fields("looked")) if f.format_name == FORMAT_LOOKED else None
    f.done()
    return built(where, lambda: Report(files=files, accounts=accounts, looked=looked, **texts))


def account_totals(accounts: tuple[RangeAccount, ...]) -> Mapping[str, int]:
    """Sum the classes over ranges: records, dead, aborted, control, absent, lost."""
    return {name: sum(getattr(a, name) for a in accounts) for name in _ACCOUNT[4:]}
