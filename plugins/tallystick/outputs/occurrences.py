"""Which of the rows with one identity a row is: the number of those before it, in the fixed order of a plan's rows.

The number is part of what names a message or call for ever, so it never depends on how it is found out:

- of up to HELD rows, each identity's count is held in memory;
- of more, while they come in runs that ascend and do not overlap (the files of an Arrow job: each has the records of one
  range of offsets), rows of one identity are neighbours: the last one and each run's two ends are held;
- else, from the first piece on of which that is not so, the digests of all identities are sorted on the local disk.
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
"""Rows of an interval up to which each identity's count is held in memory: some 20 MB."""
RUNS_MAX = 20_000
PIECE_ROWS = 4_096
"""Rows that are Python objects at once."""

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """Some rows in a row: the number of the first, and each one's identity and occurrence."""

    first: int
    batch: pa.RecordBatch
    identities: list[Key]
    occurrences: list[int]

    @property
    def end(self) -> int:
        """The number of the row after the last."""
        return self.first + len(self.identities)


class Occurrences:
    """The rows of a plan, counted by identity. May be read more than once: what was sorted is sorted once."""

    def __init__(
        self, rows: Rows, identity: Sequence[str], spill: DigestTables, *, name: str
    ) -> None:
        self.rows, self._identity = rows, tuple(identity)
        self._spill, self._name = spill, name
        self._sorted = False

    def row_ranges(self) -> Iterator[RowRange]:
        """Yield them in their order."""
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
    # A column that a file lacks is null in its rows: one of an earlier generation may be older than the column.
    nulls = [None] * len(batch)
    columns = [
        batch.column(name).to_pylist() if name in batch.schema.names else nulls for name in names
    ]
    return list(zip(*columns, strict=True)) if columns else [()] * len(batch)


def digest(key: Key, occurrence: int) -> bytes:
    """The name of a row: of its identity, and of which row with that identity it is."""
    return hashlib.blake2b(encoded({"k": list(key), "n": occurrence}), digest_size=16).digest()


class _Seen:
    """Each identity's count in memory."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}

    def count(
        self, batch: pa.RecordBatch, names: Sequence[str], identities: list[Key]
    ) -> list[int] | None:
        """How many rows came before each."""
        del batch, names
        found = []
        for key in identities:
            name = digest(key, 0)
            before = self._seen.get(name, 0)
            self._seen[name] = before + 1
            found.append(before)
        return found


class _Runs:
    """Runs of identities that ascend. While no two overlap, equal identities are neighbours."""

    def __init__(self) -> None:
        self._kinds: list[str] | None = None
        # The ends of the runs, both sorted; that of the run which goes on is in `_last`.
        self._firsts: list[Key] = []
        self._lasts: list[Key] = []
        self._at = 0
        self._last: Key | None = None
        self._bound: Key | None = None  # where the next run above begins
        self._before = 0

    def count(
        self, batch: pa.RecordBatch, names: Sequence[str], identities: list[Key]
    ) -> list[int] | None:
        """How many rows came before each; None when neighbours do not tell it."""
        kinds = _ordered_kinds(batch, names)
        if kinds is None or (self._kinds is not None and kinds != self._kinds):
            return None
        self._kinds = kinds
        found = []
        # Each piece begins a run: one that skips others' rows would overlap them. It goes on with the run before only
        # if its first key is that run's last, and then it is bounded as that run is.
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
        """Begin a run; False when the key may have been there before, or there are too many runs."""
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
    """Text, number or instant per column; None when one has others: their equality may not be that of their JSON."""
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
            kinds.append("instant")  # the fourth column of a lineage
        else:
            return None
    return kinds
