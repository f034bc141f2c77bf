"""Records with very many elements: a dead letter above the limit, and bounded memory for a batch of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tallystick.engine.decode import halves
from tallystick.engine.decode.avro.rows import AvroContent
from tallystick.engine.decode.decoder import Decoded
from tallystick.engine.decode.json.exact import ExactRow
from tallystick.engine.decode.json.parsed import MismatchError
from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.pipeline import Column, Json

COLUMNS = [
    Column("items", "list<struct<a: optional long, b: optional long>>"),
    Column("m", "map<string, int>"),
]
AVRO = json.dumps({
    "type": "record", "name": "r", "fields": [
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "i", "fields": [
            {"name": "a", "type": ["null", "long"]}, {"name": "b", "type": ["null", "long"]}]}}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
    ],
})  # fmt: skip


def zigzag(number: int) -> bytes:
    number, out = number << 1, b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def json_record(items: int, entries: int = 0) -> bytes:
    entry = b",".join(b'"%d":1' % n for n in range(entries))
    return b'{"items":[' + b",".join([b"{}"] * items) + b'],"m":{' + entry + b"}}"


def avro_record(items: int, entries: int = 0) -> bytes:
    entry = b"".join(zigzag(len(key := b"%d" % n)) + key + zigzag(1) for n in range(entries))
    body = zigzag(items) + bytes(2 * items) + zigzag(0) if items else zigzag(0)
    return body + (zigzag(entries) + entry if entries else b"") + zigzag(0)


def decode(name: str, *values: bytes) -> Decoded:
    array = pa.array(values, pa.binary())
    if name == "json":
        return JsonDecoder(Json(COLUMNS)).decode_values(array)
    return AvroContent(COLUMNS, AVRO).decode(array, prefix=0)


RECORDS: dict[str, Any] = {"json": json_record, "avro": avro_record}


@pytest.mark.parametrize("name", RECORDS)
def test_more_elements_than_the_limit_are_a_dead_letter(name: str) -> None:
    most = halves.ELEMENTS_MAX
    decoded = decode(
        name,
        RECORDS[name](most - 1, 1),
        RECORDS[name](most, 1),
        RECORDS[name](most + 1),
        RECORDS[name](1),
    )
    assert decoded.kept.tolist() == [0, 3]
    assert all(f"more than {most} elements" in r.detail for r in decoded.reasons)
    assert [r.kind for r in decoded.reasons] == ["size", "size"]


def test_the_exact_rules_have_the_same_limit() -> None:
    exact = ExactRow(COLUMNS)
    exact.decode(json_record(halves.ELEMENTS_MAX))
    with pytest.raises(MismatchError, match="more than 1000000 elements"):
        exact.decode(json_record(halves.ELEMENTS_MAX, 1))


@pytest.mark.parametrize("name", RECORDS)
def test_a_batch_of_many_elements_is_decoded_in_halves_with_the_same_result(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [RECORDS[name](n % 700, n % 3) for n in range(60)] + [b"broken", RECORDS[name](2)]
    whole = decode(name, *values)
    monkeypatch.setattr(halves, "SLOT_BYTES_MAX", 20_000)
    parts: list[int] = []

    class Counted(halves.ManySlotsError):
        def __init__(self) -> None:
            parts.append(1)

    monkeypatch.setattr(halves, "ManySlotsError", Counted)
    limited = decode(name, *values)
    assert limited.rows.equals(whole.rows)
    assert (limited.kept.tolist(), limited.dead.tolist()) == (whole.kept.tolist(), [60])
    assert limited.reasons == whole.reasons
    assert len(parts) > 2
