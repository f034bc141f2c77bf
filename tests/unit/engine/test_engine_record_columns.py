"""Columns of keys and headers on their way from a batch to files: of an Arrow job, and landed for a DataFrame job."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.engine.input_splits import split_plan
from tallystick.engine.landing import land_split, read_records, records_schema
from tallystick.engine.task import Work, run_split
from tallystick.pipeline import Column, Json, Pipeline, Table, Text, Topic
from tallystick.store.memory import MemoryStore

COLUMNS = [
    Column("order_id", "long"),
    Column("n", "long", required=False),
    Column("headers", "map<string, list<optional binary>>"),
]
VALUES = [b'{"n":1}', b'{"n":2}', None, b'{"n":4}', b'{"n":"x"}']
KEYS = [b'{"order_id":10}', b'{"order_id":"x"}', b'{"order_id":30}', None, b"{"]
HEADERS = [[("trace", b"1"), ("trace", None)], [], [], [("a", b"")], []]
ROWS = [
    {"order_id": 10, "n": 1, "headers": [("trace", [b"1", None])], "_offset": 0, "_key": KEYS[0]},
    {"order_id": 30, "n": None, "headers": [], "_offset": 2, "_key": KEYS[2]},
]


@pytest.fixture
def orders() -> Pipeline:
    value = Json([Column("n", "long", required=False)], tombstones="keep")
    return Pipeline(
        name="small",
        topics=[
            Topic("events", decode=value, key=Json([Column("order_id", "long")]), headers="headers")
        ],
        warehouse="memory://small",
        job="jobs/small.py",
        tables=[Table("events", columns=COLUMNS)],
    )


def reading(kit: SimpleNamespace) -> Any:
    headers = [[{"key": k, "value": v} for k, v in one] for one in HEADERS]
    batch = kit.raw_batch(0, VALUES, headers=headers)
    return kit.FakeReading([batch.set_column(2, "key", pa.array(KEYS, pa.binary()))])


def read_file(store: MemoryStore, key: str) -> pa.Table:
    found = store.get(key)
    assert found is not None
    return pq.ParquetFile(io.BytesIO(found.body)).read()


def test_an_arrow_job_writes_the_columns_of_key_and_headers(
    make_work: Callable[..., Work], kit: SimpleNamespace, orders: Pipeline
) -> None:
    store = MemoryStore("small")
    work = make_work(
        kit.planned(0, 5), store=store, pipeline=orders, transform=lambda records: records
    )
    [split] = split_plan(work.plan, records_per_task=100)
    result = run_split(work, split, reading(kit))
    assert (result.account.records, result.account.dead_letters) == (2, 3)
    files = {file.table: read_file(store, file.key) for file in result.files}
    names = ["order_id", "n", "headers", "_offset"]
    expected = [{name: row[name] for name in names} for row in ROWS]
    assert files["events"].select(names).to_pylist() == expected
    dead = files["dead_letters"].to_pylist()
    assert [(one["_offset"], one["kind"], one["field"]) for one in dead] == [
        (1, "type", "key.order_id"),
        (3, "tombstone", "key"),
        (4, "type", "n"),
    ]
    # The whole record is in the dead letter, as it was received.
    assert [one["key"] for one in dead] == [KEYS[1], None, KEYS[4]]


def test_landed_records_have_the_columns_of_key_and_headers(
    make_work: Callable[..., Work], kit: SimpleNamespace, orders: Pipeline
) -> None:
    store = MemoryStore("small")
    work = make_work(
        kit.planned(0, 5), store=store, pipeline=orders, transform=lambda records: records
    )
    [split] = split_plan(work.plan, records_per_task=100)
    landed = land_split(work, split, reading(kit))
    [file] = landed.files
    found = pa.Table.from_batches(read_records(store, file, orders))
    assert found.schema == records_schema(orders, "events")
    assert [{name: row[name] for name in ROWS[0]} for row in found.to_pylist()] == ROWS


def test_a_timestamp_outside_the_calendar_removes_the_whole_record(
    make_work: Callable[..., Work], kit: SimpleNamespace
) -> None:
    pipeline = Pipeline(
        name="small",
        topics=[Topic("events", decode=Text("body"), key=Text("id"), headers="headers")],
        warehouse="memory://small",
        job="jobs/small.py",
        tables=[Table("events", columns=[Column("id", "string"), COLUMNS[2]])],
    )
    work = make_work(
        kit.planned(0, 2),
        pipeline=pipeline,
        transform=lambda records: records.drop_columns(["body"]),
    )
    [split] = split_plan(work.plan, records_per_task=100)
    headers = [[{"key": "h", "value": b"0"}], [{"key": "h", "value": b"1"}]]
    batch = kit.raw_batch(0, [b"a", b"b"], headers=headers)
    times = pa.array([2**60, 0], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    batch = batch.set_column(1, "timestamp", times)
    result = run_split(work, split, kit.FakeReading([batch]))
    [events] = [file for file in result.files if file.table == "events"]
    assert read_file(work.store, events.key).column("headers").to_pylist() == [[("h", [b"1"])]]
    assert list(result.reasons) == ["timestamp"]
