"""Fuzzes the decoders: `make fuzz SECONDS=60`, or python -m support.fuzz FORMAT --seconds 60 --seed 1 (in tests/).

Values are mutated from those of the corpus and decoded in large batches. Any value must be a row or a dead letter, with
the same verdict in any batch. A value whose verdict is of a new kind is added to the corpus,
`tests/corpus/<format>.jsonl`, which `tests/unit/engine/decode/test_corpus.py` replays.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.decoder import Decoded, Decoder, decoder_of
from tallystick.format.registries import PlannedRegistry
from tallystick.format.schemas import FrozenSchema, schema_digest
from tallystick.pipeline import Avro, Column, Csv, Debezium, Json, Protobuf

CORPUS = Path(__file__).parents[1] / "corpus"
BATCH = 4_096
# Bytes that mean something in one of the formats: limits of varints, quotes, brackets, separators.
TOKENS = [
    *(bytes([byte]) for byte in (0, 1, 2, 0x7F, 0x80, 0xFF)),
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"null", b"1e999", b"\\ud800"),
    *(
        b"\xff" * 9 + b"\x01",
        b"\x80" * 9 + b"\x01",
        b"\xfe\xff\xff\xff\x0f",
        b"\xc3\x28",
        b"\xed\xa0\x80",
    ),
]
_KIND = re.compile(r"\w+(?:: field [^:]*)?")

DEVICE = {
    "type": "record",
    "name": "device",
    "fields": [{"name": "os", "type": "string"}, {"name": "v", "type": ["null", "int"]}],
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}
SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": name, "type": kind}
        for name, kind in {
            "id": "long",
            "u": ["null", "string", "long", {"type": "array", "items": "int"}],
            "m": {"type": "map", "values": {"type": "array", "items": ["null", "double"]}},
            "n": ["null", "r"],
            "d": DECIMAL,
            "e": {"type": "enum", "name": "e", "symbols": ["A", "B"]},
            "x": {"type": "fixed", "name": "x", "size": 2},
            "t": {"type": "long", "logicalType": "timestamp-millis"},
            "device": DEVICE,
            "passed": {"type": "array", "items": "device"},
        }.items()
    ],
}
COLUMNS = [
    Column("id", "int"),
    Column("s", "string", required=False, source="u.string"),
    Column("l", "list<int>", required=False, source="u.array"),
    Column("m", "map<string, list<optional double>>"),
    Column("next", "long", required=False, source="n.n.id"),
    Column("d", "decimal(12,3)"),
    Column("e", "string"),
    Column("x", "fixed[2]"),
    Column("t", "timestamptz"),
    Column("device", "struct<os: string, v: int>", required=False),
]
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message M {
  int64 id = 1; string s = 2; repeated int32 l = 3; map<string, Inner> m = 4; M next = 5; Color e = 6;
  oneof one { bytes x = 7; double d = 8; Inner inner = 9; }
  google.protobuf.Timestamp t = 10; optional uint64 big = 11; repeated Inner items = 12; sint32 z = 13; fixed32 f = 14;
}
message Inner { string os = 1; int32 v = 2; }
enum Color { RED = 0; GREEN = 1; }
"""
PROTO_COLUMNS = [
    Column("id", "int"),
    Column("s", "string"),
    Column("l", "list<int>"),
    Column("m", "map<string, struct<os: string, v: int>>"),
    Column("third", "long", required=False, source="next.next.id"),
    Column("e", "string"),
    Column("x", "binary", required=False),
    Column("d", "double", required=False),
    Column("inner", "struct<os: string>", required=False),
    Column("t", "timestamptz", required=False),
    Column("big", "decimal(20,0)", required=False),
    Column("items", "list<struct<os: string, v: int>>"),
    Column("z", "int"),
    Column("f", "long"),
]
FLAT = [
    Column("n", "long"),
    Column("s", "string", required=False),
    Column("d", "decimal(9,2)", required=False),
    Column("t", "timestamptz", required=False, parse="epoch_ms"),
    Column("b", "boolean", required=False),
    Column("f", "double", required=False),
]
NESTED = [
    Column("id", "long"),
    Column("device", "struct<os: string, v: optional int>", required=False),
    Column("items", "list<struct<sku: string, q: int>>", required=False),
    Column("m", "map<string, decimal(9,2)>", required=False),
    Column("second", "string", required=False, source="items[1].sku"),
    Column("any", "string", required=False, parse="json"),
]
CHANGED = [Column("id", "long", required=False), Column("name", "string", required=False)]


