"""Encodes rows as JSON: with exact values, in the order of the columns, and with the same bytes for the same row."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    import pyarrow as pa


# If json.dumps gets options, it builds an encoder per call, which takes half of the time of a row.
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_AS_IT_IS = frozenset((str, int, bool, type(None)))


def json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each row as one JSON object, without a line ending."""
    for row in batch.to_pylist(maps_as_pydicts="strict"):
        yield encoded(row)


def encoded(row: Mapping[str, Any]) -> bytes:
    """Return a row as a JSON object in UTF-8.

    A decimal is a text with all its digits. A timestamp is ISO 8601 in UTC with `Z`, or without a zone if its column
    has none. Binary is base64, a UUID its 36 characters. A struct or a map is an object, a list an array. If JSON cannot
    represent a float, it is the text NaN, Infinity or -Infinity.
    """
    return _JSON.encode(
        {name: v if type(v) in _AS_IT_IS else plain(v) for name, v in row.items()}
    ).encode()


def plain(value: Any) -> Any:
    """Return a value of a column, or a list of values, in the form that JSON uses."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {_key(key): plain(one) for key, one in value.items()}
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _key(key: Any) -> str:
    """Return the key of a map as the name of a field: a text as it is, any other value as JSON writes it."""
    found = plain(key)
    return found if isinstance(found, str) else _JSON.encode(found)


def json_text(value: Any) -> str:
    """Return one value of a column as JSON."""
    return _JSON.encode(plain(value))
