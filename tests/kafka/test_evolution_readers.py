"""A table that followed its schemas, with its first interval replaced after that: every reader has the same rows."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import polars as pl
import pyarrow as pa
import pytest

from contract.test_tables_readers import by_duckdb, by_pyiceberg
from support.brokers import TestBroker
from support.log_lake import LogLake, days
from support.registered import produce, register
from tallystick.pipeline import Avro, Table, Topic
from tallystick.store.open import open_store
from tallystick.tables.reading import metadata_uri
from tallystick_devstack.testing.servers import aws_environment, ministack
from unit.engine.decode.test_avro import encoded, record
from unit.engine.decode.test_framed import framed

SPARK_4_1 = "TALLYSTICK_TEST_SPARK_4_1"
FIRST = record(
    ("n", "int"),
    ("part", ["null", "string"]),
    ("device", record(("os", "string"), name="device")),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}),
)
SECOND = record(
    ("n", "long"),
    ("part", ["null", "string"]),
    ("device", record(("os", "string"), ("version", ["null", "int"]), name="device")),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("tags", ["null", {"type": "array", "items": "string"}]),
)
OLD = [
    {"n": 1, "part": "a", "device": {"os": "x"}, "price": Decimal("1.25")},
    {"n": 2, "part": None, "device": {"os": "y"}, "price": Decimal("-999.99")},
]
NEW = {
    "n": 2**40,
    "part": "b",
    "device": {"os": "z", "version": 3},
    "price": Decimal("1234567.25"),
    "tags": ["t", "u"],
}
EXPECTED = [
    *({**row, "device": {**row["device"], "version": None}, "tags": None} for row in OLD),
    NEW,
]


@pytest.fixture
def uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URI of a lake on an S3 server."""
    with ministack() as server:
        for name, value in aws_environment(server).items():
            monkeypatch.setenv(name, value)
        boto3.resource("s3").create_bucket(Bucket="lake")
        yield "s3://lake/evolved"


@pytest.fixture
def metadata(broker: TestBroker, uri: str) -> str:
    """Return the metadata of a table whose schema moved between two days, the first of which was replaced after that."""
    topic = broker.topic()
    lake = LogLake(
        broker,
        [Topic(topic, decode=Avro(registry="default", schema="follow"))],
        tables=[Table("events", topic=topic, partition_by=["part"])],
        store=open_store(uri),
    )
    register(lake, topic, FIRST)
    produce(broker, topic, 0.5, *(framed(1, encoded(FIRST, row)) for row in OLD))
    lake.run(days(0, 1))
    register(lake, topic, SECOND)
    produce(broker, topic, 1.5, framed(2, encoded(SECOND, NEW)))
    lake.run(days(1, 2))
    before = lake.lake.load_existing().root.tables["events"].metadata
    lake.run(days(0, 1), run="again", mode="replace")
    found = lake.lake.load_existing().root.tables["events"].metadata
    assert found is not None
    assert found != before
    lake.assert_verified()
    return metadata_uri(lake.lake.store, found)


def by_polars(uri: str) -> pa.Table:
    options = {
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    return (
        pl.scan_iceberg(uri, storage_options=options, reader_override="native").collect().to_arrow()
    )


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in the order of `n`, without lineage."""
    kept = ({n: v for n, v in row.items() if not n.startswith("_")} for row in rows)
    return sorted(kept, key=lambda row: row["n"])


def test_duckdb_pyiceberg_and_polars_have_the_same_rows(metadata: str) -> None:
    found = {
        "duckdb": by_duckdb("from events", events=metadata),
        "pyiceberg": by_pyiceberg(metadata),
        "polars": by_polars(metadata),
    }
    for name, table in found.items():
        assert plain(table.to_pylist()) == EXPECTED, name


_SPARK = """
import json, os, sys
from pyspark.sql import SparkSession
packages = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.apache.hadoop:hadoop-aws:3.4.2"
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.jars.packages", packages)
    .config("spark.hadoop.fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
    .config("spark.hadoop.fs.s3a.endpoint", os.environ["AWS_ENDPOINT_URL_S3"])
    .config("spark.hadoop.fs.s3a.endpoint.region", "us-east-1")
    .config("spark.hadoop.fs.s3a.path.style.access", "true").getOrCreate()
)
rows = [row.asDict(recursive=True) for row in spark.read.format("iceberg").load(sys.argv[1]).collect()]
print(json.dumps(rows, default=str))
"""


def test_spark_has_the_same_rows(metadata: str, tmp_path: Path) -> None:
    """Iceberg's own reader, of Java, in Spark 4.1."""
    python = os.environ.get(SPARK_4_1)
    if python is None:
        pytest.skip(f"there is no JAR for Spark 4.2: set {SPARK_4_1} to a Python with pyspark 4.1")
    done = subprocess.run(
        [python, "-c", _SPARK, metadata],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = plain(json.loads(done.stdout.splitlines()[-1]))
    assert found == [{**row, "price": str(row["price"])} for row in EXPECTED]
