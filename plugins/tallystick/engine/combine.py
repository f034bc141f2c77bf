"""Combines partial rows of aggregating tables: per batch by the job, then per task, then in the driver, always exactly.

Sums of integers and decimals are computed with 76 digits and must fit the declared type at the end. If a sum does not
fit, it is an error; a number never wraps. The last digits of sums of doubles depend on the order of the rows: input
splits are merged in order, but the ends of batches depend on the network. Sums, minima and maxima ignore nulls. Equal
keys are one key: null is one key, and 0.0 and -0.0 are one key, stored as 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Table
from tallystick.tables.schema import arrow_schema, no_rows, uuid_bytes

WAITING_ROWS_MAX = 100_000
WAITING_BYTES_MAX = 64 << 20
PARTIAL_BYTES_MAX = 16 << 20
# Half of the session's spark.driver.maxResultSize: Spark counts tallystick's rows and its own overhead.
PARTIALS_BYTES_MAX = 1 << 30


def schema_of(table: Table) -> pa.Schema:
    """Return the declared columns of an aggregating table as an Arrow schema."""
    return arrow_schema(table.columns)


def combined(table: Table, partials: Iterable[pa.Table]) -> pa.Table:
    """Return one row per key, sorted by the keys; raises InvalidPipeline if a sum does not fit its column."""
    schema = schema_of(table)
    rows = pa.concat_tables([no_rows(schema), *partials])
    # Private names: Arrow names an aggregate's column after its measure (a_sum), and a key may have that name.
    private = {name: f"key{i}" for i, name in enumerate(table.keys)}
    private |= {name: f"measure{i}" for i, name in enumerate(table.combine)}
    prepared = pa.table(
        {private[f.name]: _prepared(rows.column(f.name), table.combine.get(f.name)) for f in schema}
    )
    keys = [private[name] for name in table.keys]
    measures = [(private[name], how) for name, how in table.combine.items()]
    grouped = prepared.group_by(keys, use_threads=False).aggregate(measures)
    grouped = grouped.sort_by([(key, "ascending") for key in keys])
    columns = [
        grouped.column(private[f.name]).cast(f.type)
        if f.name in table.keys
        else _narrowed(grouped.column(f"{private[f.name]}_{table.combine[f.name]}"), f, table)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema).combine_chunks()


def _prepared(values: pa.ChunkedArray, how: str | None) -> pa.ChunkedArray:
    """Return a column prepared for grouping (`how` None: a key) or for combining."""
    if how is None:
        return key_values(values)
    values = uuid_bytes(values)
    return _widened(values) if how == "sum" and not pa.types.is_floating(values.type) else values


def key_values(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a key's column prepared for grouping: Arrow groups by bytes, so equal numbers must have equal bytes."""
    values = uuid_bytes(values)
    if not pa.types.is_floating(values.type):
        return values
    # Adding +0.0 turns -0.0 into 0.0 (IEEE 754, 6.3).
    return pc.add(values, pa.scalar(0.0, values.type))


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
            hint="declare a wider type for the column, e.g. long or decimal(38,0), and clear `plan`.",
        ) from error


class PartialRows:
    """A task's partial rows of one aggregating table, collected in bounded memory."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._waiting: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Add the partial rows of one batch; raises InvalidPipeline as soon as they are too many for the driver."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows > WAITING_ROWS_MAX or self._bytes > WAITING_BYTES_MAX:
            together = combined(self._table, self._waiting)
            if together.nbytes > PARTIAL_BYTES_MAX:
                raise self._too_many(together.num_rows, together.nbytes)
            self._waiting = [together]
            # Count from 0 again: if keys do not repeat, they must not be combined again for every batch.
            self._rows = self._bytes = 0

    def to_ipc(self) -> bytes:
        """Return the combined rows as an Arrow IPC stream; raises InvalidPipeline if it exceeds PARTIAL_BYTES_MAX."""
        rows = combined(self._table, self._waiting)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        body: bytes = sink.getvalue().to_pybytes()
        if len(body) > PARTIAL_BYTES_MAX:
            raise self._too_many(rows.num_rows, len(body))
        return body

    def _too_many(self, keys: int, size_bytes: int) -> InvalidPipeline:
        return InvalidPipeline(
            f"table {self._table.name!r}: expected at most {PARTIAL_BYTES_MAX} bytes of partial rows in an input split, "
            f"found {size_bytes} for {keys} keys.",
            hint="combine over coarser keys, lower records_per_task, or make it a record-level table.",
        )


def require_room(sizes_bytes: Iterable[int]) -> None:
    """Raise InvalidPipeline if the partial rows of all input splits together are more than the driver takes."""
    sizes = list(sizes_bytes)
    if sum(sizes) > PARTIALS_BYTES_MAX:
        raise too_much_for_driver(
            f"the partial rows of {len(sizes)} input splits have {sum(sizes)} bytes"
        )


def too_much_for_driver(what: str) -> InvalidPipeline:
    """Build the error for more partial rows than the driver takes, as counted by tallystick or by Spark."""
    return InvalidPipeline(
        f"{what}, but the driver accepts at most {PARTIALS_BYTES_MAX} for all aggregating tables together.",
        hint="combine over coarser keys; raise the pipeline's records_per_task, so that fewer splits repeat the "
        "same keys; or make it a record-level table.",
    )


def from_ipc(body: bytes) -> pa.Table:
    """Read a table that `PartialRows.to_ipc` wrote."""
    return pa.ipc.open_stream(body).read_all()
