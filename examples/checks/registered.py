"""Tables of records that have schemas: rows and dead letters, against what the producer recorded for each record.

The recorded value of a record is JSON: `{"table": ..., "row": {...}}`, or `{"kind": ..., "field": ...}` for one that is
broken on purpose. The row's values are in the form of `values.plain`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyiceberg.types import IcebergType, ListType, MapType, StructType

from examples.checks import Finding, finding
from examples.checks.lake import Lake
from examples.checks.sent import SentRecord
from examples.checks.values import plain

DEAD_LETTERS = "dead_letters"
Row = dict[str, Any]
Place = tuple[int, int]
"""Partition and offset."""
Types = Mapping[str, str]
"""The type of each column, and of each field by its path (`address.city`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeContent:
    """The rows of each table of a lake, the types that it has had, each change once, and how many commits changed it."""

    rows: Mapping[str, Sequence[Row]]
    dead: Sequence[Row]
    types: Mapping[str, Sequence[Types]]
    commits: Mapping[str, int]


def read_content(lake: Lake) -> LakeContent:
    """Return the content of a lake: the current rows, and the types from the first commit to the last."""
    types: dict[str, list[Types]] = {}
    metadata: dict[str, str] = {}
    commits: Counter[str] = Counter()
    for record in lake.records():
        for name, table in record["tables"].items():
            if metadata.get(name) == table["metadata"]:
                continue
            metadata[name] = table["metadata"]
            commits[name] += 1
            found = types_of(lake.table(table["metadata"]).schema().as_struct())
            if found not in types.setdefault(name, [])[-1:]:
                types[name].append(found)
    rows = {name: lake.rows(name) for name in lake.json("root.json")["tables"]}
    return LakeContent(dead=rows.pop(DEAD_LETTERS, []), rows=rows, types=types, commits=commits)


def types_of(struct: StructType, above: str = "") -> dict[str, str]:
    """Return the types of a struct's fields by their paths, without the columns of lineage."""
    found: dict[str, str] = {}
    for field in struct.fields:
        if not field.name.startswith("_"):
            path = f"{above}{field.name}"
            found[path] = ("" if field.required else "optional ") + _kind(field.field_type)
            found |= _inner(field.field_type, f"{path}.")
    return found


def _kind(kind: IcebergType) -> str:
    for nested, name in ((StructType, "struct"), (ListType, "list"), (MapType, "map")):
        if isinstance(kind, nested):
            return name
    return str(kind)


def _inner(kind: IcebergType, above: str) -> dict[str, str]:
    if isinstance(kind, StructType):
        return types_of(kind, above)
    if isinstance(kind, ListType):
        return _inner(kind.element_type, above)
    return _inner(kind.value_type, above) if isinstance(kind, MapType) else {}


def compare_records(
    content: LakeContent,
    sent: Sequence[SentRecord],
    *,
    complete: Callable[[Row], Row] | None = None,
) -> list[Finding]:
    """Compare rows and dead letters with the records of the intervals that were run.

    `complete` adds to a recorded row what it lacks: the fields of later schemas.
    """
    visible = [record for record in sent if record.visible]
    rows: dict[str, dict[Place, Row]] = {name: {} for name in content.rows}
    dead: dict[Place, Row] = {}
    for record in visible:
        place, recorded = (record.partition, record.offset), record.document
        if "row" not in recorded:
            dead[place] = {**recorded, "value": record.sent_value}
            continue
        key = {} if record.key is None else json.loads(record.key)
        row = {**key, **recorded["row"]}
        row = row if complete is None else complete(row)
        rows.setdefault(recorded["table"], {})[place] = {**row, "_timestamp": _instant(record)}
    found = [(place_of(row), row) for table in content.rows.values() for row in table]
    places = [place for place, _ in found] + [place_of(row) for row in content.dead]
    counts = ", ".join(f"{len(table):,} {name}" for name, table in sorted(rows.items()))
    return [
        finding(
            "once",
            f"{len(places):,} rows and dead letters, each (partition, offset) once",
            None if len(set(places)) == len(places) else _twice(places),
        ),
        finding(
            "all, and equal",
            f"{counts}: equal to what was sent and committed, in each column",
            _difference(
                rows,
                {name: {place_of(r): plain_row(r) for r in t} for name, t in content.rows.items()},
            ),
        ),
        finding(
            "dead letters",
            f"{len(dead):,} records that were broken on purpose, with kind, field and bytes",
            _difference(
                {DEAD_LETTERS: dead},
                {
                    DEAD_LETTERS: {
                        place_of(r): {name: r[name] for name in ("kind", "field", "value")}
                        for r in content.dead
                    }
                },
            ),
        ),
    ]


def compare_types(content: LakeContent, table: str, expected: Sequence[Types]) -> Finding:
    """Compare the types that a table has had, one after another, with the expected ones."""
    found = list(content.types.get(table, []))
    problem = None
    if found != list(expected):
        changed = [
            f"{path} {kind}"
            for kinds, other in zip([*found, {}], [*expected, {}], strict=False)
            for path, kind in sorted(kinds.items() ^ other.items())
        ]
        problem = (
            f"expected {len(expected)} schemas of {table}, found {len(found)}; they differ in "
            f"{', '.join(changed[:4]) or 'their number'}"
        )
    last = len(expected[-1])
    return finding("schemas", f"{table}: {len(found)} in turn, the last of {last} fields", problem)


def compare_commits(content: LakeContent, expected: Mapping[str, int]) -> Finding:
    """Compare how many commits changed each table; one that was killed and tried again is one."""
    found = {name: content.commits.get(name, 0) for name in expected}
    text = ", ".join(f"{count} of {name}" for name, count in found.items())
    return finding(
        "commits",
        f"{text}, each once",
        None if found == expected else f"expected {dict(expected)}, found {found}",
    )


def place_of(row: Row) -> Place:
    """Return the partition and offset of a row."""
    return row["_kafka_partition"], row["_offset"]


def plain_row(row: Row) -> Row:
    """Return a row in the form in which rows are recorded, of lineage only the timestamp."""
    return {
        name: plain(value)
        for name, value in row.items()
        if name == "_timestamp" or not name.startswith("_")
    }


def _instant(record: SentRecord) -> str:
    return datetime.fromtimestamp(record.at_ms / 1000, UTC).isoformat()


def _twice(places: Sequence[Place]) -> str:
    first = next(place for place in places if places.count(place) > 1)
    return f"{first} is in the tables {places.count(first)} times"


def _difference(
    expected: Mapping[str, Mapping[Place, Row]], found: Mapping[str, Mapping[Place, Row]]
) -> str | None:
    for table in sorted({*expected, *found}):
        wanted, have = expected.get(table, {}), found.get(table, {})
        for place in sorted({*wanted, *have}):
            if wanted.get(place) != have.get(place):
                return f"{table}, {place}: expected {wanted.get(place)}, found {have.get(place)}"
    return None
