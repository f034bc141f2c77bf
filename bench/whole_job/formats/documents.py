"""Makes nested JSON documents from a seed: orders of about 1,200 bytes.

Python's json module only writes them; the expected rows are made of the same values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from bench.whole_job.places import RecordPlaces
from bench.whole_job.records import BROKEN_SHARE, FROM_MS, HOUR_MS, MadeBatch

AT_ONCE = 20_000  # 100,000 documents, as of other records, would need a gigabyte of memory
DRAWN, DIGITS = 66, 48
FAULTS = ("cut off", "no comma", "wrong type", "wrong type in an item")
STATES = ("open", "paid", "packed", "shipped", "returned")
CURRENCIES = ("CHF", "EUR", "USD", "JPY")
TAGS = ("gift", "express", "b2b", "first-order", "Größe", "夏")
FIRST = ("Ada", "José", "Zoë", "Łukasz", "Anna", "さくら", "Grace", "Søren")
LAST = ("Núñez", "O'Brien", "Müller", "Smith", "Dvořák", "Σμιθ", "Hopper", "Çelik")
STREETS = ("Rue de l'Hôpital", "Bahnhofstraße", "Main Street", 'Way "North"', "Calle Mayor")
PLACES = (
    ("Genève", "CH"),
    ("Zürich", "CH"),
    ("Springfield", "US"),
    ("東京", "JP"),
    ("Ávila", "ES"),
)
TITLES = (
    *("Mug, 0.3 l", 'Monitor 27"', "Crème brûlée set", "T-shirt (S/M)", "Cable \\ adapter 5m"),
    *("Notebook", "Café filter No. 4", "Table lamp"),
)
NOTES = (
    'Please call before delivery: "back door",\nsecond floor.',
    "Livraison après 18h, merci ☕ — code 47\\12\tB",
    "Leave it with the neighbour. Thanks! 😀",
    "Bitte nicht knicken; Rechnung an die Firma. / No invoice in the box, please.",
)
AGENT = "Mozilla/5.0 Firefox/140.0"
_TEXT, _FLAG, _NUMBER = pa.string(), pa.bool_(), pa.float64()
_CUSTOMER = [("id", pa.int64()), ("name", _TEXT), ("email", _TEXT), ("vip", _FLAG)]
_PLACE = [(name, _TEXT) for name in ("street", "city", "zip", "country")]
_ITEM = [
    *(("sku", _TEXT), ("title", _TEXT), ("quantity", pa.int32()), ("price", _NUMBER)),
    *(("discount", _NUMBER), ("gift", _FLAG)),
]
SCHEMA = pa.schema(
    [
        ("order_id", _TEXT),
        ("status", _TEXT),
        ("placed_at", pa.int64()),  # microseconds since 1970
        ("currency", _TEXT),
        ("total", pa.decimal128(12, 2)),
        ("customer", pa.struct([*_CUSTOMER, ("referrer", _TEXT)])),
        (
            "shipping",
            pa.struct([*_PLACE, ("geo", pa.struct([("lat", _NUMBER), ("lon", _NUMBER)]))]),
        ),
        ("items", pa.list_(pa.struct(_ITEM))),
        ("tags", pa.list_(_TEXT)),
        ("note", _TEXT),
        ("attempts", pa.int32()),
        ("paid", _FLAG),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


def documents(
    seed: int, records: int, *, places: RecordPlaces, schema_id: int = 0
) -> Iterator[MadeBatch]:
    """Yield the documents in order; the same seed and number of records give the same bytes."""
    for first in range(0, records, AT_ONCE):
        yield _batch(seed, first, min(AT_ONCE, records - first), records, places)


def _batch(seed: int, first: int, count: int, records: int, places: RecordPlaces) -> MadeBatch:
    partitions, offsets = places.of(first, count)
    timestamps = FROM_MS + np.arange(first, first + count, dtype=np.int64) * HOUR_MS // records
    times = np.datetime_as_string(timestamps.astype("datetime64[ms]"), unit="ms").tolist()
    chance = np.random.default_rng([seed, first])
    drawn = chance.integers(0, 1 << 31, (count, DRAWN)).tolist()
    words = chance.bytes(DIGITS // 2 * count).hex()
    is_broken = chance.random(count) < BROKEN_SHARE
    faults = np.where(is_broken, chance.integers(0, len(FAULTS), count), -1).astype(np.int8)
    values, rows = [], []
    for index, (fault, at_ms) in enumerate(zip(faults.tolist(), timestamps.tolist(), strict=True)):
        digits = words[index * DIGITS : (index + 1) * DIGITS]
        document = _document(drawn[index], digits, f"{times[index]}Z")
        if fault < 0:
            place = {"partition": int(partitions[index]), "offset": int(offsets[index])}
            rows.append(row_of(document, at_ms) | place)
            values.append(text_of(document, is_ascii=index % 4 == 0))
        else:
            values.append(broken_document(document, FAULTS[fault]))
    return MadeBatch(
        first=first,
        partitions=partitions,
        offsets=offsets,
        timestamps=timestamps.tolist(),
        values=values,
        kinds=faults,
        rows=pa.Table.from_pylist(rows, schema=SCHEMA),
    )


def _document(n: list[int], digits: str, time: str) -> dict[str, Any]:
    """Return a document from `DRAWN` numbers below 2^31 and `DIGITS` hexadecimal digits."""
    city, country = PLACES[n[0] % len(PLACES)]
    found: dict[str, Any] = {
        "order_id": "-".join(digits[a:b] for a, b in pairwise((0, 8, 12, 16, 20, 32))),
        "status": STATES[n[3] % len(STATES)],
        "placed_at": time,
        "trace": {"id": digits[32:], "span": [n[4], n[5] % 100, n[6] % 10]},
        "currency": CURRENCIES[n[7] % len(CURRENCIES)],
        "total": n[8] % 10_000_000 / 100,
        "customer": {
            "id": n[9],
            "name": f"{FIRST[n[1] % len(FIRST)]} {LAST[n[2] % len(LAST)]}",
            "email": f"u{n[9] % 1_000_000}@mail.example",
            "vip": n[10] % 10 == 0,
            "consents": ["terms", "mail"] if n[11] % 2 else [],
            "referrer": None if n[12] % 3 else f"campaign/{n[12] % 500}",
        },
        "shipping": {
            "street": f"{STREETS[n[13] % len(STREETS)]} {n[14] % 200}",
            "city": city,
            "zip": f"{n[15] % 100_000:05}",
            "country": country,
            "geo": {
                "lat": (n[16] % 18_000_000 - 9_000_000) / 1e5,
                "lon": (n[17] % 36_000_000 - 18_000_000) / 1e5,
            },
        },
        "items": [
            _item(n[at : at + 5], digits)
            for at in range(26, 26 + 5 * (3 + min(n[18] % 6, n[24] % 6)), 5)
        ],
        "tags": [tag for bit, tag in enumerate(TAGS) if n[19] >> bit & 1],
        "client": {"agent": AGENT, "screen": [1920, 1080], "locale": None},
        "note": NOTES[n[20] % len(NOTES)],
        "attempts": n[21] % 4,
        "paid": n[22] % 2 == 0,
    }
    if n[23] % 3 == 0:
        del found["note"]
    elif n[23] % 3 == 1:
        found["note"] = None
    return found


def _item(numbers: list[int], digits: str) -> dict[str, Any]:
    a, b, c, d, e = numbers
    return {
        "sku": f"{a % 90_000 + 10_000}-{digits[a % 40 : a % 40 + 4]}",
        "title": TITLES[b % len(TITLES)],
        "quantity": 1 + c % 9,
        "price": d % 50_000 / 100,
        "stock": {"row": a % 40, "bin": b % 12},
        "discount": None if e % 4 else e % 30 / 100,
        "gift": e % 7 == 0,
    }


def row_of(document: dict[str, Any], at_ms: int) -> dict[str, Any]:
    """Return the row of a document, without its place; PyArrow leaves out what the schema does not name."""
    total = Decimal(round(document["total"] * 100)).scaleb(-2)
    return {**document, "placed_at": at_ms * 1000, "total": total}


def text_of(document: dict[str, Any], *, is_ascii: bool) -> bytes:
    """Return the JSON of a document; `is_ascii`: other characters are escaped, otherwise they are UTF-8."""
    return json.dumps(document, ensure_ascii=is_ascii, separators=(",", ":")).encode()


def broken_document(document: dict[str, Any], fault: str) -> bytes:
    """Return the JSON of a document with a fault."""
    value = text_of(document, is_ascii=False)
    match fault:
        case "cut off":
            return value[: len(value) // 2]
        case "no comma":
            return value.replace(b'","status"', b'""status"', 1)
        case "wrong type":
            return text_of({**document, "attempts": "two"}, is_ascii=False)
        case _:
            first, *others = document["items"]
            items = [{**first, "quantity": "two"}, *others]
            return text_of({**document, "items": items}, is_ascii=False)
