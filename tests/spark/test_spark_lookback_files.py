"""The files of a lookback are read by column id: older files have other names, narrower types, or lack a column."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.engine.transform import written_schema
from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.columns import TableColumn
from tallystick.format.compaction import RowOrder
from tallystick.operations.row_places import FileRows
from tallystick.pipeline import Column, Table
from tallystick.spark.lookback import _rows
from tallystick.store import Applied
from tallystick.store.memory import MemoryStore
from tallystick.tables.row_order import sorted_rows
from tallystick.tables.schema import arrow_schema

OLD = (
    TableColumn(id=1, name="n", type="int", required=True),
    TableColumn(id=2, name="kind", type="string", required=False),
    TableColumn(id=3, name="ratio", type="float", required=False),
)
NOW = Table(
    "sums",
    columns=[
        Column("kind", "long", required=False),
        Column("number", "long", required=False),
        Column("ratio", "double", required=False),
        Column("seen", "timestamptz", required=False),
    ],
    keys=["number"],
)
IDS = {"kind": 5, "number": 1, "ratio": 3, "seen": 6}


def whole(etag: str, rows: int = 2) -> FileRows:
    return FileRows(key="file", etag=etag, first=0, rows=rows)


def test_rows_of_a_shared_file_are_read_by_their_positions() -> None:
    store, sink = MemoryStore(), io.BytesIO()
    rows = [{"n": n, "kind": None, "ratio": None} for n in range(10)]
    table = pa.Table.from_pylist(rows, schema=arrow_schema(OLD))
    pq.write_table(table, sink, row_group_size=4)
    outcome = store.create("file", sink.getvalue())
    assert isinstance(outcome, Applied)
    wanted = [
        FileRows(key="file", etag=outcome.etag, first=first, rows=count)
        for first, count in ((1, 2), (3, 3), (9, 1))
    ]
    found = pa.Table.from_batches(_rows(store, "file", wanted, written_schema(NOW), IDS))
    assert found["number"].to_pylist() == [1, 2, 3, 4, 5, 9]


@pytest.mark.parametrize("row_order_is_there", [True, False])
def test_rows_of_a_sorted_shared_file_are_read_by_their_row_order(row_order_is_there: bool) -> None:
    store, sink = MemoryStore(), io.BytesIO()
    # Three runs of 4, 3 and 3 rows; sorted by a number that mixes them.
    unsorted = [{"n": n * 7 % 10, "kind": None, "ratio": None} for n in range(10)]
    runs = (4, 3, 3)
    table = pa.Table.from_pylist(unsorted, schema=arrow_schema(OLD))
    rows, body = sorted_rows(table, ["n"], np.repeat(np.arange(3), runs))
    pq.write_table(rows, sink, row_group_size=4)
    outcome = store.create("file", sink.getvalue())
    key = keys.row_order("sums", "1" * 32, "0", "2" * 32)
    stored = store.create(key, body)
    assert isinstance(outcome, Applied)
    assert isinstance(stored, Applied)
    order = RowOrder(key=key, etag=stored.etag, sorted_by=(1,))
    wanted = [
        FileRows(key="file", etag=outcome.etag, first=first, rows=count, order=order, runs=runs)
        for first, count in ((0, 4), (7, 3))
    ]
    if not row_order_is_there:
        store.delete([key])
        with pytest.raises(Corrupt, match=key):
            list(_rows(store, "file", wanted, written_schema(NOW), IDS))
        return
    found = pa.Table.from_batches(_rows(store, "file", wanted, written_schema(NOW), IDS))
    expected = sorted(n * 7 % 10 for n in (0, 1, 2, 3, 7, 8, 9))
    assert found["number"].to_pylist() == expected


def test_rows_are_matched_by_column_id_and_cast() -> None:
    store, sink = MemoryStore(), io.BytesIO()
    rows = [{"n": -7, "kind": "a", "ratio": 0.5}, {"n": 8, "kind": None, "ratio": None}]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(OLD)), sink)
    outcome = store.create("file", sink.getvalue())
    assert isinstance(outcome, Applied)
    schema = written_schema(NOW)
    found = pa.Table.from_batches(_rows(store, "file", [whole(outcome.etag)], schema, IDS))
    assert found.schema == schema
    assert found.to_pylist() == [
        {"kind": None, "number": -7, "ratio": 0.5, "seen": None},
        {"kind": None, "number": 8, "ratio": None, "seen": None},
    ]


def test_a_file_that_changed_is_corrupt() -> None:
    store = MemoryStore()
    store.create("file", b"other")
    with pytest.raises(Corrupt, match="a file of the lookback: expected ETag"):
        list(_rows(store, "file", [whole("old")], written_schema(NOW), IDS))  # type: ignore[arg-type]
