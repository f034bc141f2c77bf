"""A producer's record of what it sent: a few lines, for the tests of the checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DAY_MS = 86_400_000
FIRST_DAY_MS = 1_356_998_400_000  # 1 January 2013


def at(day: int, hour: int) -> int:
    """Return an hour of a day of January 2013 as a Kafka timestamp."""
    return FIRST_DAY_MS + (day - 1) * DAY_MS + hour * 3_600_000


def line(
    offset: int,
    day: int,
    hour: int,
    *,
    end: str = "plain",
    at_ms: int | None = None,
    **document: Any,
) -> dict[str, Any]:
    """Return the line of one record of partition 0."""
    value = {"departure": f"2013-01-{day:02}T{hour:02}:00:00Z", **document}
    return {
        "partition": 0,
        "offset": offset,
        "at_ms": at(day, hour) if at_ms is None else at_ms,
        "end": end,
        "key": None,
        "value": json.dumps(value),
    }


def write_sent(path: Path, *lines: dict[str, Any]) -> Path:
    """Write the producer's record, and return its path."""
    path.write_text("".join(json.dumps(x) + "\n" for x in lines), encoding="utf-8")
    return path
