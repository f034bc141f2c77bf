"""docs/how-to/keys-and-headers.md: its records become its rows and its dead letters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from tallystick.engine.decode.record import record_decoder
from tallystick.kafka.decode import columns_schema
from tallystick.pipeline import Pipeline

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "keys-and-headers.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def body(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


def test_the_records_of_the_page_become_its_rows_and_dead_letters() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)
    topic, table = names["topic"], names["table"]
    pipeline = Pipeline(
        name="orders",
        topics=[topic],
        warehouse="memory://orders",
        job="spark_jobs/orders.py",
        tables=[table],
    )
    records = [json.loads(line) for line in block("json").splitlines()]
    columns = {
        "offset": range(len(records)),
        "timestamp": [0] * len(records),
        "key": [body(one["key"]) for one in records],
        "value": [body(one["value"]) for one in records],
        "headers": [
            [{"key": name, "value": value.encode()} for name, value in one["headers"]]
            for one in records
        ],
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=columns_schema(headers=True))
    decoded = record_decoder(pipeline.topic_spec(topic.name)).decode(batch)
    rows = decoded.rows.to_pylist(maps_as_pydicts="strict")
    found = {at + 1: str(row) for at, row in zip(decoded.kept.tolist(), rows, strict=True)}
    found |= {
        at + 1: str(one) for at, one in zip(decoded.dead.tolist(), decoded.reasons, strict=True)
    }
    shown = re.findall(r"^\| (\d) \| `(.*)` \|$", PAGE, re.MULTILINE)
    assert found == {int(number): text for number, text in shown}
    # The table takes all of the records' columns.
    assert set(decoded.rows.column_names) == {column.name for column in table.columns}
