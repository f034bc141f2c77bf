"""Findings of `tally check` on keys and headers: what would read them, and what a sample without keys leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tallystick.kafka.decode import columns_schema
from tallystick.operations.check.dry_run import dry_run
from tallystick.operations.check.finding import Checked
from tallystick.operations.check.records import record_findings
from tallystick.operations.sample.records import Sample, of_file
from tallystick.pipeline import Column, Json, Pipeline, Raw, Table, Text, Topic

AMOUNT = Column("amount", "long", required=False)
VALUE, KEY = b'{"amount": 1}', b'{"order_id": 7, "shard": 1}'
HEADERS = Column("headers", "map<string, list<optional binary>>")
Rows = list[tuple[bytes | None, bytes | None]]


def pipeline_of(key: Json | Text | Raw, *columns: Column, decode: Any = None) -> Pipeline:
    return Pipeline(
        name="orders",
        topics=[Topic("orders", decode=decode or Json([AMOUNT]), key=key, headers="headers")],
        warehouse="memory://orders",
        job="jobs/orders.py",
        tables=[Table("orders", columns=[AMOUNT, *columns, HEADERS])],
    )


def sample_of(rows: Sequence[tuple[bytes | None, bytes | None]]) -> Sample:
    columns = {
        "offset": range(len(rows)),
        "timestamp": [0] * len(rows),
        "key": [key for key, _ in rows],
        "value": [value for _, value in rows],
        "headers": [[]] * len(rows),
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=columns_schema(headers=True))
    return Sample(topic="orders", partition=0, batches=(batch,))


def findings(pipeline: Pipeline, sample: Sample) -> list[Checked]:
    run = dry_run(pipeline, [sample], lambda records: records)
    return list(record_findings(pipeline, [sample], run, arrow=True))


def test_good_keys_have_no_problem_and_their_other_fields_are_listed() -> None:
    order_id = Column("order_id", "long")
    found = findings(pipeline_of(Json([order_id]), order_id), sample_of([(KEY, VALUE)] * 3))
    assert [(one.state, one.check, one.text) for one in found] == [
        ("ok", "records", "3 read: 3 decoded, 0 dead letters"),
        ("ok", "fields", "topic orders, key: not declared, so not read: shard"),
        ("ok", "transform", "rows by table: orders 3"),
    ]


@pytest.mark.parametrize(
    ("key", "rows", "step"),
    [
        (
            Json([Column("order_id", "long")]),
            [(b'{"order_id": "a7"}', VALUE)],
            'Column("order_id", "string") reads the values of order_id.',
        ),
        (
            Json([Column("order_id", "long")]),
            [(b"{}", VALUE), (KEY, VALUE)],
            "If records may lack order_id, declare column 'order_id' with required=False.",
        ),
        (
            Json([Column("order_id", "long")]),
            [(b"order-7", VALUE)],
            "The topic's keys are not JSON objects: declare the Format that they have.",
        ),
        (
            Text("order_id"),
            [(None, VALUE), (b"7", VALUE)],
            'If records may have no key, declare its format with tombstones="keep".',
        ),
        # The field `amount` of the key is not that of the value.
        (
            Json([Column("key_amount", "long", source="amount")]),
            [(b'{"amount": "x"}', VALUE)],
            'Column("key_amount", "string") reads the values of amount.',
        ),
    ],
)
def test_a_key_that_does_not_fit_has_a_step(key: Json | Text, rows: Rows, step: str) -> None:
    found = findings(pipeline_of(key), sample_of(rows))[0]
    assert found.check == "records"
    assert found.hint == step


def test_a_field_of_the_value_below_key_is_one_of_the_value() -> None:
    value = Json([Column("code", "long", source="key.code")])
    pipeline = pipeline_of(Text("id"), decode=value)
    [found] = findings(pipeline, sample_of([(b"7", b'{"key": {"code": "x"}}')]))[:1]
    assert found.hint == 'Column("code", "string") reads the values of key.code.'


def test_a_misspelt_optional_field_of_the_key_is_a_warning() -> None:
    column = Column("order", "long", required=False, source="orderid")
    found = findings(pipeline_of(Json([column]), column), sample_of([(KEY, VALUE)]))[1]
    assert (found.state, found.hint) == ("warning", "did you mean source='order_id'?")
    assert found.text.startswith("topic orders, key: no record has the field 'orderid'")


def test_a_file_has_no_keys_so_only_its_values_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_bytes(VALUE + b"\n")
    order_id = Column("order_id", "long")
    sample = of_file(file, "orders", 10, now=datetime(2026, 1, 1, tzinfo=UTC))
    found = findings(pipeline_of(Json([order_id]), order_id), sample)
    assert [(one.state, one.check) for one in found] == [
        ("ok", "records"),
        ("not checked", "records"),
        ("not checked", "transform"),
    ]
    assert "a file of records has values only" in found[1].text
