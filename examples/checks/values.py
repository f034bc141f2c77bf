"""Values of rows and of records in one form, which JSON can hold: to record what was sent, and to compare."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Return a value as JSON has it: instants in UTC and dates as text, decimals as text, bytes as base64.

    A map is an object; PyArrow has it as a list of pairs, so an empty one is an empty list.
    """
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()} or []
    if isinstance(value, list):
        if value and all(isinstance(part, tuple) for part in value):
            return {name: plain(part) for name, part in value}
        return [plain(part) for part in value]
    return value
