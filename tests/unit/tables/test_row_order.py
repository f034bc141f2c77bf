"""The row order of a sorted file: each run's rows are found again, and an order of another file is refused."""

from __future__ import annotations

import random
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.small_lake import SmallLake
from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.compaction import RowOrder
from tallystick.store import Applied, Store
from tallystick.tables.row_order import RowPlaces, order_bytes, sorted_rows, stored_places

KEY = keys.row_order("events", "1" * 32, "00000", "2" * 32)


def numbered(runs: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(runs)), runs)


def stored(store: Store, body: bytes) -> RowOrder:
    outcome = store.create(KEY, body)
    assert isinstance(outcome, Applied)
    return RowOrder(key=KEY, etag=outcome.etag, sorted_by=(1,))


@pytest.mark.parametrize("seed", range(50))
def test_the_rows_of_each_run_are_found_in_the_sorted_file(seed: int) -> None:
    rng = random.Random(seed)
    runs = [rng.randint(1, 9) for _ in range(rng.randint(1, 6))]
    rows = pa.table(
        {
            "number": range(sum(runs)),
            "value": [rng.choice([None, *range(4)]) for _ in range(sum(runs))],
        }
    )
    found, body = sorted_rows(rows, ["value"], numbered(runs))
    values = found.column("value").to_pylist()
    assert values == sorted(values, key=lambda v: (v is not None, v))
    store = SmallLake().store
    places = stored_places(store, stored(store, body), rows=runs)
    assert places is not None
    numbers = places.numbered(found)
    ends = np.cumsum(runs).tolist()
    for number, (end, count) in enumerate(zip(ends, runs, strict=True)):
        of_run, _ = sorted_rows(rows.slice(end - count, count), ["value"], numbered([count]))
        assert numbers.slice(end - count, count).equals(of_run), f"seed {seed}, run {number}"
        positions = places.positions(((end - count, end),))
        assert found.take(pa.array(positions)).equals(of_run), f"seed {seed}, run {number}"
        of_ranges = [
            p for first, last in places.ranges(((end - count, end),)) for p in range(first, last)
        ]
        assert of_ranges == positions.tolist()


def test_ranges_are_ascending_and_not_adjacent() -> None:
    places = RowPlaces(places=np.array([4, 0, 1, 3, 2]))
    assert places.ranges(((0, 2),)) == ((0, 1), (4, 5))
    assert places.ranges(((0, 1), (3, 5))) == ((2, 5),)
    assert places.ranges(()) == ()
    assert RowPlaces().ranges(((0, 2), (4, 5))) == ((0, 2), (4, 5))
    assert RowPlaces().positions(((0, 2), (4, 5))).tolist() == [0, 1, 4]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["é", "z", None, "Z", ""], pa.string(), [None, "", "Z", "z", "é"]),
        ([b"\xff", b"\x00", b"\x7f"], pa.binary(), [b"\x00", b"\x7f", b"\xff"]),
        (
            [Decimal("2.50"), Decimal("-3.00"), None],
            pa.decimal128(9, 2),
            [None, Decimal("-3.00"), Decimal("2.50")],
        ),
        ([True, None, False], pa.bool_(), [None, False, True]),
        (
            [uuid.UUID(int=1 << 127), uuid.UUID(int=1), None],
            pa.uuid(),
            [None, uuid.UUID(int=1), uuid.UUID(int=1 << 127)],
        ),
    ],
)
def test_values_are_sorted_as_iceberg_compares_them(
    values: list[Any], kind: pa.DataType, expected: list[Any]
) -> None:
    if kind == pa.uuid():
        column = pa.array([None if v is None else v.bytes for v in values], pa.binary(16)).cast(
            kind
        )
    else:
        column = pa.array(values, kind)
    found, _ = sorted_rows(pa.table({"value": column}), ["value"], numbered([len(values)]))
    assert found.column("value").to_pylist() == expected


def test_a_second_column_decides_if_the_first_is_equal() -> None:
    rows = pa.table({"a": [2, 1, 1, 2], "b": ["x", "y", "x", "w"]})
    found, _ = sorted_rows(rows, ["a", "b"], numbered([4]))
    assert found.to_pylist() == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "w"},
        {"a": 2, "b": "x"},
    ]


@pytest.mark.parametrize("runs", [[2, 4], [3, 2], [3, 3, 1], [1, 1, 1, 1, 1, 1]])
def test_an_order_with_other_numbers_of_rows_is_refused(runs: list[int]) -> None:
    rows = pa.table({"value": [3, 1, 2, 9, 8, 7]})
    _, body = sorted_rows(rows, ["value"], numbered([3, 3]))
    store = SmallLake().store
    order = stored(store, body)
    with pytest.raises(Corrupt, match="with other numbers per run"):
        stored_places(store, order, rows=runs)


def test_another_object_under_the_key_is_refused() -> None:
    store = SmallLake().store
    order = stored(store, b"no Parquet")
    with pytest.raises(Corrupt, match="expected a row order"):
        stored_places(store, order, rows=[1])
    other = RowOrder(key=KEY, etag='"other"', sorted_by=(1,))
    with pytest.raises(Corrupt, match="expected the row order with ETag"):
        stored_places(store, other, rows=[1])


def test_an_order_that_is_gone_is_no_order() -> None:
    order = RowOrder(key=KEY, etag='"e"', sorted_by=(1,))
    assert stored_places(SmallLake().store, order, rows=[1]) is None


def test_rows_of_another_file_are_refused() -> None:
    with pytest.raises(
        Corrupt, match="expected a file of 2 rows as in its row order, found 3 rows"
    ):
        RowPlaces(places=np.array([1, 0])).numbered(pa.table({"value": [1, 2, 3]}))


def test_a_row_order_of_version_1_is_read_and_written() -> None:
    """Its format is that of `tallystick.compaction/1`, which names it: a column of numbers of runs."""
    golden = (Path(__file__).parent / "golden" / "row-order-1.parquet").read_bytes()
    store = SmallLake().store
    places = stored_places(store, stored(store, golden), rows=[2, 3, 1])
    assert places is not None
    assert places.places is not None
    assert places.places.tolist() == [1, 3, 0, 4, 5, 2]
    found, written = (
        pq.read_table(pa.BufferReader(body))
        for body in (golden, order_bytes(np.array([1, 0, 2, 0, 1, 1])))
    )
    assert (
        found.schema == written.schema == pa.schema([pa.field("run", pa.int32(), nullable=False)])
    )
    assert found.equals(written)
