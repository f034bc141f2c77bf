"""From two generations of an interval to the changes between them, in an order that never changes.

Rows are told apart by their identity: the key of a table that aggregates, the lineage of any other. Rows of one identity
(a job may make several of one record) are told apart by their order. Of the older generation 32 bytes per row are held in
memory, of the newer one a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tallystick.outputs.encoding import encoded
from tallystick.outputs.port import Rows, Sending

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


def changes(sending: Sending, identity: Sequence[str]) -> Iterator[Change]:
    """Yield what leads from what is there to what is to be there: rows and corrections, then retractions."""
    if sending.instead_of is None:
        for number, (row, key, occurrence) in enumerate(_rows(sending.rows, identity)):
            yield Change(
                number=number,
                operation="row",
                row=row,
                row_number=number,
                identity=key,
                occurrence=occurrence,
            )
        return
    # By digest of identity and occurrence: the digest of the row that is there.
    there = {
        _digest(key, n): _digest_of(row) for row, key, n in _rows(sending.rows_before, identity)
    }
    number = 0
    for row_number, (row, key, occurrence) in enumerate(_rows(sending.rows, identity)):
        before = there.pop(_digest(key, occurrence), None)
        if before == _digest_of(row):
            continue
        yield Change(
            number=number,
            operation="row" if before is None else "correction",
            row=row,
            row_number=row_number,
            identity=key,
            occurrence=occurrence,
        )
        number += 1
    if not there:
        return
    for row_number, (row, key, occurrence) in enumerate(_rows(sending.rows_before, identity)):
        if _digest(key, occurrence) in there:
            yield Change(
                number=number,
                operation="retraction",
                row=row,
                row_number=row_number,
                identity=key,
                occurrence=occurrence,
            )
            number += 1


def _rows(
    rows: Rows, identity: Sequence[str]
) -> Iterator[tuple[Mapping[str, Any], tuple[Any, ...], int]]:
    """Each row with its identity, and how many of that identity came before it."""
    seen: dict[bytes, int] = {}
    for batch in rows.batches():
        for row in batch.to_pylist():
            # A column that a file lacks is null in its rows: one of an earlier generation may be older than the column.
            key = tuple(row.get(name) for name in identity)
            digest = _digest(key, 0)
            occurrence = seen.get(digest, 0)
            seen[digest] = occurrence + 1
            yield row, key, occurrence


def _digest(key: tuple[Any, ...], occurrence: int) -> bytes:
    return hashlib.blake2b(encoded({"k": list(key), "n": occurrence}), digest_size=16).digest()


def _digest_of(row: Mapping[str, Any]) -> bytes:
    return hashlib.blake2b(encoded(row), digest_size=16).digest()
