"""The tables that a job returns are compared with the declaration; an error names both."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tallystick.engine.input_splits import InputSplit
from tallystick.engine.transform import JobTransform
from tallystick.errors import InvalidPipeline, KafkaUnavailable
from tallystick.format.offsets import OffsetRange
from tallystick.pipeline import Column, Table
from tallystick.tables.calendar import END_US, FIRST_US
from tallystick.tables.schema import arrow_type

SPLIT = InputSplit(index=0, topic="events", partition=3, span=OffsetRange(start=5, end=9))
RECORDS = pa.table(
    {
        "n": pa.array([1, 2, 3], pa.int64()),
        "kind": ["a", None, "b"],
        "_topic": ["events"] * 3,
        "_kafka_partition": pa.array([3] * 3, pa.int32()),
        "_offset": pa.array([5, 7, 8], pa.int64()),
        "_timestamp": pa.array([10, 20, 30], pa.timestamp("us", tz="UTC")),
        "_key": pa.array([b"k", None, b"k"], pa.binary()),
    }
)


def run(kit: SimpleNamespace, function: Callable[..., Any], **changes: Any) -> dict[str, pa.Table]:
    return JobTransform(function, kit.small_pipeline(**changes))(SPLIT, RECORDS)


def with_events(events: Callable[[pa.Table], Any]) -> Callable[[pa.Table], dict[str, Any]]:
    def transform(records: pa.Table) -> dict[str, Any]:
        sums = pa.table({"kind": ["a"], "n": pa.array([1], pa.int64())})
        return {"events": events(records), "per_kind": sums}

    return transform


def replaced(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
    return lambda r: r.set_column(r.schema.get_field_index(name), name, values)


def test_the_records_themselves_are_a_valid_output(kit: SimpleNamespace) -> None:
    outputs = run(kit, kit.identity_and_sums)
    assert outputs["events"].column_names == [
        "n",
        "kind",
        "_topic",
        "_kafka_partition",
        "_offset",
        "_timestamp",
    ]
    assert outputs["per_kind"].column_names == ["kind", "n"]


def test_the_only_declared_table_can_be_returned_without_a_dict(kit: SimpleNamespace) -> None:
    only = [Table("events", columns=[Column("n", "long")])]
    sliced = run(kit, lambda r: r.drop_columns(["kind"]).slice(1), tables=only)
    assert sliced["events"].column("_offset").to_pylist() == [7, 8]
    batches = run(kit, lambda r: r.drop_columns(["kind"]).to_batches()[0], tables=only)
    assert batches["events"].num_rows == 3


def test_a_record_can_give_several_rows_in_any_order(kit: SimpleNamespace) -> None:
    doubled = run(kit, with_events(lambda r: r.take([2, 0, 2])))
    assert doubled["events"].column("_offset").to_pylist() == [8, 5, 8]


LOSSLESS = [
    ("kind", pa.array(["a", None, "b"], pa.large_string())),
    ("kind", pa.array(["a", None, "b"]).dictionary_encode()),
    ("kind", pa.nulls(3)),
    ("n", pa.array([1, 2, 3], pa.int8())),
    ("n", pa.array([1, 2, 3], pa.uint32())),
    ("_topic", pa.array(["events"] * 3).dictionary_encode()),
]


@pytest.mark.parametrize(("name", "values"), LOSSLESS, ids=lambda v: str(getattr(v, "type", v)))
def test_types_that_lose_nothing_are_accepted(
    kit: SimpleNamespace, name: str, values: pa.Array
) -> None:
    events = run(kit, with_events(replaced(name, values)))["events"]
    assert events.column(name).to_pylist() == values.to_pylist()
    assert events.schema.field(name).type == pa.int64() or pa.types.is_string(
        events.schema.field(name).type
    )


def raising(_: pa.Table) -> Any:
    message = "no seat"
    raise KeyError(message)


REFUSED = [
    (
        raising,
        "job jobs/small.py, events[3] [5, 9), batch from offset 5: the transform raised KeyError: 'no seat'.",
    ),
    (lambda r: r, "expected a dict of tables by name from the transform, found Table"),
    (lambda _: None, "expected a dict of tables by name from the transform, found NoneType"),
    (
        lambda r: {"events": r},
        "expected the declared tables events, per_kind from the transform, found events",
    ),
    (with_events(lambda _: [1]), "table 'events': expected an Arrow table, found list"),
    (
        with_events(lambda r: r.drop_columns(["n"])),
        "table 'events': expected column 'n' of type long, found none",
    ),
    (
        with_events(lambda r: r.drop_columns(["_offset"])),
        "table 'events': expected column '_offset'",
    ),
    (
        with_events(lambda r: r.append_column("more", pa.nulls(3))),
        "table 'events': expected only declared columns, found 'more'",
    ),
    (
        with_events(lambda r: r.append_column("n", r.column("n"))),
        "table 'events': expected unique column names",
    ),
    (
        with_events(replaced("n", pa.array([1.0, 2.0, 3.0]))),
        "table 'events', column 'n': expected long, found double",
    ),
    (
        with_events(replaced("n", pa.array([1, 2, 3], pa.uint64()))),
        "column 'n': expected long, found uint64",
    ),
    (
        with_events(replaced("n", pa.array([1, None, 3], pa.int64()))),
        "required column 'n': expected no nulls, found 1",
    ),
    (
        with_events(replaced("_timestamp", pa.array([10, 20, 30], pa.timestamp("us")))),
        "column '_timestamp': expected timestamptz, found timestamp",
    ),
    (
        with_events(replaced("_timestamp", pa.array([10, 21, 30], pa.timestamp("us", tz="UTC")))),
        "column '_timestamp': expected that of the record at offset 7",
    ),
    (
        with_events(replaced("_offset", pa.array([5, 6, 8], pa.int64()))),
        "column '_offset': expected the offset of a record of this batch, found 6",
    ),
    (
        with_events(replaced("_offset", pa.array([5, 7, 9], pa.int64()))),
        "column '_offset': expected the offset of a record of this batch, found 9",
    ),
    (
        with_events(replaced("_kafka_partition", pa.array(np.zeros(3, np.int32)))),
        "column '_kafka_partition': expected the records' own value",
    ),
    (
        with_events(replaced("_topic", pa.array(["events", "other", "events"]))),
        "column '_topic': expected the records' own value",
    ),
]


@pytest.mark.parametrize(("function", "message"), REFUSED, ids=[r[1][:50] for r in REFUSED])
def test_an_output_that_differs_from_the_declaration_is_refused(
    kit: SimpleNamespace, function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        run(kit, function)
    assert message in caught.value.message
    assert "clear `plan`" in caught.value.hint


def test_a_tallystick_error_of_the_transform_is_not_wrapped(kit: SimpleNamespace) -> None:
    def transform(_: pa.Table) -> Any:
        raise KafkaUnavailable("no broker.", hint="retry.")

    with pytest.raises(KafkaUnavailable):
        run(kit, transform)


def test_an_output_without_rows_is_valid(kit: SimpleNamespace) -> None:
    assert run(kit, with_events(lambda r: r.slice(0, 0)))["events"].num_rows == 0


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("timestamptz", 2**63 - 1, "9223372036854775807 microseconds since 1970"),
        ("timestamptz", END_US, f"{END_US} microseconds since 1970"),
        ("timestamp", FIRST_US - 1, f"{FIRST_US - 1} microseconds since 1970"),
        ("date", 2_932_897, "2932897 days since 1970"),
    ],
)
def test_a_time_outside_the_calendar_is_refused_by_column_and_value(
    kit: SimpleNamespace, kind: str, value: int, shown: str
) -> None:
    """The column is not a partition column. The first and the last time of the calendar are accepted."""
    unit = pa.int32() if kind == "date" else pa.int64()
    columns = [Column("n", "long"), Column("at", kind, required=False)]
    only = [Table("events", columns=columns)]

    def returning(*values: int | None) -> Callable[[pa.Table], pa.Table]:
        column = pa.array(values, unit).cast(arrow_type(kind))
        return lambda r: r.drop_columns(["kind"]).append_column("at", column)

    with pytest.raises(InvalidPipeline) as refused:
        run(kit, returning(0, value, None), tables=only)
    assert "table 'events', column 'at': " + shown in refused.value.message
    assert "outside the years 1 to 9999" in refused.value.message
    assert "return null" in refused.value.hint
    last = 2_932_896 if kind == "date" else END_US - 1
    first = last - 3_652_058 if kind == "date" else FIRST_US
    assert run(kit, returning(first, last, None), tables=only)["events"].num_rows == 3
