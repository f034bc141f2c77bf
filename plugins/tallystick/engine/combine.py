"""Combines partial rows of aggregating tables: per batch by the job, then per task, then in the driver, always exactly.

Sums of integers and decimals are made in 76 digits and must fit the declared type at the end: what does not is an
error, never a wrapped number. Sums of doubles depend on their order in the last digits, as doubles do; pieces are
merged in their order, but where a batch ends is the network's choice. Nulls are left out of sums, minima and maxima.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Table
from tallystick.tables.schema import arrow_type

WAITING_ROWS_MAX = 100_000
PARTIAL_BYTES_MAX = 16 << 20


def schema_of(table: Table) -> pa.Schema:
    """Return the declared columns of an aggregating table as an Arrow schema."""
    return pa.schema(
        [pa.field(c.name, arrow_type(c.type), nullable=not c.required) for c in table.columns]
    )


def combined(table: Table, partials: Iterable[pa.Table]) -> pa.Table:
    """Return one row per key, sorted by the keys; raises InvalidPipeline where a sum does not fit its column."""
    schema = schema_of(table)
    rows = pa.concat_tables([schema.empty_table(), *partials])
    keys = list(table.keys)
    measures = list(table.combine.items())
    widened = rows
    for name, how in measures:
        if how == "sum" and not pa.types.is_floating(schema.field(name).type):
            at = widened.schema.get_field_index(name)
            widened = widened.set_column(at, name, _widened(widened.column(name)))
    grouped = widened.group_by(keys, use_threads=False).aggregate(measures)
    columns = [
        grouped.column(f.name)
        if f.name in keys
        else _narrowed(grouped.column(f"{f.name}_{table.combine[f.name]}"), f, table)
        for f in schema
    ]
    result = pa.Table.from_arrays(columns, schema=schema)
    return result.sort_by([(k, "ascending") for k in keys]).combine_chunks()


def _widened(values: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = values.type
    scale = kind.scale if pa.types.is_decimal(kind) else 0
    return values.cast(pa.decimal256(76, scale))


def _narrowed(values: pa.ChunkedArray, field: pa.Field, table: Table) -> pa.ChunkedArray:
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidPipeline(
            f"table {table.name!r}: the sum of {field.name!r} does not fit {field.type}.",
            next_step="declare a wider type for the column, e.g. long or decimal(38,0), and clear `plan`.",
        ) from error


class Partials:
    """Collects a task's partial rows of one aggregating table in bounded memory."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        """Take the partial rows of one batch."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows > WAITING_ROWS_MAX:
            self._waiting = [combined(self._table, self._waiting)]
            # Keys that do not repeat must not be combined again for every batch.
            self._rows = 0

    def to_ipc(self) -> bytes:
        """Return the combined rows as an Arrow IPC stream; raises InvalidPipeline past PARTIAL_BYTES_MAX."""
        rows = combined(self._table, self._waiting)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        body: bytes = sink.getvalue().to_pybytes()
        if len(body) > PARTIAL_BYTES_MAX:
            raise InvalidPipeline(
                f"table {self._table.name!r} has {rows.num_rows} keys in one piece: {len(body)} bytes of partial rows, "
                f"at most {PARTIAL_BYTES_MAX} go to the driver.",
                next_step="combine over coarser keys, lower records_per_task, or make it a record-level table.",
            )
        return body


def from_ipc(body: bytes) -> pa.Table:
    """Read what `Partials.to_ipc` wrote."""
    return pa.ipc.open_stream(body).read_all()
