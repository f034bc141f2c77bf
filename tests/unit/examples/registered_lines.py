"""Lines of a producer's record for values with a schema, and the rows and dead letters that a lake has of them."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from examples.checks.registered import LakeContent, Row, Types
from unit.examples.sent_lines import at

BODY = b"\0\0\0\0\x01x"


def recorded(offset: int, day: int, meaning: Row, *, end: str = "committed", **key: Any) -> Row:
    """Return the line of one record of partition 0, sent at noon of a day of January 2013."""
    return {
        "partition": 0,
        "offset": offset,
        "at_ms": at(day, 12),
        "end": end,
        "value": json.dumps(meaning),
        "key": json.dumps(key) if key else None,
        "value_base64": base64.b64encode(BODY).decode(),
    }


def lineage(offset: int, day: int) -> Row:
    """Return the columns of lineage of that record."""
    return {
        "_topic": "t",
        "_kafka_partition": 0,
        "_offset": offset,
        "_timestamp": datetime(2013, 1, day, 12, tzinfo=UTC),
    }


def letter(offset: int, day: int, kind: str, field: str | None = None) -> Row:
    """Return the dead letter of that record."""
    return {**lineage(offset, day), "kind": kind, "field": field, "value": BODY}


def with_rows(content: LakeContent, table: str, *rows: Row) -> LakeContent:
    """Return the content with other rows of one table."""
    return replace(content, rows={**content.rows, table: list(rows)})


def with_types(content: LakeContent, table: str, *types: Types) -> LakeContent:
    """Return the content with other types of one table."""
    return replace(content, types={**content.types, table: list(types)})
