"""The origins of a table's columns: the fields of a topic's records from which the declaration fills them.

The job's code is not read, and it may change values. So only the columns that tallystick itself fills are known for
certain. A column has a declared origin if the topic's records have a column of its name that fits its type: that is the
column which the job gets under this name. For any other column no origin is stated, neither for what a DataFrame job
computes: the columns of a table with keys and without `combine`, and of any table of a pipeline with a lookback.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tallystick.format.columns import widens
from tallystick.pipeline import (
    DEAD_LETTERS,
    LINEAGE,
    Column,
    Debezium,
    Format,
    Pipeline,
    Table,
)
from tallystick.pipeline.debezium import DEBEZIUM
from tallystick.pipeline.formats import JSON, RAW, TEXT
from tallystick.pipeline.topics import HEADERS_TYPE

KEY, VALUE, HEADERS = "_key", "_value", "_headers"
"""The parts of a record that are not in a field of its value. Its offset and the like have the names of `LINEAGE`."""

OriginKind = Literal["copied", "as_text", "declared", "grouped", "sum", "min", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOrigin:
    """One field of a topic's records that a column of a table is filled from.

    `field`: the path in the value (`device.os`); with the prefix `_key.` that in the key; or a whole part of the record:
    `_key`, `_value`, `_headers`, `_offset`, `_timestamp`, `_topic`, `_kafka_partition`. `kind`: `copied` or written
    `as_text` by tallystick; `declared`: the job gets the field under the column's name; `grouped`: the same, and it is a
    key of the table; `sum`, `min`, `max`: the same, and rows are combined by it.
    """

    column: str
    topic: str
    field: str
    kind: OriginKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordField:
    """One field of a topic's records, and the type that it is decoded into."""

    name: str
    type: str


def record_fields(pipeline: Pipeline, topic: str) -> tuple[RecordField, ...]:
    """Return the fields of a topic's records that the declaration reads, then the parts that tallystick reads itself."""
    types = [(name, column.text) for column, names in _decoded(pipeline, topic) for name in names]
    types += [(column.name, column.text) for column in LINEAGE]
    types += [(KEY, "binary"), (VALUE, "binary"), (HEADERS, HEADERS_TYPE)]
    found: dict[str, RecordField] = {}
    for name, kind in types:
        found.setdefault(name, RecordField(name=name, type=kind))
    return tuple(found.values())


def column_origins(
    pipeline: Pipeline, table: str, topics: Iterable[str]
) -> tuple[ColumnOrigin, ...]:
    """Return the known origins of a table's columns in these topics, in the order of topics and columns."""
    if table == DEAD_LETTERS:
        return tuple(o for topic in topics for o in _of_dead_letters(topic))
    declared = pipeline.table(table)
    if declared is None:
        return ()
    sources = [topic for topic in topics if declared.topic in (None, topic)]
    return tuple(o for topic in sources for o in _of_table(pipeline, declared, topic))


def _of_dead_letters(topic: str) -> Iterator[ColumnOrigin]:
    yield from _copied(topic, LINEAGE)
    # The others are the reason, which can be about any part of the record.
    kinds: tuple[tuple[str, OriginKind], ...] = (
        ("key", "copied"),
        ("value", "copied"),
        ("headers", "as_text"),
    )
    for column, kind in kinds:
        yield ColumnOrigin(column=column, topic=topic, field=f"_{column}", kind=kind)


def _copied(topic: str, columns: Sequence[Column]) -> Iterator[ColumnOrigin]:
    for column in columns:
        yield ColumnOrigin(column=column.name, topic=topic, field=column.name, kind="copied")


def _of_table(pipeline: Pipeline, table: Table, topic: str) -> Iterator[ColumnOrigin]:
    is_computed = pipeline.lookback is not None or (table.aggregates and not table.combine)
    there = {} if is_computed else {c.name: (c, names) for c, names in _decoded(pipeline, topic)}
    for column in table.columns:
        record_column, names = there.get(column.name, (None, ()))
        if record_column is None or not _fits(record_column, column):
            continue
        kind: OriginKind = table.combine.get(column.name, "declared")
        if column.name in table.keys:
            kind = "grouped"
        for name in names:
            yield ColumnOrigin(column=column.name, topic=topic, field=name, kind=kind)
    if not table.aggregates:
        yield from _copied(topic, LINEAGE)


def _fits(of_record: Column, of_table: Column) -> bool:
    """Return True if both declarations can mean one value: the type, and the source if the table's column has one."""
    is_typed = of_record.text == of_table.text or widens(of_record.type, of_table.type)
    return is_typed and (of_table.source is None or of_table.path == of_record.path)


def _decoded(pipeline: Pipeline, topic: str) -> Iterator[tuple[Column, tuple[str, ...]]]:
    """Yield each column of a topic's records with the names of the fields that it is read from."""
    spec = pipeline.topic_spec(topic)
    yield from _of_format(spec.decode, VALUE, prefix="")
    if spec.key is not None:
        yield from _of_format(spec.key, KEY, prefix=f"{KEY}.")
    if spec.headers is not None:
        yield spec.columns[-1], (HEADERS,)


def _of_format(
    declared: Format, part: str, *, prefix: str
) -> Iterator[tuple[Column, tuple[str, ...]]]:
    of_rows = _columns_of_rows(declared)
    of_whole = declared.options.get("other_fields") if declared.name == JSON else None
    for column in declared.columns:
        if declared.name in (TEXT, RAW) or column.name == of_whole:
            yield column, (part,)
        elif column.name in of_rows:
            # The row after the change, or the row before it if it was deleted.
            yield column, tuple(f"{prefix}{row}.{column.field}" for row in ("after", "before"))
        else:
            yield column, (f"{prefix}{column.field}",)


def _columns_of_rows(declared: Format) -> frozenset[str]:
    """Return the names of the columns that Debezium's events have in the state of a row, not in the event."""
    if declared.name != DEBEZIUM:
        return frozenset()
    return frozenset(c.name for c in Debezium.of(declared).columns or ())
