"""Derives the calls of a publication, each with an idempotency key that never changes.

A key is derived from the purpose of its call, never from a clock or at random. It depends on the lake, the pipeline,
the output, and
- if key columns are declared: their values, regardless of the interval and generation of the row;
- otherwise: the interval, the identity of the row (its lineage, or the key of a table that aggregates), and its
  occurrence among the rows with that identity. If the publication replaces an earlier generation, the key also
  depends on the plan and the operation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tallystick.errors import OutputRefused
from tallystick.outputs.changes import Change, Operation, changes
from tallystick.outputs.encoding import encoded, plain
from tallystick.outputs.occurrences import Occurrences, RowRange, digest
from tallystick.outputs.port import Publication, Scope
from tallystick.outputs.spill import DigestTables

KEY_PREFIX = "ts1-"
DIGITS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One call. `key` identifies the call, `row_key` its row.

    A row has the same `row_key` in its first call, its corrections and its retraction. `number` counts the effects of
    a publication; `named` describes the row in messages.
    """

    number: int
    operation: Operation
    row: Mapping[str, Any]
    row_number: int
    key: str
    row_key: str
    named: str

    @property
    def digits(self) -> str:
        """The key without its prefix."""
        return self.key.removeprefix(KEY_PREFIX)


def effects(
    publication: Publication, scope: Scope, *, key: Sequence[str], once: bool
) -> Generator[Effect, None, None]:
    """Yield the calls of a publication, in an order that never changes. Close the generator, as for `changes`.

    With `once`, rows that were sent are not corrected, so only rows that were not there before are yielded.
    """
    number = 0
    with closing(changes(publication, key or publication.identity)) as found:
        for change in found:
            if once and change.operation != "row":
                continue
            interval = None if key else publication.interval.part
            row_key = _derived(scope, publication, change, interval=interval)
            of_row = once or publication.instead_of is None
            yield Effect(
                number=number,
                operation=change.operation,
                row=change.row,
                row_number=change.row_number,
                key=row_key
                if of_row
                else _derived(scope, publication, change, interval=interval, of=True),
                row_key=row_key,
                named=_named(key or publication.identity, change),
            )
            number += 1


def _derived(
    scope: Scope,
    publication: Publication,
    change: Change,
    *,
    interval: str | None,
    of: bool = False,
) -> str:
    """Return the key of the row, or with `of` the key of this plan's operation."""
    content = {
        "lake": scope.lake,
        "pipeline": scope.pipeline,
        "output": publication.output,
        "interval": interval,
        "identity": list(change.identity),
        "occurrence": change.occurrence,
        "plan": publication.plan if of else None,
        "operation": change.operation if of else None,
    }
    return KEY_PREFIX + hashlib.sha256(encoded(content)).hexdigest()[:DIGITS]


def _named(columns: Sequence[str], change: Change) -> str:
    named = ", ".join(f"{n}={plain(v)!r}" for n, v in zip(columns, change.identity, strict=True))
    return f"row {change.row_number} ({named})"


def check_keys(publication: Publication, key: Sequence[str]) -> None:
    """Refuse a declared key that is null, or that two rows of the interval have. Raises OutputRefused.

    If there are more than HELD rows (see `occurrences`), digests of the keys are sorted on the local disk, unless the
    keys come in ascending runs. None are held in memory. Raises ScratchFull if the disk is full.
    """
    if not key:
        return
    with DigestTables() as spill:
        rows = Occurrences(publication.rows, key, spill, name="keys")
        for row_range in rows.row_ranges():
            _check_row_range(publication, key, rows, row_range)


def _check_row_range(
    publication: Publication, key: Sequence[str], rows: Occurrences, row_range: RowRange
) -> None:
    for name in key:
        if name not in row_range.batch.schema.names:
            raise _refused(f"{publication}: key column {name!r} is not a column of the table.")
    for number, values in enumerate(row_range.identities, start=row_range.first):
        if None in values:
            none = key[values.index(None)]
            raise _refused(
                f"{publication}: row {number}: expected a value in key column {none!r}, found null."
            )
        if row_range.occurrences[number - row_range.first]:
            first = next(
                n
                for earlier in rows.row_ranges()
                for n, other in enumerate(earlier.identities, start=earlier.first)
                if digest(other, 0) == digest(values, 0)
            )
            named = ", ".join(f"{n}={plain(v)!r}" for n, v in zip(key, values, strict=True))
            raise _refused(
                f"{publication}: expected one row per key, found rows {first} and {number} with the key ({named})."
            )


def _refused(message: str) -> OutputRefused:
    return OutputRefused(
        message,
        hint="fix the job, so that each row has a key of its own, and clear `plan`; or declare another key under "
        "another name. Nothing of it was sent, and the tables are committed.",
    )