def _registry() -> PlannedRegistry:
    text = json.dumps(SCHEMA)
    schema = FrozenSchema(
        id=7,
        subject="t-value",
        version=1,
        kind="AVRO",
        text=text,
        references=(),
        sha256=schema_digest("AVRO", text, ()),
    )
    return PlannedRegistry(name="default", schemas=(schema,))


FORMATS: dict[str, Callable[[], Decoder]] = {
    "avro": lambda: decoder_of(Avro(COLUMNS, schema=json.dumps(SCHEMA)).planned(())),
    "framed": lambda: decoder_of(Avro(COLUMNS, registry="default").planned(()), [_registry()]),
    "protobuf": lambda: decoder_of(Protobuf(PROTO_COLUMNS, schema=PROTO, message="M").planned(())),
    "csv": lambda: decoder_of(Csv(FLAT).planned(())),
    "json": lambda: decoder_of(Json(NESTED).format),
    "debezium": lambda: decoder_of(
        Debezium(CHANGED, before="old", tombstones="keep", truncates="keep").planned(())
    ),
}


def verdicts(decoded: Decoded) -> list[str]:
    """Return the verdict of each value of a batch: its row or its reason, as text."""
    found = dict(zip(decoded.dead.tolist(), map(str, decoded.reasons), strict=True))
    rows = decoded.rows.to_pylist()
    found |= {at: f"row: {row!r}" for at, row in zip(decoded.kept.tolist(), rows, strict=True)}
    assert len(found) == len(decoded.kept) + len(decoded.dead), "a value has two verdicts"
    return [found[at] for at in range(len(found))]


def decode(decoder: Decoder, values: Sequence[bytes | None]) -> list[str]:
    """Decode one batch and return the verdict of each value."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
    decoded = decoder.decode(batch)
    decoded.rows.validate(full=True)
    found = verdicts(decoded)
    for one in found:
        one.encode()  # a reason is stored as text
    assert len(found) == len(values), "a value has no verdict"
    return found


def kind(verdict: str) -> str:
    """Return the kind and the field of a verdict's reason; the kind of all rows is `row`."""
    found = _KIND.match(verdict)
    assert found is not None, verdict
    return found[0]


def read_corpus(name: str) -> list[tuple[bytes, str]]:
    """Return the values of a format's corpus with their verdicts."""
    path = CORPUS / f"{name}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(base64.b64decode(one["value"]), one["verdict"]) for one in map(json.loads, lines)]


