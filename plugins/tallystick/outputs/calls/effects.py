"""From a sending to the calls that it asks for, each with an idempotency key that is the same for ever.

A key is derived from what the call is for, never from a clock or chance: the lake, the pipeline and the output, and
- with declared key columns: their values, whatever interval and generation the row is of;
- else the interval and the row's identity (its lineage, or the key of a table that aggregates), and which of the rows
  with that identity it is; of what is sent instead of an earlier generation also the plan and the operation.
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
    """One call. `key` names it, `row_key` its row: the same in the row's first call, its corrections and its retraction.

    `number` counts the effects of a sending; `named` tells a person which row it is.
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
    """Yield the calls of a sending, in an order that never changes. Close it, as `changes`.

    `once`: what was sent stays as it was sent, so only rows that were not there before are yielded.
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
    """`of`: the key is of this plan's operation, not of the row."""
    told = {
        "lake": scope.lake,
        "pipeline": scope.pipeline,
        "output": publication.output,
        "interval": interval,
        "identity": list(change.identity),
        "occurrence": change.occurrence,
        "plan": publication.plan if of else None,
        "operation": change.operation if of else None,
    }
    return KEY_PREFIX + hashlib.sha256(encoded(told)).hexdigest()[:DIGITS]


def _named(columns: Sequence[str], change: Change) -> str:
    named = ", ".join(f"{n}={plain(v)!r}" for n, v in zip(columns, change.identity, strict=True))
    return f"row {change.row_number} ({named})"


def check_keys(publication: Publication, key: Sequence[str]) -> None:
    """Refuse a declared key that is null, or that two rows of the interval have; raises OutputRefused.

    Of more than HELD rows (see `occurrences`), digests of the keys are sorted on the local disk, and none are held in
    memory. Raises ScratchFull when the disk is full.
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
            raise _refused(f"{publication}: its key column {name!r} is no column of the table.")
    for number, values in enumerate(row_range.identities, start=row_range.first):
        if None in values:
            none = key[values.index(None)]
            raise _refused(f"{publication}: row {number} has no value in its key column {none!r}.")
        if row_range.occurrences[number - row_range.first]:
            first = next(
                n
                for earlier in rows.row_ranges()
                for n, other in enumerate(earlier.identities, start=earlier.first)
                if digest(other, 0) == digest(values, 0)
            )
            named = ", ".join(f"{n}={plain(v)!r}" for n, v in zip(key, values, strict=True))
            raise _refused(f"{publication}: rows {first} and {number} have one key ({named}).")


def _refused(message: str) -> OutputRefused:
    return OutputRefused(
        message,
        hint="nothing of it was sent, and the tables are committed. Mend the job, so that each row has a key of its "
        "own, and clear `plan`; or declare another key under another name.",
    )
