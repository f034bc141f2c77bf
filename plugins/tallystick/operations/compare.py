"""The use case "compare": what the commits between two versions of a lake have changed.

It compares commit records, which contain the tables and the totals at each version, and the plans of the two commits,
which contain the declarations. It reads no data file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tallystick.errors import Corrupt, InvalidRequest
from tallystick.format import keys
from tallystick.format.columns import TableColumn
from tallystick.format.interval import Interval
from tallystick.format.page import Totals
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.root import RootTable
from tallystick.lake import Lake, Snapshot
from tallystick.operations.status.timeline import read_all

COMMITS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedInterval:
    """An interval that was committed between the two versions. `before`: its totals then; None if it was a gap."""

    interval: Interval
    before: Totals | None
    after: Totals
    commits: int
    code_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedColumn:
    """A column that differs: `before` and `after` are `name type` with `required`; None if there is no such column."""

    id: int
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTable:
    """A table that differs: its columns and rules for partitions, and the files that commits added to it and dropped."""

    name: str
    columns: tuple[ComparedColumn, ...]
    partition_by: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    files_added: int
    files_dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOption:
    """A value of the pipeline's declaration that differs. A side is None if it has no such value."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What changed from the commit of version `left` to that of version `right`.

    `declaration` is None if a plan of the two commits cannot be read.
    """

    uri: str
    pipeline: str
    left: int
    right: int
    commits: int
    intervals: tuple[ComparedInterval, ...]
    tables: tuple[ComparedTable, ...]
    declaration: tuple[ComparedOption, ...] | None


def compare(lake: Lake, *, left: int, right: int) -> Comparison:
    """Return the changes from the last commit at or before version `left` to that at or before version `right`.

    Raises InvalidRequest if the versions are in the wrong order, if there is no such commit, or if there are more than
    COMMITS_MAX commits between them; RootVanished if there is no root, Corrupt if a record is damaged.
    """
    if not 1 <= left < right:
        raise InvalidRequest(
            f"expected two versions, the earlier one first, found {left} and {right}.",
            hint="name two versions of the commit log (`tally log`).",
        )
    return lake.read(lambda snapshot: _from_snapshot(lake, snapshot, left, right))


def _from_snapshot(lake: Lake, snapshot: Snapshot, left: int, right: int) -> Comparison:
    between, first = _chain(lake, snapshot, left, right)
    last = between[0] if between else first
    return Comparison(
        uri=lake.store.uri,
        pipeline=snapshot.root.pipeline,
        left=first.version,
        right=last.version,
        commits=len(between),
        intervals=_intervals(lake, between),
        tables=tuple(_tables(first.tables, last.tables, between)),
        declaration=_declaration(lake, first, last),
    )


def _chain(
    lake: Lake, snapshot: Snapshot, left: int, right: int
) -> tuple[Sequence[Record], Record]:
    """Return the records after `left` up to `right`, newest first, and the record of `left`."""
    between: list[Record] = []
    key = snapshot.root.record
    while key is not None:
        record = lake.record(key)
        if record is None:
            break
        if record.version <= left:
            return between, record
        if record.version <= right:
            between.append(record)
        if len(between) > COMMITS_MAX:
            raise InvalidRequest(
                f"more than {COMMITS_MAX} commits are between versions {left} and {right}.",
                hint="compare versions that are closer together.",
            )
        key = record.parent
    raise InvalidRequest(
        f"{lake.store.uri} has no commit at version {left} or before it that can be read.",
        hint="name a later version: `tally log` lists them.",
    )


def _intervals(lake: Lake, between: Sequence[Record]) -> tuple[ComparedInterval, ...]:
    latest: dict[Interval, CommittedInterval] = {}
    earliest: dict[Interval, CommittedInterval] = {}
    counts: dict[Interval, int] = {}
    for record in between:
        for one in record.intervals:
            latest.setdefault(one.interval, one)
            earliest[one.interval] = one
            counts[one.interval] = counts.get(one.interval, 0) + 1
    wanted = [one.replaces for one in earliest.values() if one.replaces is not None]
    replaced = read_all(wanted, lake.record)
    found = []
    for interval, one in sorted(latest.items()):
        before = _in_record(replaced, earliest[interval])
        found.append(
            ComparedInterval(
                interval=interval,
                before=None if before is None else before.totals,
                after=one.totals,
                commits=counts[interval],
                code_changed=before is not None and before.fingerprint != one.fingerprint,
            )
        )
    return tuple(found)


def _in_record(
    records: Mapping[keys.RecordKey, Record | None], one: CommittedInterval
) -> CommittedInterval | None:
    record = None if one.replaces is None else records[one.replaces]
    if record is None:
        return None
    return next((c for c in record.intervals if c.interval == one.interval), None)


def _tables(
    before: Mapping[str, RootTable], after: Mapping[str, RootTable], between: Sequence[Record]
) -> Iterator[ComparedTable]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        added = sum(len(one.added.get(name, ())) for r in between for one in r.intervals)
        dropped = sum(len(one.dropped.get(name, ())) for r in between for one in r.intervals)
        columns = tuple(_columns(old.columns if old else (), new.columns if new else ()))
        rules = (old.partition_by if old else None, new.partition_by if new else None)
        if columns or rules[0] != rules[1] or added or dropped:
            yield ComparedTable(
                name=name,
                columns=columns,
                partition_by=rules,
                files_added=added,
                files_dropped=dropped,
            )


def _columns(
    before: Sequence[TableColumn], after: Sequence[TableColumn]
) -> Iterator[ComparedColumn]:
    old = {c.id: _spelled(c) for c in before}
    new = {c.id: _spelled(c) for c in after}
    for column in sorted({*old, *new}):
        if old.get(column) != new.get(column):
            yield ComparedColumn(id=column, before=old.get(column), after=new.get(column))


def _spelled(column: TableColumn) -> str:
    return f"{column.name} {column.text}{' required' if column.required else ''}"


def _declaration(lake: Lake, first: Record, last: Record) -> tuple[ComparedOption, ...] | None:
    with suppress(Corrupt):
        plans = [_last_plan(lake, record) for record in (first, last)]
        if None not in plans:
            old, new = (dict(_flat(plan.spec, "")) for plan in plans if plan is not None)
            return tuple(
                ComparedOption(path=path, before=old.get(path), after=new.get(path))
                for path in sorted({*old, *new})
                if (path in old, old.get(path)) != (path in new, new.get(path))
            )
    return None


def _last_plan(lake: Lake, record: Record) -> Plan | None:
    """Return the plan of the last interval that was committed at or before a record: compactions commit none."""
    found: Record | None = record
    while found is not None and not found.intervals:
        found = None if found.parent is None else lake.record(found.parent)
    return None if found is None else lake.plan(found.intervals[-1].plan)


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the plain values inside of JSON with their paths. A list of named objects has the names in its paths."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple) and value:
        for index, inner in enumerate(value):
            name = inner.get("name") if isinstance(inner, Mapping) else None
            yield from _flat(inner, f"{path}[{name if isinstance(name, str) else index}]")
    else:
        yield path, value