def write_corpus(name: str, found: Sequence[tuple[bytes, str]]) -> None:
    """Write a format's corpus. Safe to repeat: the whole file is replaced."""
    lines = [
        json.dumps({"value": base64.b64encode(value).decode(), "verdict": verdict})
        for value, verdict in found
    ]
    (CORPUS / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def seeds(name: str) -> list[bytes]:
    """Return valid values of a format, from which the first mutations begin."""
    if name in ("avro", "framed"):
        import io

        import fastavro

        inner: dict[str, Any] = {"os": "x", "v": 3}
        value = {
            "id": 7, "u": "text", "m": {"k": [1.5, None]}, "n": None, "d": Decimal("-0.125"),
            "e": "B", "x": b"cd", "t": 1_577_934_245_123, "device": inner, "passed": [inner],
        }  # fmt: skip
        out = io.BytesIO()
        fastavro.schemaless_writer(
            out, fastavro.parse_schema(json.loads(json.dumps(SCHEMA))), {**value, "n": value}
        )
        return [(b"\0\0\0\0\7" if name == "framed" else b"") + out.getvalue()]
    return {
        "protobuf": [
            b"\x08\x07\x12\x01x\x1a\x02\x01\x02\x22\x09\x0a\x01k\x12\x04\x0a\x02os\x2a\x02\x08\x09\x30\x01\x3a\x02cd"
            b"\x52\x04\x08\x05\x10\x00\x58\x05\x62\x03\x0a\x01y\x68\x03\x75\x01\x00\x00\x00",
            b"\x41\x00\x00\x00\x00\x00\x00\xf8\x3f\x4a\x03\x0a\x01z",
        ],
        "csv": [b'7,"a ""b""",1.25,1577934245123,true,1e-3', b"7,,,,,"],
        "json": [
            b'{"id":7,"device":{"os":"x","v":null},"items":[{"sku":"a","q":1},{"sku":"b","q":2}],"m":{"k":"1.25"},'
            b'"any":[1,{"a":"\\u00e9"}]}'
        ],
        "debezium": [
            b'{"before":null,"after":{"id":1,"name":"x"},"source":{"lsn":5},"op":"c","ts_ms":1577934245123}',
            b'{"schema":{"type":"struct"},"payload":{"before":{"id":1,"name":null},"after":null,"op":"d","ts_ms":1}}',
            b'{"before":null,"after":null,"op":"t","ts_ms":1577934245123}',
        ],
    }[name]


def mutated(values: Sequence[bytes], chance: random.Random) -> bytes:
    """Return a value with up to four changes: bytes removed, replaced, inserted, repeated, or of another value."""
    value = bytearray(chance.choice(values))
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(value))
        end = min(len(value), at + chance.choice((0, 1, 2, 4, 16)))
        choice = chance.randrange(6)
        if choice == 0:
            del value[at:end]
        elif choice == 1:
            value[at:end] = chance.choice(TOKENS)
        elif choice == 2:
            value[at:at] = chance.randbytes(chance.randint(1, 4))
        elif choice == 3 and at < len(value):
            value[at] ^= 1 << chance.randrange(8)
        elif choice == 4:
            value[at:at] = value[at:end] * chance.randint(1, 40)
        else:
            other = chance.choice(values)
            value[at:end] = other[chance.randint(0, len(other)) :][:16]
        del value[4_000:]
    return bytes(value)


def fuzz(name: str, *, seconds: float, seed: int) -> Iterator[str]:
    """Fuzz one format and yield a line per new kind of verdict; the corpus is written at the end.

    Raises AssertionError, or what the decoder raises, with the value in base64 in a note.
    """
    chance, decoder = random.Random(seed), FORMATS[name]()
    corpus = read_corpus(name)
    known = {kind(verdict) for _, verdict in corpus}
    values = [*seeds(name), *(value for value, _ in corpus)]
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        batch = [mutated(values, chance) for _ in range(BATCH)]
        try:
            found = decode(decoder, batch)
            order = np.random.default_rng(seed).permutation(len(batch)).tolist()
            again = decode(decoder, [batch[at] for at in order])
            changed = [at for place, at in enumerate(order) if again[place] != found[at]]
            assert not changed, f"another verdict in another batch: {found[changed[0]]}"
        except Exception as error:
            error.add_note(f"{name}: {_culprit(decoder, batch)}")
            raise
        count += len(batch)
        for value, verdict in zip(batch, found, strict=True):
            if (new := kind(verdict)) not in known:
                known.add(new)
                corpus.append((value, verdict))
                values.append(value)
                yield f"{name}: {new[:100]}"
    write_corpus(name, corpus)
    yield f"{name}: {count:,} values, {len(known)} kinds of verdicts, seed {seed}"


def _culprit(decoder: Decoder, batch: Sequence[bytes]) -> str:
    """Return the first value that raises by itself, in base64."""
    for value in batch:
        try:
            decode(decoder, [value])
        except Exception as error:  # noqa: BLE001 - any exception is a defect, which is what is searched
            return f"{type(error).__name__} for {base64.b64encode(value).decode()}"
    return (
        "no value alone; the batch: "
        + " ".join(base64.b64encode(v).decode() for v in batch)[:4_000]
    )


def main() -> int:
    """Fuzz the formats of the command line, all by default; return 0."""
    parser = argparse.ArgumentParser(prog="python -m support.fuzz", description=__doc__)
    parser.add_argument("format", nargs="*", choices=[[], *FORMATS], help="a format; default: all")
    parser.add_argument("--seconds", type=float, default=10, help="per format")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name in arguments.format or FORMATS:
        for line in fuzz(name, seconds=arguments.seconds, seed=arguments.seed):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
