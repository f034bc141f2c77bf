"""docs/how-to/debezium.md: its records become its rows and its dead letters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from tallystick.engine.decode.record import record_decoder
from tallystick.kafka.decode import columns_schema
from tallystick.pipeline import Pipeline

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "debezium.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def parts(line: str) -> list[bytes | None]:
    """Return the key and the value of a line, which has both as JSON."""
    _, end = json.JSONDecoder().raw_decode(line)
    return [None if part == "null" else part.encode() for part in (line[:end], line[end:].strip())]


def test_the_records_of_the_page_become_its_rows_and_dead_letters() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)
    topic, table = names["topic"], names["table"]
    pipeline = Pipeline(
        name="customers",
        topics=[topic],
        warehouse="memory://customers",
        job="spark_jobs/customers.py",
        tables=[table],
    )
    records = [parts(line) for line in block("json").splitlines()]
    columns = {
        "offset": range(len(records)),
        "timestamp": [0] * len(records),
        "key": [key for key, _ in records],
        "value": [value for _, value in records],
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=columns_schema(headers=False))
    decoded = record_decoder(pipeline.topic_spec(topic.name)).decode(batch)
    rows = decoded.rows.select([column.name for column in table.columns]).to_pylist()
    found = {
        at + 1: ", ".join(map(str, row.values()))
        for at, row in zip(decoded.kept.tolist(), rows, strict=True)
    }
    found |= {
        at + 1: str(one) for at, one in zip(decoded.dead.tolist(), decoded.reasons, strict=True)
    }
    shown = re.findall(r"^\| (\d) \| `(.*)` \|$", PAGE, re.MULTILINE)
    assert found == {int(number): text for number, text in shown}
    # The table takes all of the records' columns.
    assert set(decoded.rows.column_names) == {column.name for column in table.columns}


def test_the_page_names_each_kind_of_dead_letter() -> None:
    kinds = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE[PAGE.index("## Dead letters") :], re.MULTILINE
    )
    named = {kind for line in kinds for kind in re.findall(r"\w+", line)}
    folder = Path(__file__).parents[2] / "plugins" / "tallystick" / "engine" / "decode"
    sources = [*(folder / "debezium").glob("*.py"), folder / "groups.py"]
    text = "".join(path.read_text() for path in sources)
    given = set(re.findall(r'Reason\(\s*kind="(\w+)"', text)) - {"null", "range"}
    constants = re.search(r"SCHEMA_CHANGE, TRANSACTION, HEARTBEAT, NO_OP = (.*)", text)
    assert constants is not None
    given |= set(re.findall(r"\w+", constants[1]))
    assert named - {"kind", "schema"} == given
