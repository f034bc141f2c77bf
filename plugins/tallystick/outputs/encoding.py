"""Rows as JSON: exact, in the order of their columns, and the same bytes for the same row whoever writes them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


# json.dumps makes an encoder per call where it is given a form: half of the time of a row.
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_AS_IT_IS = frozenset((str, int, bool, type(None)))


def json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each row as one JSON object, without a line's end."""
    for row in batch.to_pylist():
        yield encoded(row)


def encoded(row: Mapping[str, Any]) -> bytes:
    """A row as a JSON object in UTF-8.

    Decimals are texts with all their digits, timestamps ISO 8601 in UTC with `Z` (without a zone where the column has
    none), binary is base64, and a float that JSON cannot hold is the text NaN, Infinity or -Infinity.
    """
    return _JSON.encode(
        {name: v if type(v) in _AS_IT_IS else plain(v) for name, v in row.items()}
    ).encode()


def plain(value: Any) -> Any:
    """A column's value, or a list of such, as JSON has it."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
