"""The code of docs/how-to/read-by-name.md, run unchanged but for the port, returns exactly the committed rows."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

from catalog.conftest import BUCKET, lake_through, serving
from catalog.test_clients import in_order
from support.flights_lake import LAKE, FlightsLake, departures
from support.flights_lake import flights as columns_of_flights
from tallystick.store.open import open_store

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-by-name.md"
SHOWN = "http://127.0.0.1:8181"
FENCED = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
SPARK_4_1 = "TALLYSTICK_TEST_SPARK_4_1"
SPARK_PYTHON = os.environ.get(SPARK_4_1)
PRINTS = """
import json
print(json.dumps([counted, sorted((r._kafka_partition, r._offset) for r in flights.collect())]))
"""


def blocks(info: str, url: str) -> list[str]:
    """Return the page's blocks of a kind, with the address of the catalog of the test."""
    found = [match["code"] for match in FENCED.finditer(PAGE.read_text()) if match["info"] == info]
    assert all(SHOWN in code for code in found[:1])
    return [code.replace(SHOWN, url) for code in found]


@pytest.fixture
def demo(s3: str) -> Iterator[tuple[FlightsLake, str]]:
    """Yield the lake of the pages, and the address of its catalog."""
    assert LAKE.startswith(f"s3://{BUCKET}/")
    lake = FlightsLake(open_store(LAKE))
    with serving({"flights": lake_through("flights", LAKE, s3)}, s3) as url:
        yield lake, url
    prefix = LAKE.removeprefix(f"s3://{BUCKET}/") + "/"
    boto3.resource("s3").Bucket(BUCKET).objects.filter(Prefix=prefix).delete()


def test_the_code_of_the_page_reads_the_committed_rows(demo: tuple[FlightsLake, str]) -> None:
    lake, url = demo
    names: dict[str, Any] = {"__name__": "page"}
    found = blocks("python", url)
    assert len(found) >= 5
    for code in found:
        exec(compile(code, PAGE.name, "exec"), names)
    rows = columns_of_flights(lake.committed())
    assert sorted(names["tables"]) == [
        ("flights", name) for name in ("dead_letters", "departures_hourly", "flights")
    ]
    for name in ("flights", "duck_flights"):
        assert in_order(names[name].to_pylist()) == in_order(rows), name
    assert in_order(names["polars_flights"].collect().to_dicts()) == in_order(rows)
    pandas = pa.Table.from_pandas(names["pandas_flights"], preserve_index=False)
    assert in_order(pandas.to_pylist()) == in_order(rows)
    assert in_order(names["flights_then"].to_pylist()) == in_order(
        columns_of_flights(lake.committed_as_of())
    )
    jfk = [row for row in rows if row["origin"] == "JFK"]
    delays = [(row["carrier"], row["dep_delay"]) for row in jfk]
    read = [(row["carrier"], row["dep_delay"]) for row in names["jfk"].to_pylist()]
    assert sorted(read, key=str) == sorted(delays, key=str)
    assert names["counted"] == departures(rows)
    late = [row for row in rows if row["dep_delay"] is not None and row["dep_delay"] > 60]
    assert len(late) > 0
    assert names["delayed"].height == len(late)


def test_spark_reads_by_name(demo: tuple[FlightsLake, str], tmp_path: Path) -> None:
    python = SPARK_PYTHON
    if python is None:
        pytest.skip(f"there is no JAR for Spark 4.2: set {SPARK_4_1} to a Python with pyspark 4.1")
    lake, url = demo
    # The catalog sends the endpoint and the region; Amazon's SDK would otherwise take them from the environment.
    left_out = {"SPARK_HOME", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"}
    (code,) = blocks("python spark", url)
    found = subprocess.run(
        [python, "-c", code + PRINTS],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name not in left_out},
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": python,
            "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false "
            "--conf spark.driver.host=127.0.0.1 pyspark-shell",
        },
    )
    assert found.returncode == 0, found.stderr[-4000:]
    counted, offsets = json.loads(found.stdout.splitlines()[-1])
    rows = lake.committed()
    assert counted == departures(rows)
    assert offsets == sorted([row["_kafka_partition"], row["_offset"]] for row in rows)
