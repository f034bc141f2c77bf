"""docs/how-to/nested-columns.md: its record becomes its row."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from tallystick.engine.decode.decoder import decoder_of
from tallystick.pipeline import Table

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "nested-columns.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def shown(value: Any) -> str:
    return re.sub(r"tzinfo=[^)]+\)?>?(?=\))", "tzinfo=<UTC>", str(value))


def test_the_record_of_the_page_becomes_its_row() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)
    record = block("json").replace("\n", "")
    json.loads(record)
    decoded = decoder_of(names["topic"].decode.format).decode(
        pa.RecordBatch.from_pydict({"value": pa.array([record.encode()], pa.binary())})
    )
    assert not decoded.reasons
    [row] = decoded.rows.to_pylist(maps_as_pydicts="strict")
    table = dict(re.findall(r"^\| `(\w+)` \| `(.*)` \|$", PAGE, re.MULTILINE))
    assert {name: shown(value) for name, value in row.items()} == table


def test_the_columns_of_the_page_make_a_table() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)
    table = Table("orders", columns=names["ORDER"], partition_by=["bucket(16, id)"])
    assert [c.text for c in table.columns][1:3] == [
        "struct<os: string, version: optional int>",
        "list<struct<sku: string, price: decimal(9,2), added: optional timestamptz>>",
    ]
