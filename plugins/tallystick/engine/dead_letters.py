"""Builds the rows of the dead_letters table: each record that does not decode, whole, with its reason."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tallystick.engine.decode.decoder import REASON_CHARS_MAX, Decoded, shorten
from tallystick.engine.input_splits import InputSplit
from tallystick.engine.records import lineage
from tallystick.pipeline import DEAD_LETTER_COLUMNS
from tallystick.tables.schema import arrow_schema

SCHEMA = arrow_schema(DEAD_LETTER_COLUMNS)


def dead_letters_of(split: InputSplit, batch: pa.RecordBatch, decoded: Decoded) -> pa.Table:
    """Return one row per dead letter of a batch; `batch` has the columns offset, timestamp, key, value, headers.

    `headers` is a JSON list of [name, base64 or null], or null if the record has no headers.
    """
    positions = pa.array(decoded.dead)
    columns = lineage(split, batch, positions, topic=split.topic)
    columns["key"] = batch.column("key").take(positions)
    columns["value"] = batch.column("value").take(positions)
    columns["headers"] = _headers(batch.column("headers").take(positions))
    columns["kind"] = pa.array([one.kind for one in decoded.reasons], pa.string())
    columns["field"] = pa.array([one.field for one in decoded.reasons], pa.string())
    details = [shorten(one.detail, REASON_CHARS_MAX) for one in decoded.reasons]
    columns["detail"] = pa.array(details, pa.string())
    columns["reason"] = pa.array([str(one) for one in decoded.reasons], pa.string())
    return pa.table(columns, schema=SCHEMA)


def _headers(lists: pa.ListArray) -> pa.Array:
    # Most records have no headers, and each list takes long to convert, even if it is empty.
    if not len(lists.flatten()):
        return pa.nulls(len(lists), pa.string())
    return pa.array([_encoded(headers) for headers in lists.to_pylist()], pa.string())


def _encoded(headers: Sequence[dict[str, Any]] | None) -> str | None:
    if not headers:
        return None
    return json.dumps([[_name(h["key"]), _value(h["value"])] for h in headers], ensure_ascii=False)


def _name(name: str | bytes) -> str:
    # Kafka defines header names as UTF-8, but does not validate them.
    return name if isinstance(name, str) else name.decode("utf-8", errors="backslashreplace")


def _value(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
