"""Edge cases of state: no records, nulls, ties, barely late or early records, sums that overflow, invalid rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tallystick.engine.clock import LogPart, LogSpan, SplitClock
from tallystick.errors import InvalidPipeline
from tallystick.format.interval import Interval
from tallystick.pipeline import Column, Lookback, Pipeline, Table, pipeline_from_spec
from tallystick.stateful import (
    Aggregate,
    Sessions,
    Windows,
    closed_sessions,
    closed_windows,
    first_of,
    last_seen,
    session_partials,
    window_partials,
)
from tallystick.stateful.aggregates import partial

T0 = datetime(2013, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("amount", pa.int32()),
        ("event", TIME),
        ("_topic", pa.string()),
        ("_kafka_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", TIME),
        ("_log_time", TIME),
    ]
)
COUNT = {"n": Aggregate(how="count")}
SEEN = pa.schema([("key", pa.string()), ("last_seen", TIME)])


def at(minutes: float) -> datetime:
    return T0 + minutes * MINUTE


def records(*rows: tuple[Any, ...], partition: int = 0) -> pa.Table:
    """Return records of (key, minute of the log, minute of the event)."""
    fields = [
        {
            "key": key,
            "amount": 1,
            "event": None if event is None else at(event),
            "_topic": "t",
            "_kafka_partition": partition,
            "_offset": offset,
            "_timestamp": at(log),
            "_log_time": at(log),
        }
        for offset, (key, log, event) in enumerate(rows)
    ]
    return pa.Table.from_pylist(fields, schema=SCHEMA)


def offsets(rows: pa.Table) -> list[int]:
    return list(rows["_offset"].to_pylist())


def batch(*minutes: float | None, first: int = 0) -> pa.RecordBatch:
    """Return a batch as the reader yields it: offsets and timestamps. None means one outside of every calendar."""
    stamps = [2**62 if m is None else round(at(m).timestamp() * 1000) for m in minutes]
    offsets = pa.array(range(first, first + len(minutes)), pa.int64())
    return pa.RecordBatch.from_arrays(
        [offsets, pa.array(stamps, pa.timestamp("ms", tz="UTC"))], ["offset", "timestamp"]
    )


def log_times(clock: SplitClock, found: pa.RecordBatch, *positions: int) -> list[datetime]:
    where = np.array(positions or range(len(found)), np.int64)
    return list(clock.column(found, where).to_pylist())


def minute(number: float) -> int:
    return round(at(number).timestamp() * 1000)


def test_the_clock_never_goes_back_or_leaves_its_interval() -> None:
    clock = SplitClock(Interval(start=at(2), end=at(60)), [], [])
    assert log_times(clock, batch(1, 5, 3, None, 9)) == [at(2), at(5), at(5), at(5), at(9)]
    # The next batch continues; a record whose timestamp is of a later hour does not move the clock.
    assert log_times(clock, batch(8, 60, 59.5, first=5)) == [at(9), at(9), at(59.5)]
    assert clock.end_ms() == minute(59.5)


def test_aborted_records_move_the_clock_too() -> None:
    aborted: list[tuple[int, int]] = []
    clock = SplitClock(Interval(start=at(0), end=at(60)), [], aborted)
    aborted += [(1, minute(7)), (9, minute(50)), (11, minute(55))]
    found = batch(
        1, 2, 3
    )  # offsets 0, 1, 2: the aborted record is between them, as a skipped batch
    assert log_times(clock, found, 0, 2) == [at(1), at(7)]
    # The reader is ahead: offset 9 comes after these.
    assert log_times(clock, batch(8, first=3)) == [at(8)]
    assert log_times(clock, batch(9, first=10)) == [at(50)]
    # An aborted record after the last record moves the clock of the next input split.
    assert clock.end_ms() == minute(55)


def test_a_boundary_inside_the_interval_moves_the_clock_for_the_records_after_it() -> None:
    """It was set at the end of the log at that time: records after it are later, regardless of their timestamps."""
    cuts = [(2, minute(30)), (3, minute(40))]
    clock = SplitClock(Interval(start=at(0), end=at(60)), cuts, [])
    assert log_times(clock, batch(10, 35, 20, 33, 41)) == [at(10), at(10), at(30), at(40), at(41)]


def test_a_log_span_returns_the_cuts_of_one_partition() -> None:
    parts = (
        LogPart(start=at(10), offsets={"t": (5,)}),
        LogPart(start=at(20), offsets={"t": (7, 1)}),
    )
    span = LogSpan(interval=Interval(start=at(0), end=at(60)), inside=parts)
    assert span.cuts("t", 0) == ((5, minute(10)), (7, minute(20)))
    assert span.cuts("t", 1) == ((1, minute(20)),)
    assert span.cuts("other", 0) == ()


@pytest.mark.parametrize(("minutes", "remaining"), [(59.999, [0]), (60, [0, 1])])
def test_a_horizon_is_half_open(minutes: float, remaining: list[int]) -> None:
    rows = records(("a", 0, 0), ("a", minutes, 0))
    assert offsets(first_of(rows, SEEN.empty_table(), ["key"], timedelta(hours=1))) == remaining


def test_a_dropped_record_counts_as_seen() -> None:
    rows = records(("a", 0, 0), ("a", 40, 0), ("a", 80, 0), ("a", 139, 0), ("a", 199, 0))
    assert offsets(first_of(rows, SEEN.empty_table(), ["key"], timedelta(hours=1))) == [0, 4]


def test_at_one_log_time_the_order_is_lookback_topic_partition_offset() -> None:
    before = pa.Table.from_pylist([{"key": "a", "last_seen": at(0)}], schema=SEEN)
    rows = pa.concat_tables([records(("b", 0, 0), partition=1), records(("a", 0, 0), ("b", 0, 0))])
    remaining = first_of(rows, before, ["key"], MINUTE)
    assert remaining.select(["key", "_kafka_partition"]).to_pylist() == [
        {"key": "b", "_kafka_partition": 0}
    ]


@pytest.mark.parametrize("count", [0, 1])
def test_zero_or_one_record_is_no_special_case(count: int) -> None:
    rows = records(*[("a", 0, 0)] * count)
    assert first_of(rows, SEEN.empty_table(), ["key"], MINUTE).num_rows == count
    assert last_seen(rows, ["key"]).num_rows == count
    span = {"start": at(-1), "end": at(600)}
    windows, sessions = Windows(size=MINUTE), Sessions(gap=MINUTE)
    on = window_partials(rows, windows, ["key"], "event", COUNT)
    assert closed_windows(on.on_time, windows, ["key"], COUNT, **span).num_rows == count
    runs = session_partials(rows, sessions, ["key"], "event", COUNT)
    assert closed_sessions(runs.on_time, sessions, ["key"], COUNT, **span).num_rows == count
    assert (on.late.num_rows, on.outside.num_rows, runs.late.num_rows) == (0, 0, 0)


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: last_seen(rows, ["key"]),
        lambda rows: first_of(rows, SEEN.empty_table(), ["key"], MINUTE),
        lambda rows: window_partials(rows, Windows(size=MINUTE), ["key"], "event", COUNT),
        lambda rows: session_partials(rows, Sessions(gap=MINUTE), ["key"], "event", COUNT),
    ],
)
def test_a_null_key_is_refused_with_its_place(function: Any) -> None:
    with pytest.raises(
        InvalidPipeline,
        match=r"key column 'key': expected a value, found null in t\[0\] at offset 1",
    ):
        function(records(("a", 0, 0), (None, 1, 1)))


@pytest.mark.parametrize(("log", "late"), [(69.999, 0), (70, 1)])
def test_a_record_is_late_once_its_window_was_closed(log: float, late: int) -> None:
    windows = Windows(size=60 * MINUTE, lateness=10 * MINUTE)
    found = window_partials(records(("a", log, 59)), windows, ["key"], "event", COUNT)
    assert (found.on_time.num_rows, found.late.num_rows) == (1 - late, late)


@pytest.mark.parametrize(("end", "closed"), [(69.999, 0), (70, 1), (100, 1)])
def test_a_window_is_closed_by_the_interval_in_which_it_is_due(end: float, closed: int) -> None:
    windows = Windows(size=60 * MINUTE, lateness=10 * MINUTE)
    on = window_partials(records(("a", 59, 59)), windows, ["key"], "event", COUNT).on_time
    found = closed_windows(on, windows, ["key"], COUNT, start=at(60), end=at(end))
    assert found.num_rows == closed
    # The next interval does not close it again.
    later = closed_windows(on, windows, ["key"], COUNT, start=at(end), end=at(500))
    assert later.num_rows == 1 - closed


@pytest.mark.parametrize(("event", "outside"), [(5, 0), (5.001, 1), (-600, 0), (None, 1)])
def test_an_event_that_is_missing_or_too_far_ahead_is_returned_as_outside(
    event: float | None, outside: int
) -> None:
    rows = records(("a", 0, event))
    windows = Windows(size=MINUTE, ahead=5 * MINUTE)
    assert window_partials(rows, windows, ["key"], "event", COUNT).outside.num_rows == outside
    sessions = Sessions(gap=MINUTE, ahead=5 * MINUTE)
    assert session_partials(rows, sessions, ["key"], "event", COUNT).outside.num_rows == outside


def test_an_event_before_1970_has_a_window_too() -> None:
    rows = records(("a", 0, 0))
    old = pa.chunked_array([pa.array([datetime(1969, 12, 31, 23, 59, 30, tzinfo=UTC)], TIME)])
    rows = rows.set_column(rows.schema.get_field_index("event"), "event", old)
    late = window_partials(rows, Windows(size=MINUTE), ["key"], "event", COUNT).late
    assert late["window_start"].to_pylist() == [datetime(1969, 12, 31, 23, 59, tzinfo=UTC)]


@pytest.mark.parametrize(("gap", "sessions"), [(10, 2), (10.001, 1)])
def test_a_gap_separates_sessions(gap: float, sessions: int) -> None:
    rule = Sessions(gap=gap * MINUTE)
    rows = records(("a", 0, 0), ("a", 10, 10))
    assert session_partials(rows, rule, ["key"], "event", COUNT).on_time.num_rows == sessions


def test_no_session_crosses_a_multiple_of_the_longest() -> None:
    rule = Sessions(gap=10 * MINUTE, longest=timedelta(hours=1))
    rows = records(("a", 59, 59), ("a", 60, 60))
    assert session_partials(rows, rule, ["key"], "event", COUNT).on_time.num_rows == 2


def test_a_sum_whose_digits_depend_on_the_order_is_refused() -> None:
    rows = pa.table({"key": ["a"], "amount": pa.array([0.1])})
    with pytest.raises(InvalidPipeline, match="of type double: the last digits"):
        partial(rows, ["key"], {"total": Aggregate(how="sum", column="amount")})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([2**63 - 1, 1]), "expected a sum below 9.22e[+]18 for int64"),
        (pa.array([Decimal(10) ** 37] * 10, pa.decimal128(38, 0)), "decimal128"),
        (pa.array([True, True]), "of type bool"),
    ],
)
def test_a_sum_that_its_type_cannot_hold_is_refused(values: pa.Array, message: str) -> None:
    rows = pa.table({"key": ["a"] * len(values), "amount": values})
    with pytest.raises(InvalidPipeline, match=message):
        partial(rows, ["key"], {"total": Aggregate(how="sum", column="amount")})


def test_a_sum_has_a_wider_type_than_its_values() -> None:
    rows = pa.table({"key": ["a", "a"], "amount": pa.array([2**31 - 1] * 2, pa.int32())})
    assert partial(rows, ["key"], {"total": Aggregate(how="sum", column="amount")}).to_pylist() == [
        {"key": "a", "total": 2**32 - 2}
    ]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Windows(size=3 * MINUTE, slide=2 * MINUTE),
            "found size 0:03:00 and slide 0:02:00",
        ),
        (lambda: Windows(size=timedelta(0)), "found size 0:00:00"),
        (lambda: Windows(size=MINUTE, lateness=-MINUTE), "lateness=-1 day"),
        (lambda: Sessions(gap=timedelta(0)), "gap=0:00:00"),
        (lambda: Sessions(gap=2 * MINUTE, longest=MINUTE), "longest=0:01:00"),
        (lambda: Aggregate(how="count", column="n"), "'count' of 'n'"),
        (lambda: Aggregate(how="sum"), "'sum' of None"),
        (
            lambda: Lookback(tables=[], back=MINUTE),
            "expected at least one table, each once, found none",
        ),
        (lambda: Lookback(tables=["a", "a"], back=MINUTE), "each once, found a, a"),
        (lambda: Lookback(tables=["a"], back=timedelta(0)), "found 0:00:00"),
        (lambda: Lookback(tables=["a"], back=timedelta(microseconds=1)), "found 0:00:00.000001"),
        (lambda: Lookback(tables=["a"], back=None), "would read a topic from its beginning"),
        (lambda: Lookback(tables=["a"], back=MINUTE, uncommitted="no"), "uncommitted='no'"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_rule_is_refused_at_its_declaration(build: Any, message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        build()


def declared(**more: Any) -> Pipeline:
    return Pipeline(
        name="p",
        topics=["t"],
        warehouse="s3://b/p",
        job="spark_jobs/p.py",
        tables=[Table("seen", columns=[Column("key", "string")], keys=["key"])],
        **more,
    )


@pytest.mark.parametrize("table", ["nowhere", "dead_letters"])
def test_a_lookback_at_a_table_outside_the_pipeline_is_refused(table: str) -> None:
    with pytest.raises(InvalidPipeline, match=f"expected a table of the pipeline, found '{table}'"):
        declared(lookback=Lookback(tables=[table], back=MINUTE))


@pytest.mark.parametrize(
    "lookback",
    [
        Lookback(tables=["seen"], back=timedelta(hours=1)),
        Lookback(tables=["seen"], back=None, uncommitted="stale"),
    ],
)
def test_a_plan_contains_the_lookback_and_the_fingerprint_depends_on_it(lookback: Lookback) -> None:
    pipeline = declared(lookback=lookback)
    spec = pipeline.to_spec()
    assert spec["format"] == "tallystick.pipeline/1"
    assert pipeline_from_spec(spec, where="spec").lookback == lookback
    assert pipeline.fingerprint(b"job") != declared().fingerprint(b"job")
    assert declared().to_spec()["format"] == "tallystick.pipeline/1"
