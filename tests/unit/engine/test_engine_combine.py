"""Partial rows become exactly one row per key, or an error."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tallystick.engine import combine
from tallystick.engine.combine import PartialRows, combined, from_ipc, schema_of
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column, Table


def table(kind: str, function: Any) -> Table:
    columns = [Column("k", "string", required=False), Column("x", kind, required=False)]
    return Table("sums", columns=columns, keys=["k"], combine={"x": function})


def rows(declared: Table, *pairs: tuple[str | None, Any]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "x": x} for k, x in pairs], schema=schema_of(declared))


@pytest.mark.parametrize(
    ("kind", "function", "values", "expected"),
    [
        ("int", "sum", [1, 2, 3], 6),
        ("int", "sum", [2**31 - 1, 1, -1], 2**31 - 1),
        ("long", "sum", [2**63 - 1, 2**63 - 1, -(2**63 - 1)], 2**63 - 1),
        ("long", "sum", [None, 5], 5),
        ("long", "sum", [None, None], None),
        ("decimal(4,2)", "sum", [Decimal("99.99"), Decimal("-0.01")], Decimal("99.98")),
        (
            "decimal(38,0)",
            "sum",
            [Decimal(10**38 - 1), Decimal(1), Decimal(-1)],
            Decimal(10**38 - 1),
        ),
        ("double", "sum", [0.5, 0.25], 0.75),
        ("string", "min", ["b", "a", None], "a"),
        ("string", "max", ["b", "é", "a"], "é"),
        ("long", "max", [-1, 3], 3),
        ("boolean", "max", [False, True], True),
        ("binary", "min", [b"\xff", b"\x00"], b"\x00"),
        ("fixed[2]", "max", [b"ab", b"cd", None], b"cd"),
        ("time", "min", [time(5), time(4, 59), None], time(4, 59)),
        ("uuid", "max", [UUID(int=1).bytes, UUID(int=2).bytes, None], UUID(int=2)),
    ],
)
def test_measures_are_combined_exactly(
    kind: str, function: str, values: list[Any], expected: Any
) -> None:
    declared = table(kind, function)
    result = combined(declared, [rows(declared, ("a", v)) for v in values])
    assert result.to_pylist() == [{"k": "a", "x": expected}]
    assert result.schema == schema_of(declared)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [2**31 - 1, 1]),
        ("long", [2**63 - 1, 1]),
        ("long", [-(2**63), -1]),
        ("decimal(4,2)", [Decimal("99.99"), Decimal("0.01")]),
        ("decimal(38,0)", [Decimal(10**38 - 1), Decimal(1)]),
    ],
)
def test_a_sum_that_does_not_fit_is_an_error_and_never_wraps(kind: str, values: list[Any]) -> None:
    declared = table(kind, "sum")
    with pytest.raises(InvalidPipeline, match="the sum of 'x' does not fit"):
        combined(declared, [rows(declared, *(("a", v) for v in values))])


def test_keys_are_sorted_and_null_is_a_key() -> None:
    declared = table("long", "sum")
    result = combined(
        declared, [rows(declared, ("b", 1), (None, 2)), rows(declared, ("a", 4), (None, 8))]
    )
    assert result.column("k").to_pylist() == ["a", "b", None]
    assert result.column("x").to_pylist() == [4, 1, 10]


def test_a_key_can_have_the_name_of_an_aggregate_or_of_an_internal_column() -> None:
    names = ("a_sum", "key1", "measure0")
    columns = [*(Column(n, "string") for n in names), Column("a", "long"), Column("key0", "long")]
    declared = Table("sums", columns=columns, keys=names, combine={"key0": "max", "a": "sum"})
    row = {"a_sum": "x", "key1": "y", "measure0": "z", "a": 2, "key0": 5}
    partial = pa.Table.from_pylist([row, row | {"key0": 7}], schema=schema_of(declared))
    assert combined(declared, [partial, partial]).to_pylist() == [row | {"a": 8, "key0": 7}]


@pytest.mark.parametrize("kind", ["double", "float"])
def test_zero_and_negative_zero_are_one_key(kind: str) -> None:
    columns = [Column("k", kind, required=False), Column("x", "long")]
    declared = Table("sums", columns=columns, keys=["k"], combine={"x": "sum"})
    pairs = [(0.0, 1), (-0.0, 2), (None, 4), (-1.5, 8)]
    partial = pa.Table.from_pylist([{"k": k, "x": x} for k, x in pairs], schema=schema_of(declared))
    result = combined(declared, [partial, partial])
    assert [(str(r["k"]), r["x"]) for r in result.to_pylist()] == [
        ("-1.5", 16),
        ("0.0", 6),
        ("None", 8),
    ]


def test_no_partial_rows_combine_to_no_rows() -> None:
    assert combined(table("long", "sum"), []).num_rows == 0


def test_partials_are_unchanged_by_their_way_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combine, "WAITING_ROWS_MAX", 3)
    declared = table("long", "sum")
    partials = PartialRows(declared)
    for number in range(10):
        partials.add(rows(declared, ("a", 1), (f"k{number}", number)))
    found = from_ipc(partials.to_ipc())
    assert found.num_rows == 11
    assert found.column("x")[0].as_py() == 10


def test_too_many_keys_for_the_driver_are_an_error_with_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(combine, "PARTIAL_BYTES_MAX", 1000)
    declared = table("long", "sum")
    partials = PartialRows(declared)
    partials.add(rows(declared, *((f"key {n}", n) for n in range(1000))))
    with pytest.raises(InvalidPipeline, match="for 1000 keys") as caught:
        partials.to_ipc()
    assert "coarser keys" in caught.value.hint


@pytest.mark.parametrize("limit", ["WAITING_ROWS_MAX", "WAITING_BYTES_MAX"])
def test_too_many_keys_are_an_error_before_all_are_in_memory(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(combine, "PARTIAL_BYTES_MAX", 1000)
    monkeypatch.setattr(combine, limit, 99)
    declared = table("long", "sum")
    partials = PartialRows(declared)
    partials.add(rows(declared, *(("the same key", n) for n in range(100))))
    with pytest.raises(InvalidPipeline, match="for 101 keys"):
        partials.add(rows(declared, *((f"key {n}", n) for n in range(100))))


def test_more_partial_rows_than_the_driver_accepts_are_an_error_that_names_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(combine, "PARTIALS_BYTES_MAX", 1000)
    combine.require_room([500, 0, 500])
    with pytest.raises(
        InvalidPipeline,
        match="of 3 input splits have 1001 bytes, but the driver accepts at most 1000",
    ) as caught:
        combine.require_room([500, 1, 500])
    assert "records_per_task" in caught.value.hint


def test_uuids_are_keys_and_sorted() -> None:
    """Arrow neither groups nor sorts its type of UUIDs."""
    columns = [Column("k", "uuid", required=False), Column("x", "long")]
    declared = Table("sums", columns=columns, keys=["k"], combine={"x": "sum"})
    ids = [UUID(int=9).bytes, None, UUID(int=1).bytes, UUID(int=9).bytes]
    given = pa.Table.from_arrays(
        [pa.array(ids, pa.uuid()), pa.array([1, 2, 3, 4])], schema=schema_of(declared)
    )
    found = combined(declared, [given])
    assert found.schema == schema_of(declared)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (UUID(int=1), 3),
        (UUID(int=9), 5),
        (None, 2),
    ]
