"""The comparison of a shared file with the rows that were read: any other value is found, and NaN is no other value."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.engine.rewriting import same_rows

NAN = float("nan")
KINDS = {
    "double": (pa.float64(), [1.0, NAN, None]),
    "float": (pa.float32(), [NAN, 0.5, None]),
    "list": (pa.list_(pa.float64()), [[NAN, 1.0], None, []]),
    "struct": (pa.struct([("x", pa.float64()), ("y", pa.string())]), [{"x": NAN, "y": "a"}, None]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("a", NAN)], None, []]),
    "text": (pa.string(), ["a", None, ""]),
    "uuid": (pa.uuid(), [b"1" * 16, None]),
    "decimal": (pa.decimal128(9, 2), [None, None]),
}


def stored(rows: pa.Table) -> pa.Table:
    """Return the rows as they are read from a file."""
    body = io.BytesIO()
    pq.write_table(rows, body)
    return pq.read_table(pa.BufferReader(body.getvalue()), schema=rows.schema)


def table(kind: pa.DataType, values: list[Any]) -> pa.Table:
    storage = pa.binary(16) if kind == pa.uuid() else kind
    return pa.table({"value": pa.array(values, storage).cast(kind)})


@pytest.mark.parametrize("name", sorted(KINDS))
def test_stored_rows_are_the_same_also_with_nan_at_any_depth(name: str) -> None:
    rows = table(*KINDS[name])
    assert same_rows(stored(rows), rows)
    assert same_rows(stored(rows).slice(1), rows.slice(1))
    chunks = pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    assert same_rows(stored(rows), chunks)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.float64(), [NAN], [1.0]),
        (pa.float64(), [NAN], [None]),
        (pa.float64(), [0.0], [-0.0]),
        (pa.list_(pa.float64()), [[NAN]], [[NAN, NAN]]),
        (pa.list_(pa.float64()), [[]], [None]),
        (pa.string(), ["a"], ["b"]),
        (pa.int64(), [1, 2], [2, 1]),
        (pa.int64(), [1], [1, 1]),
    ],
)
def test_another_value_is_found(kind: pa.DataType, one: list[Any], other: list[Any]) -> None:
    assert not same_rows(table(kind, one), table(kind, other))


def test_another_type_is_found() -> None:
    assert not same_rows(table(pa.int64(), [1]), table(pa.int32(), [1]))
