"""From two generations of an interval to the changes between them, in an order that never changes.

Rows are told apart by their identity: the key of a table that aggregates, the lineage of any other. Rows of one identity
(a job may make several of one record) are told apart by their order.

Of intervals of more than HELD rows, a piece of a batch is held in memory. What has to be known of all rows is sorted on
the local disk: 16 bytes and a number per row where rows of one identity may be apart, twice that to compare generations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tallystick.outputs.encoding import encoded
from tallystick.outputs.occurrences import HELD, Key, Occurrences, RowRange, digest
from tallystick.outputs.port import Publication
from tallystick.outputs.spill import AFTER, BEFORE, DigestTables

Operation = Literal["row", "correction", "retraction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One message: a row that holds, one that takes another's place, or one that holds no more.

    `number` counts the messages of a sending, `row_number` the rows of the generation that `row` is of. `identity` says
    which row it is, `occurrence` which of those with that identity.
    """

    number: int
    operation: Operation
    row: Mapping[str, Any]
    row_number: int
    identity: tuple[Any, ...]
    occurrence: int


def changes(publication: Publication, identity: Sequence[str]) -> Generator[Change, None, None]:
    """Yield what leads from what is there to what is to be there: rows and corrections, then retractions.

    Close it (`contextlib.closing`): what it has on the local disk is removed then. Raises ScratchFull when that is full.
    """
    with DigestTables() as spill:
        after = Occurrences(publication.rows, identity, spill, name="after")
        if publication.instead_of is None or not len(publication.rows_before):
            yield from _first(after)
            return
        before = Occurrences(publication.rows_before, identity, spill, name="before")
        differing = _compared(before, after, spill)
        number = 0
        for row_range in after.row_ranges():
            found = differing.changed(AFTER, row_range.first, row_range.end)
            for at, row in _picked(row_range, found):
                yield _change(row_range, at, row, number, "correction" if found[at] else "row")
                number += 1
        if not differing.any_changed(BEFORE):
            return
        for row_range in before.row_ranges():
            gone = differing.changed(BEFORE, row_range.first, row_range.end)
            for at, row in _picked(row_range, gone):
                yield _change(row_range, at, row, number, "retraction")
                number += 1


def _first(rows: Occurrences) -> Iterator[Change]:
    """Each row of a generation before which nothing is there."""
    for row_range in rows.row_ranges():
        for at, row in enumerate(row_range.batch.to_pylist(), start=row_range.first):
            yield _change(row_range, at, row, at, "row")


def _picked(
    row_range: RowRange, found: Mapping[int, bool]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a piece with these numbers, in order."""
    if not found:
        return
    numbers = sorted(found)
    rows = row_range.batch.take([n - row_range.first for n in numbers]).to_pylist()
    yield from zip(numbers, rows, strict=True)


def _change(
    row_range: RowRange, row_number: int, row: Mapping[str, Any], number: int, operation: Operation
) -> Change:
    at = row_number - row_range.first
    return Change(
        number=number,
        operation=operation,
        row=row,
        row_number=row_number,
        identity=row_range.identities[at],
        occurrence=row_range.occurrences[at],
    )


# ---------------------------------------------------------------- what differs


class _Differing(Protocol):
    """Says which rows of a generation differ, by their numbers."""

    def changed(self, side: int, first: int, end: int) -> dict[int, bool]:
        """As `DigestTables.changed`."""
        ...

    def any_changed(self, side: int) -> bool:
        """As `DigestTables.any_changed`."""
        ...


def _compared(before: Occurrences, after: Occurrences, spill: DigestTables) -> _Differing:
    if len(before.rows) + len(after.rows) <= HELD:
        return _Held(before, after)
    spill.compare(_digests(before), _digests(after))
    return spill


def _digests(rows: Occurrences) -> Iterator[tuple[bytes, bytes]]:
    """For each row what names it, and what stands in it."""
    for row_range in rows.row_ranges():
        named: Iterator[tuple[Key, int]] = zip(
            row_range.identities, row_range.occurrences, strict=True
        )
        for (key, occurrence), row in zip(named, row_range.batch.to_pylist(), strict=True):
            content = hashlib.blake2b(encoded(row), digest_size=16).digest()
            yield digest(key, occurrence), content


class _Held:
    """The same for generations that are small enough to be compared in memory."""

    def __init__(self, before: Occurrences, after: Occurrences) -> None:
        there = {name: (at, content) for at, (name, content) in enumerate(_digests(before))}
        found: dict[int, bool] = {}
        for at, (name, content) in enumerate(_digests(after)):
            was = there.pop(name, None)
            if was is None or was[1] != content:
                found[at] = was is not None
        self._found = {AFTER: found, BEFORE: {at: False for at, _ in there.values()}}

    def changed(self, side: int, first: int, end: int) -> dict[int, bool]:
        found = self._found[side]
        return {n: found[n] for n in range(first, end) if n in found}

    def any_changed(self, side: int) -> bool:
        return bool(self._found[side])
