"""The Iceberg table of events that Kafka Connect, Spark and Flink write: in a SQL catalog (SQLite) on the local disk.

PyIceberg creates it before the run, which is not measured: each of them needs a table, or would create it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from bench.whole_job.contender import EVENTS, BenchPlace, ResultTable

CATALOG, NAMESPACE = "lake", "bench"
IDENTIFIER = f"{NAMESPACE}.{EVENTS}"
LOCAL = "the local disk and a JDBC catalog in a SQLite file, which favours it: no upload, no requests to a catalog"
JDBC_CATALOG = "org.apache.iceberg.jdbc.JdbcCatalog"
_FIELDS = (
    ("event_id", StringType()),
    ("event_type", StringType()),
    ("user_id", LongType()),
    ("session", StringType()),
    ("ts", LongType()),
    ("page", StringType()),
    ("referrer", StringType()),
    ("price", DoubleType()),
    ("qty", IntegerType()),
)
_OF_DEVICE = (("os", StringType()), ("ver", StringType()))
_PLACES = (("partition", IntegerType()), ("offset", LongType()), ("timestamp", TimestamptzType()))
COLUMNS: Mapping[str, str] = {
    **{name: name for name, _ in _FIELDS},
    "os": "device.os",
    "ver": "device.ver",
    "partition": '"partition"',
    "offset": '"offset"',
}


def schema() -> Schema:
    """Return the schema: the fields of an event, and the record's place."""
    device = StructType(*_nested(_OF_DEVICE, first=20))
    fields = _nested((*_FIELDS, ("device", device), *_PLACES), first=1)
    return Schema(*fields)


def _nested(fields: tuple[tuple[str, object], ...], *, first: int) -> list[NestedField]:
    return [
        NestedField(number, name, kind, required=False)  # type: ignore[arg-type]
        for number, (name, kind) in enumerate(fields, first)
    ]


def database(place: BenchPlace) -> Path:
    """Return the file of the catalog, which is not in the folder whose bytes are counted."""
    return place.folder / "catalog.db"


def jdbc_properties(place: BenchPlace) -> dict[str, str]:
    """Return the properties with which Iceberg's JdbcCatalog finds the table."""
    return {
        "uri": f"jdbc:sqlite:{database(place)}",
        "warehouse": f"file://{place.output}",
        "jdbc.schema-version": "V1",
    }


def create_table(place: BenchPlace, properties: Mapping[str, str]) -> None:
    """Create the catalog and the empty table with these properties. Not safe to repeat: the place must be empty."""
    # Iceberg's Java gives this property to each table that it creates; without it, its writers use gzip.
    properties = {"write.parquet.compression-codec": "zstd", **properties}
    with _catalog(place) as catalog:
        catalog.create_namespace(NAMESPACE)
        catalog.create_table(IDENTIFIER, schema(), properties=properties)


def result(place: BenchPlace, columns: Mapping[str, str] = COLUMNS) -> ResultTable:
    """Return the data files of the table's current snapshot, as PyIceberg finds them."""
    with _catalog(place) as catalog:
        tasks = list(catalog.load_table(IDENTIFIER).scan().plan_files())
    files = sorted(task.file.file_path.removeprefix("file://") for task in tasks)
    return ResultTable(name=EVENTS, files=[_absolute(path) for path in files], columns=columns)


def _absolute(path: str) -> str:
    # Hadoop's file system writes `file:/folder`.
    return path.removeprefix("file:")


@contextmanager
def _catalog(place: BenchPlace) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog(
        CATALOG, uri=f"sqlite:///{database(place)}", warehouse=f"file://{place.output}"
    )
    try:
        yield catalog
    finally:
        catalog.close()
