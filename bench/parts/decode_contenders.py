"""The decoders that decode.py compares: tallystick's, and libraries that read the same records.

A contender gets the records' bytes and returns how many rows it has read. What it needs once (a schema, a file) is made
before it is measured.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import polars
import pyarrow as pa
import pyarrow.json

from bench.parts import decode_records
from bench.parts.decode_records import BenchRecords, Row
from tallystick.engine.decode.decoder import decoder_of
from tallystick.pipeline import Avro, Column, Json, Protobuf
from tallystick.tables.schema import arrow_schema

Read = Callable[[], int]
Package = str | None
FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeContender:
    """A decoder by its name. `package`: what is to be installed for it if it is not part of this project."""

    name: str
    open: Callable[[BenchRecords, Path], Read]
    package: Package = None

    @property
    def is_installed(self) -> bool:
        return self.package is None or find_spec(self.package.replace("-", "_")) is not None


# ---------------------------------------------------------------- tallystick


def declared(records: BenchRecords, columns: tuple[Column, ...]) -> Any:
    """Return the format of records."""
    if records.name.endswith("Avro"):
        return Avro(columns, schema=json.dumps(decode_records.AVRO)).planned(())
    if records.name.endswith("Protobuf"):
        text, message = decode_records.PROTO, decode_records.MESSAGE
        return Protobuf(columns, schema=text, message=message).planned(())
    return Json(columns).format


def tallystick(
    records: BenchRecords, *, columns: tuple[Column, ...] | None = None, broken: float = 0.0
) -> Read:
    """Return a reader of the declared columns, of which a share of the records is broken."""
    decoder = decoder_of(declared(records, columns or records.columns))
    values = decode_records.batch(records.broken(broken))
    dead = sum(map(len, records.broken(broken))) != sum(map(len, records.values))

    def read() -> int:
        decoded = decoder.decode(values)
        assert bool(len(decoded.dead)) == dead
        return int(decoded.rows.num_rows + len(decoded.dead))

    return read


# ---------------------------------------------------------------- JSON


def _file(records: BenchRecords, folder: Path) -> Path:
    path = folder / f"{records.name.replace(' ', '-')}.jsonl"
    if not path.exists():
        path.write_bytes(b"\n".join(records.values) + b"\n")
    return path


def _pyarrow(records: BenchRecords, folder: Path) -> Read:
    content = _file(records, folder).read_bytes()
    # pyarrow.json reads no map, so it reads all other columns.
    schema = pa.schema([f for f in arrow_schema(records.columns) if not pa.types.is_map(f.type)])
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    return lambda: pyarrow.json.read_json(io.BytesIO(content), parse_options=options).num_rows


_DUCKDB = {"long": "BIGINT", "int": "INTEGER", "string": "VARCHAR", "map": "MAP(VARCHAR, VARCHAR)"}


def _duckdb_type(column: Column) -> str:
    if column.type == "struct":
        parts = ", ".join(f'"{part.name}" {_duckdb_type(part)}' for part in column.fields)
        return f"STRUCT({parts})"
    if column.type == "list":
        return f"{_duckdb_type(column.fields[0])}[]"
    return _DUCKDB.get(column.type, column.type.upper())


def _duckdb(records: BenchRecords, folder: Path) -> Read:
    columns = ", ".join(f"\"{c.name}\": '{_duckdb_type(c)}'" for c in records.columns)
    query = (
        f"select * from read_json('{_file(records, folder)}', format='nd', columns={{{columns}}})"
    )

    def read() -> int:
        with duckdb.connect() as connection:
            return int(connection.execute(query).to_arrow_table().num_rows)

    return read


def _polars(records: BenchRecords, folder: Path) -> Read:
    empty = pa.Table.from_pylist([], schema=arrow_schema(records.columns))
    schema = polars.DataFrame(polars.from_arrow(empty)).schema
    path = _file(records, folder)
    return lambda: polars.read_ndjson(path, schema=schema).height


_CHDB = {
    "long": "Int64",
    "int": "Int32",
    "string": "String",
    "double": "Float64",
    "boolean": "Bool",
}


def _chdb_type(column: Column) -> str:
    if column.type == "struct":
        return f"Tuple({', '.join(f'{f.name} {_chdb_type(f)}' for f in column.fields)})"
    if column.type == "list":
        return f"Array({_chdb_type(column.fields[0])})"
    return "Map(String, String)" if column.type == "map" else _CHDB[column.type]


def _chdb(records: BenchRecords, folder: Path) -> Read:
    import chdb

    columns = ", ".join(f"{c.name} {_chdb_type(c)}" for c in records.columns)
    query = f"select * from file('{_file(records, folder)}', JSONEachRow, '{columns}')"
    return lambda: int(chdb.query(query, "ArrowTable").num_rows)


# ---------------------------------------------------------------- Avro


def _fastavro_objects(records: BenchRecords, _: Path) -> Read:
    schema = fastavro.parse_schema(decode_records.AVRO)

    def read() -> int:
        return sum(1 for _ in _by_fastavro(records.values, schema))

    return read


def _by_fastavro(values: list[bytes], schema: Any) -> Iterator[Any]:
    for value in values:
        yield fastavro.schemaless_reader(io.BytesIO(value), schema, None)


def _fastavro_arrow(records: BenchRecords, _: Path) -> Read:
    schema, wanted = fastavro.parse_schema(decode_records.AVRO), arrow_schema(records.columns)

    def read() -> int:
        found: list[Row] = [
            {**row, "labels": list(row["labels"].items())}
            for row in _by_fastavro(records.values, schema)
        ]
        return pa.Table.from_pylist(found, schema=wanted).num_rows

    return read


def _polars_avro(records: BenchRecords, _: Path) -> Read:
    import polars_avro

    # It reads container files only: here one of all records.
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(decode_records.AVRO), records.rows)
    content = out.getvalue()
    return lambda: int(polars_avro.read_avro(io.BytesIO(content)).height)


# ---------------------------------------------------------------- Protobuf


def _protobuf_objects(records: BenchRecords, _: Path) -> Read:
    message = decode_records.proto_class()
    return lambda: len([message.FromString(value) for value in records.values])


def _protobuf_arrow(records: BenchRecords, _: Path) -> Read:
    message, wanted = decode_records.proto_class(), arrow_schema(records.columns)
    kinds = decode_records.KINDS

    def row(value: bytes) -> Row:
        order = message.FromString(value)
        customer, address = order.customer, order.customer.address
        return {
            "id": order.id,
            "at": order.at,
            "kind": kinds[order.kind],
            "amount": order.amount,
            "gift": order.gift,
            "customer": {
                "id": customer.id,
                "name": customer.name,
                "email": customer.email,
                "address": {
                    "street": address.street,
                    "city": address.city,
                    "country": address.country,
                    "lat": address.lat,
                    "lon": address.lon,
                },
            },
            "items": [
                {
                    "sku": item.sku,
                    "quantity": item.quantity,
                    "price": item.price,
                    "tags": list(item.tags),
                }
                for item in order.items
            ],
            "labels": list(order.labels.items()),
        }

    return lambda: pa.Table.from_pylist(list(map(row, records.values)), schema=wanted).num_rows


def _ptars(records: BenchRecords, _: Path) -> Read:
    import ptars

    types = decode_records.proto_class().DESCRIPTOR
    handler = ptars.HandlerPool([types.file]).get_for_message(types)
    return lambda: int(handler.list_to_record_batch(records.values).num_rows)


def contenders(kind: str) -> list[DecodeContender]:
    """Return all decoders of a kind of records, tallystick's first."""
    ours = [
        DecodeContender(name="tallystick", open=lambda records, _: tallystick(records)),
        DecodeContender(
            name=f"tallystick, {FEW} columns",
            open=lambda records, _: tallystick(records, columns=records.columns[:FEW]),
        ),
        DecodeContender(
            name="tallystick, 1 % dead",
            open=lambda records, _: tallystick(records, broken=0.01),
        ),
    ]
    if kind.endswith("Avro"):
        return [
            *ours,
            DecodeContender(name="fastavro: objects", open=_fastavro_objects),
            DecodeContender(name="fastavro: Arrow", open=_fastavro_arrow),
            DecodeContender(name="polars-avro", open=_polars_avro, package="polars-avro"),
        ]
    if kind.endswith("Protobuf"):
        return [
            *ours,
            DecodeContender(name="google.protobuf: objects", open=_protobuf_objects),
            DecodeContender(name="google.protobuf: Arrow", open=_protobuf_arrow),
            DecodeContender(name="ptars", open=_ptars, package="ptars"),
        ]
    return [
        *ours,
        DecodeContender(name="pyarrow.json", open=_pyarrow),
        DecodeContender(name="duckdb", open=_duckdb),
        DecodeContender(name="polars", open=_polars),
        DecodeContender(name="chdb", open=_chdb, package="chdb"),
    ]
