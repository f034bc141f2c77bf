"""Splits the rows of an Arrow table by Iceberg partition, with the exact transform values and without a loop over rows.

year, month, day and hour are whole units since 1970-01-01T00:00Z, rounded down, so times before 1970 are negative. Null
stays null (Iceberg spec, Partition Transforms). Decimals and binary values become text in a partition tuple, because a
report contains it as JSON: `12.30`, and hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.errors import InvalidPipeline, listed
from tallystick.format.columns import TableColumn
from tallystick.pipeline import partition_rule
from tallystick.tables.calendar import DAY_US, ONLY_THESE, outside_calendar
from tallystick.tables.truncating import truncated

PartitionValue = int | str | None
PartitionValues = tuple[PartitionValue, ...]

_HOUR_US = 3_600_000_000


def split_by_partition(
    table: pa.Table, partition_by: Sequence[str], columns: Sequence[TableColumn]
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Yield (partition tuple, its rows) for every partition in `table`, in order of first appearance.

    Rows keep their order in a partition. A table without rows yields nothing. Without rules, all rows are one partition,
    `()`. Raises InvalidPipeline if a rule names none of `columns`, or if a time is outside the years 1 to 9999.
    """
    values = _values(table, partition_by, columns)
    if not table.num_rows:
        return
    if not values:
        yield (), table
        return
    codes = _group_codes(values)
    if pc.count_distinct(codes).as_py() == 1:
        yield _tuple_at(values, 0), table
        return
    order = pc.sort_indices(codes)  # stable: rows of one partition stay in order
    ordered, ordered_values = table.take(order), [v.take(order) for v in values]
    start = 0
    for end in pc.run_end_encode(codes.take(order)).run_ends.to_pylist():
        yield _tuple_at(ordered_values, start), ordered.slice(start, end - start)
        start = end


def partitions_in(
    table: pa.Table, partition_by: Sequence[str], columns: Sequence[TableColumn]
) -> set[PartitionValues]:
    """Return the partition tuples that `table` has rows of. Raises the errors of `split_by_partition`."""
    values = _values(table, partition_by, columns)
    if not values or not table.num_rows:
        return {()} if table.num_rows else set()
    named = pa.table({str(i): array for i, array in enumerate(values)})
    distinct = named.group_by(named.column_names, use_threads=False).aggregate([])
    columns_of = ([stored_value(v) for v in column.to_pylist()] for column in distinct.columns)
    return set(zip(*columns_of, strict=True))


def stored_value(value: Any) -> PartitionValue:
    """Return a value of a partition tuple as a report contains it."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    found: PartitionValue = value
    return found


def _values(
    table: pa.Table, partition_by: Sequence[str], columns: Sequence[TableColumn]
) -> list[pa.Array]:
    """Return the partition values of each rule, one value per row."""
    return [
        transformed(table.column(column.name), transform, column.type)
        for transform, column in (_rule(rule, columns) for rule in partition_by)
    ]


def transformed(values: pa.ChunkedArray | pa.Array, transform: str, kind: str) -> pa.Array:
    """Apply a partition transform to a column of Iceberg type `kind`; return Arrow values of the transform's type.

    Raises InvalidPipeline if a time is outside the years 1 to 9999, because not every transform has a value for it, or
    if a truncated number does not fit the column's type.
    """
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if (outside := outside_calendar(array)) is not None:
        raise InvalidPipeline(
            f"partition_by {transform} of a {kind}: {outside} {ONLY_THESE}.",
            hint="change the job so that such a time becomes null, or its record a dead letter; deploy it and "
            "clear `plan`.",
        )
    if transform.startswith("bucket"):
        # Only a writer of rows needs numpy, which the command line can do without.
        from tallystick.tables.buckets import bucketed

        return bucketed(array, _size(transform))
    if transform.startswith("truncate"):
        return truncated(array, _size(transform))
    if transform == "identity":
        return array.cast(pa.int32()) if kind == "date" else array
    if transform in ("year", "month"):
        years = pc.subtract(pc.year(array).cast(pa.int32()), pa.scalar(1970, pa.int32()))
        if transform == "year":
            return years
        months = pc.subtract(pc.month(array).cast(pa.int32()), pa.scalar(1, pa.int32()))
        return pc.add(pc.multiply(years, pa.scalar(12, pa.int32())), months)
    if kind == "date":
        return array.cast(pa.int32())
    return _floor_divide(array.cast(pa.int64()), DAY_US if transform == "day" else _HOUR_US).cast(
        pa.int32()
    )


def _size(transform: str) -> int:
    return int(transform.partition("[")[2].rstrip("]"))


def _floor_divide(values: pa.Array, by: int) -> pa.Array:
    """Divide and round down. Arrow's integer division rounds towards zero, which puts 23:00 of 1969-12-31 into 1970."""
    divisor = pa.scalar(by, pa.int64())
    quotient = pc.divide(values, divisor)
    below = pc.less(values, pc.multiply(quotient, divisor))
    return pc.subtract(quotient, below.cast(pa.int64()))


def _group_codes(values: Sequence[pa.Array]) -> pa.Array:
    """Return one int64 per row: equal if all partition values are equal, increasing in order of first appearance."""
    codes: pa.Array | None = None
    for array in values:
        encoded = pc.dictionary_encode(array, null_encoding="encode")
        indices = encoded.indices.cast(pa.int64())
        if codes is None:
            codes = indices
            continue
        mixed = pc.add(pc.multiply(codes, pa.scalar(len(encoded.dictionary), pa.int64())), indices)
        # Make the codes dense again, so that many fields with many values never exceed 64 bits.
        codes = pc.dictionary_encode(mixed).indices.cast(pa.int64())
    return codes


def _tuple_at(values: Sequence[pa.Array], row: int) -> tuple[PartitionValue, ...]:
    return tuple(stored_value(array[row].as_py()) for array in values)


def _rule(rule: str, columns: Sequence[TableColumn]) -> tuple[str, TableColumn]:
    parsed = partition_rule(rule)
    found = next((c for c in columns if c.name == parsed.column), None)
    if found is None:
        raise InvalidPipeline(
            f"partition_by: expected one of the columns {listed(c.name for c in columns)}, found {rule!r}.",
            hint="partition by a column of the table.",
        )
    return parsed.transform, found
