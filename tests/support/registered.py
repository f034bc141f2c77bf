"""Topics whose values have schemas in a registry, and what their tables have: for tests with a LogLake."""

from __future__ import annotations

import json
from typing import Any

from support.brokers import TestBroker, send
from support.log_lake import LogLake, at, ms
from tallystick.format.columns import TableColumn
from tallystick.format.types import type_text


def produce(broker: TestBroker, topic: str, day: float, *values: bytes | None) -> None:
    """Produce values, all at one instant."""
    send(broker.producer(), topic, *values, timestamp=ms(at(day)))


def register(lake: LogLake, topic: str, schema: Any) -> int:
    """Register an Avro schema of a topic's values and return its id."""
    return lake.registry.register(f"{topic}-value", json.dumps(schema))


def types(lake: LogLake, table: str = "events") -> dict[str, str]:
    """Return the types of a table's columns, without those of lineage."""
    columns: tuple[TableColumn, ...] = lake.lake.load_existing().root.tables[table].columns
    return {
        c.name: ("" if c.required else "optional ") + type_text(c)
        for c in columns
        if not c.name.startswith("_")
    }


def rows(lake: LogLake, table: str = "events") -> list[dict[str, Any]]:
    """Return the rows of a table in the order of their offsets, without lineage."""
    found = sorted(lake.rows(table).items())
    return [{n: v for n, v in row.items() if not n.startswith("_")} for _, row in found]
