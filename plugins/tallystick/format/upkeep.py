"""Upkeep: what is kept of a table's history, how its files are written, and its sort order; and the reader grace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta

from tallystick.errors import InvalidPipeline, listed
from tallystick.format.codec import OMITTED, StoredValue

SNAPSHOTS_MAX = 1000
METADATA_MAX = 1000
FILE_BYTES_MIN, FILE_BYTES_MAX = 1 << 20, 2 << 30
COMPRESSIONS = ("zstd", "snappy", "gzip", "uncompressed")
PARQUET_VERSIONS = (1, 2)
SORTABLE = (
    *("boolean", "int", "long", "decimal", "date", "time", "timestamp", "timestamptz"),
    *("string", "binary", "fixed"),
)
"""The types of columns to sort by, up to a `(` or `[`: Arrow and Iceberg order their values in the same way."""
READER_GRACE_MAX = timedelta(days=3650)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep(StoredValue):
    """What is kept of a table's history, how its files are written, and its sort order.

    `snapshots_kept`: the newest snapshots that the table's metadata lists. `snapshots_kept_for`: younger ones are listed,
    too, at most 1,000 in all; None: no others are. Measured at each commit of the table, which never removes the current
    snapshot. `metadata_kept`: the earlier metadata files that the metadata log names. `file_size_bytes`: a data file that
    reaches it is closed, and another one begins. `compression`: that of Parquet files, `zstd`, `snappy`, `gzip` or
    `uncompressed`. `sort_by`: the columns of the table's sort order, ascending, nulls first. `parquet_version`: with 2,
    files also have the encodings and data pages that Parquet 2 added, which older readers refuse.
    Raises InvalidPipeline at once if a value is out of range.
    """

    snapshots_kept: int = 50
    snapshots_kept_for: timedelta | None = None
    metadata_kept: int = 20
    file_size_bytes: int = 128 << 20
    compression: str = "zstd"
    sort_by: Sequence[str] = ()
    parquet_version: int = field(default=1, metadata=OMITTED)

    def __post_init__(self) -> None:
        self._check_range("snapshots_kept", 1, SNAPSHOTS_MAX)
        self._check_range("metadata_kept", 1, METADATA_MAX)
        self._check_range("file_size_bytes", FILE_BYTES_MIN, FILE_BYTES_MAX)
        age = self.snapshots_kept_for
        if age is not None and (age < _MS or age % _MS):
            raise _refused(
                f"expected snapshots_kept_for of at least 1 ms in whole milliseconds, found {age}",
                "use whole milliseconds, at least one, e.g. timedelta(days=7); or leave it out.",
            )
        if self.compression not in COMPRESSIONS:
            raise _refused(
                f"unknown compression={self.compression!r}", f"use one of {listed(COMPRESSIONS)}."
            )
        if type(self.parquet_version) is not int or self.parquet_version not in PARQUET_VERSIONS:
            raise _refused(
                f"unknown parquet_version={self.parquet_version!r}",
                f"use one of {listed(PARQUET_VERSIONS)}.",
            )
        if isinstance(self.sort_by, str):  # a string is also a sequence: of its characters
            raise _refused(
                f"sort_by: expected a list, found the string {self.sort_by!r}",
                f"write [{self.sort_by!r}].",
            )
        object.__setattr__(self, "sort_by", tuple(self.sort_by))
        if len(set(self.sort_by)) != len(self.sort_by):
            raise _refused(
                f"expected each column of sort_by once, found {listed(self.sort_by)}",
                "name each column once.",
            )

    def _check_range(self, name: str, least: int, most: int) -> None:
        found = getattr(self, name)
        if type(found) is not int or not least <= found <= most:
            raise _refused(
                f"expected {name} to be a whole number from {least} to {most}, found {found!r}",
                f"use a number in this range, or leave it out: it is {getattr(DEFAULT, name)} then.",
            )

    def changes(self, before: Upkeep) -> tuple[str, ...]:
        """Return each field that differs from an earlier upkeep, as text."""
        found: list[str] = []
        for one in fields(self):
            old, new = getattr(before, one.name), getattr(self, one.name)
            if old != new:
                found.append(f"{one.name} changes from {_text(old)} to {_text(new)}")
        return tuple(found)


def check_reader_grace(grace: timedelta) -> timedelta:
    """Return a reader grace unchanged; raises InvalidPipeline if it is out of range."""
    if not timedelta(0) <= grace <= READER_GRACE_MAX or grace % _MS:
        raise InvalidPipeline(
            f"reader_grace: expected 0 to {READER_GRACE_MAX.days} days in whole milliseconds, found {grace}.",
            hint="use e.g. timedelta(hours=24).",
        )
    return grace


def is_sortable(kind: str) -> bool:
    """Return True if a table can be sorted by a column of this type, which may be nested."""
    return kind.partition("(")[0].partition("[")[0] in SORTABLE


def _text(value: object) -> str:
    return (", ".join(value) or "nothing") if isinstance(value, tuple) else str(value)


def _refused(message: str, hint: str) -> InvalidPipeline:
    return InvalidPipeline(f"upkeep: {message}.", hint=hint)


DEFAULT = Upkeep()
