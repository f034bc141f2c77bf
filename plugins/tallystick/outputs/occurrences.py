"""Counts the occurrence of each row: the number of earlier rows of the plan with its identity, in their fixed order.

The occurrence is a permanent part of the name of a message or call, so it does not depend on how it is counted:

- if an interval has up to HELD rows, the count of each identity is held in memory;
- if it has more rows, and they come in ascending runs that do not overlap (the files of an Arrow job: each has the
  records of one range of offsets), rows of one identity are neighbours: the last identity and the two ends of each
  run are held in memory;
- otherwise, from the first slice of a batch on that breaks this order, the digests of all identities are sorted on
  the local disk.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tallystick.outputs.encoding import encoded
from tallystick.outputs.port import Rows

if TYPE_CHECKING:
    from tallystick.outputs.spill import DigestTables

HELD = 100_000
"""The number of rows of an interval up to which the count of each identity is held in memory: about 20 MB."""
RUNS_MAX = 20_000
PIECE_ROWS = 4_096
"""The number of rows that exist as Python objects at once."""

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """Consecutive rows: the number of the first row, and the identity and occurrence of each row."""

    first: int
    batch: pa.RecordBatch
    identities: list[Key]
    occurrences: list[int]

    @property
    def end(self) -> int:
        """The number of the row after the last."""
        return self.first + len(self.identities)


class Occurrences:
    """The rows of a plan with their occurrences. They can be read more than once, but are sorted only once."""

    def __init__(
        self, rows: Rows, identity: Sequence[str], spill: DigestTables, *, name: str
    ) -> None:
        self.rows, self._identity = rows, tuple(identity)
        self._spill, self._name = spill, name
        self._sorted = False

    def row_ranges(self) -> Iterator[RowRange]:
        """Yield the rows in their order."""
        seen: _Seen | _Runs = _Seen() if len(self.rows) <= HELD else _Runs()
        for first, batch, identities in self._identified():
            found = None if self._sorted else seen.count(batch, self._identity, identities)
            if found is None:
                found = self._from_disk(first, len(identities))
            yield RowRange(first=first, batch=batch, identities=identities, occurrences=found)

    def _from_disk(self, first: int, count: int) -> list[int]:
        if not self._sorted:
            digests = (digest(k, 0) for _, _, keys in self._identified() for k in keys)
            self._spill.count(self._name, digests)
            self._sorted = True
        found = self._spill.counted(self._name, first, first + count)
        return [found.get(number, 0) for number in range(first, first + count)]

    def _identified(self) -> Iterator[tuple[int, pa.RecordBatch, list[Key]]]:
        first = 0
        for whole in self.rows.batches():
            for at in range(0, len(whole), PIECE_ROWS):
                batch = whole.slice(at, PIECE_ROWS)
                yield first, batch, _identities(batch, self._identity)
                first += len(batch)


def _identities(batch: pa.RecordBatch, names: Sequence[str]) -> list[Key]:
    # If a file lacks a column, it is null in its rows: a file of an earlier generation may be older than the column.
    nulls = [None] * len(batch)
    columns = [
        batch.column(name).to_pylist(maps_as_pydicts="strict")
        if name in batch.schema.names
        else nulls
        for name in names
    ]
    return list(zip(*columns, strict=True)) if columns else [()] * len(batch)


def digest(key: Key, occurrence: int) -> bytes:
    """Return the digest of 16 bytes that names a row: of its identity and its occurrence."""
    return hashlib.blake2b(encoded({"k": list(key), "n": occurrence}), digest_size=16).digest()


class _Seen:
    """The count of each identity, held in memory."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}

    def count(
        self, batch: pa.RecordBatch, names: Sequence[str], identities: list[Key]
    ) -> list[int] | None:
        """Return the number of earlier rows with the same identity, for each row."""
        del batch, names
        found = []
        for key in identities:
            name = digest(key, 0)
            before = self._seen.get(name, 0)
            self._seen[name] = before + 1
            found.append(before)
        return found


class _Runs:
    """Ascending runs of identities. As long as no two runs overlap, equal identities are neighbours."""

    def __init__(self) -> None:
        self._kinds: list[str] | None = None
        # The first and last key of each run, both sorted. The last key of the current run is in `_last`.
        self._firsts: list[Key] = []
        self._lasts: list[Key] = []
        self._at = 0
        self._last: Key | None = None
        self._bound: Key | None = None  # the first key of the next higher run
        self._before = 0

    def count(
        self, batch: pa.RecordBatch, names: Sequence[str], identities: list[Key]
    ) -> list[int] | None:
        """Return the number of earlier rows with the same identity, for each row.

        Returns None if the order of the rows is not sufficient to count them.
        """
        kinds = _ordered_kinds(batch, names)
        if kinds is None or (self._kinds is not None and kinds != self._kinds):
            return None
        self._kinds = kinds
        found = []
        # Each slice begins a run: if a run skipped the rows of other runs, it would overlap them. A slice continues
        # the current run only if its first key is the last key of that run. Then it has the same bound.
        last, bound = None, self._bound
        for key in identities:
            if key == self._last:
                self._before += 1
            elif last is not None and key > last and (bound is None or key < bound):
                self._last, self._before = key, 0
            elif not self._begin(key):
                return None
            else:
                bound = self._bound
            last = key
            found.append(self._before)
        return found

    def _begin(self, key: Key) -> bool:
        """Begin a run. Return False if the key may have occurred before, or if there are too many runs."""
        if self._last is not None:
            self._lasts[self._at] = self._last
        at = bisect_right(self._firsts, key)
        if (at and key <= self._lasts[at - 1]) or len(self._firsts) >= RUNS_MAX:
            return False
        self._bound = self._firsts[at] if at < len(self._firsts) else None
        self._firsts.insert(at, key)
        self._lasts.insert(at, key)
        self._at, self._last, self._before = at, key, 0
        return True


def _ordered_kinds(batch: pa.RecordBatch, names: Sequence[str]) -> list[str] | None:
    """Return "text", "number" or "instant" for each column, or None if one is not of these types.

    None, too, if a column is missing or has nulls. For other types, equality of two values may differ from equality of
    their JSON.
    """
    kinds = []
    for name in names:
        if name not in batch.schema.names or batch.column(name).null_count:
            return None
        kind = batch.schema.field(name).type
        if pa.types.is_integer(kind):
            kinds.append("number")
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            kinds.append("text")
        elif pa.types.is_timestamp(kind) and (kind.unit, kind.tz) == ("us", "UTC"):
            kinds.append("instant")  # the type of the fourth lineage column
        else:
            return None
    return kinds
