"""Computes the changes between two generations of an interval, in an order that never changes.

A row is identified by the key of a table that aggregates, or by the lineage of any other table. If several rows have
one identity (a job may make several rows of one record), they are identified by their order.

If an interval has more than HELD rows, only a slice of a batch is held in memory. Data that is needed about all rows
is sorted on the local disk: 16 bytes and a number per row if rows of one identity may be apart, twice that when
generations are compared.
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
    """One message: a row, a correction that replaces a row, or the retraction of a row that is no longer valid.

    `number` counts the messages of a publication, `row_number` the rows of the generation that has `row`. `identity`
    identifies the row, `occurrence` distinguishes rows with that identity.
    """

    number: int
    operation: Operation
    row: Mapping[str, Any]
    row_number: int
    identity: tuple[Any, ...]
    occurrence: int


def changes(publication: Publication, identity: Sequence[str]) -> Generator[Change, None, None]:
    """Yield the changes from the published rows to the new rows: rows and corrections, then retractions.

    Close the generator (`contextlib.closing`): this removes its files on the local disk. Raises ScratchFull if the
    disk is full.
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
    """Yield each row of a generation that replaces nothing."""
    for row_range in rows.row_ranges():
        for at, row in enumerate(
            row_range.batch.to_pylist(maps_as_pydicts="strict"), start=row_range.first
        ):
            yield _change(row_range, at, row, at, "row")


def _picked(
    row_range: RowRange, found: Mapping[int, bool]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of a range that have these numbers, in order."""
    if not found:
        return
    numbers = sorted(found)
    rows = row_range.batch.take([n - row_range.first for n in numbers]).to_pylist(
        maps_as_pydicts="strict"
    )
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


# ---------------------------------------------------------------- differences


class _Differing(Protocol):
    """The rows of a generation that differ, by their numbers."""

    def changed(self, side: int, first: int, end: int) -> dict[int, bool]:
        """Return the same as `DigestTables.changed`."""
        ...

    def any_changed(self, side: int) -> bool:
        """Return the same as `DigestTables.any_changed`."""
        ...


def _compared(before: Occurrences, after: Occurrences, spill: DigestTables) -> _Differing:
    if len(before.rows) + len(after.rows) <= HELD:
        return _Held(before, after)
    spill.compare(_digests(before), _digests(after))
    return spill


def _digests(rows: Occurrences) -> Iterator[tuple[bytes, bytes]]:
    """Yield two digests per row: of its name and of its content."""
    for row_range in rows.row_ranges():
        named: Iterator[tuple[Key, int]] = zip(
            row_range.identities, row_range.occurrences, strict=True
        )
        for (key, occurrence), row in zip(
            named, row_range.batch.to_pylist(maps_as_pydicts="strict"), strict=True
        ):
            content = hashlib.blake2b(encoded(row), digest_size=16).digest()
            yield digest(key, occurrence), content


class _Held:
    """The rows that differ, if both generations are small enough to be compared in memory."""

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
