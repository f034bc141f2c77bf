"""The code of the pages read-with-*.md, run unchanged, returns exactly the committed rows.

The expected rows come from the log only. Blocks fenced as `python` run in one namespace per page, `sh` in bash.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

from support.flights_lake import LAKE, FlightsLake, Row, departures, flights
from tallystick.store.open import open_store
from tallystick_devstack.testing.servers import aws_environment, ministack

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
BUCKET, PREFIX = LAKE.removeprefix("s3://").split("/")
SNAPSHOT = "snapshot = read_snapshot("
SPARK_4_1 = "TALLYSTICK_TEST_SPARK_4_1"
ROWS: Mapping[str, Callable[[Any], list[Row]]] = {
    "pyiceberg": lambda rows: rows.to_pylist(),
    "pandas": lambda rows: pa.Table.from_pandas(rows, preserve_index=False).to_pylist(),
    "polars": lambda rows: rows.to_dicts(),
    "duckdb": lambda rows: rows.to_pylist(),
}
FENCED = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str, *, way: str = "") -> list[str]:
    """Return the page's fenced blocks of a language, in order; of blocks for one of several ways only those of `way`."""
    matches = FENCED.finditer((PAGES / f"read-with-{page}.md").read_text())
    infos = {language, f"{language} {way}"}
    return [match["code"] for match in matches if match["info"] in infos]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ministack() as url:
        yield url


@pytest.fixture
def lake(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlightsLake]:
    """Yield a new lake of the pages for each test, with an environment that has only its server."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "TALLYSTICK_"))]:
        if name != SPARK_4_1:
            monkeypatch.delenv(name)
    for name, value in aws_environment(server).items():
        monkeypatch.setenv(name, value)
    bucket = boto3.resource("s3").create_bucket(Bucket=BUCKET)
    yield FlightsLake(open_store(LAKE))
    bucket.objects.all().delete()
    bucket.delete()


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The values of a page's names after its code has run, as plain rows."""

    flights: Sequence[Row]
    jfk: Sequence[Row]
    counted: Mapping[str, int]
    flights_then: Sequence[Row]


def run_here(page: str, between: Callable[[], None]) -> Read:
    """Run a page's blocks in this process, and `between` once it has its snapshot."""
    names: dict[str, Any] = {"__name__": page}
    for block in blocks(page, "python"):
        exec(compile(block, f"read-with-{page}.md", "exec"), names)
        if SNAPSHOT in block:
            between()
    rows = ROWS[page]
    return Read(
        flights=rows(names["flights"]),
        jfk=rows(names["jfk"]),
        counted=names["counted"],
        flights_then=rows(names["flights_then"]),
    )


def run_on_spark(way: str, python: str, home: Path, between: Callable[[], None]) -> Read:
    """Run the Spark page's blocks in a Python with the Spark of that way, and `between` once it has its snapshot."""
    environment = {
        **os.environ,
        "TZ": "UTC",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
        "--conf spark.driver.bindAddress=127.0.0.1 --conf spark.sql.session.timeZone=UTC "
        "--conf spark.sql.shuffle.partitions=2 pyspark-shell",
    }
    with (
        (home / "stderr").open("w") as stderr,
        subprocess.Popen(
            [python, Path(__file__).with_name("run_page.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            cwd=home,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        for block in blocks("spark", "python", way=way):
            process.stdin.write(json.dumps(block) + "\n")
            process.stdin.flush()
            assert "ran\n" in process.stdout, (home / "stderr").read_text()[-4000:]
            if SNAPSHOT in block:
                between()
        process.stdin.close()
        lines = process.stdout.read().splitlines()
    assert process.returncode == 0, (home / "stderr").read_text()[-4000:]
    values = json.loads(lines[-1])
    assert values.pop("spark").startswith({"jar": "4.1.", "no-jar": "4.2."}[way])
    return Read(**{name: values[name] for name in Read.__slots__})


def same(actual: Sequence[Row], expected: Sequence[Row]) -> None:
    """Compare rows in any order. Instants may be text."""
    assert sorted(map(_plain, actual)) == sorted(map(_plain, expected))


def _plain(row: Row) -> str:
    texts = {n: v.isoformat() if isinstance(v, datetime) else v for n, v in row.items()}
    return json.dumps(texts, sort_keys=True)


def check_read(read: Read, lake: FlightsLake) -> None:
    """Check that a page read the rows from before the commit of day 4, and those at the older version of the pages."""
    now, then = flights(lake.committed()), flights(lake.committed_as_of())
    same(read.flights, now)
    assert read.counted == departures(now)
    from_jfk = [row for row in now if row["origin"] == "JFK"]
    same(read.jfk, [{n: row[n] for n in ("carrier", "dep_delay")} for row in from_jfk])
    same(read.flights_then, then)


@pytest.mark.parametrize("page", sorted(ROWS))
def test_a_page_reads_one_snapshot_and_an_older_one(page: str, lake: FlightsLake) -> None:
    """Day 4 is staged from the beginning, and is committed when the page has its snapshot."""
    before = lake.version
    check_read(run_here(page, between=lake.commit_day_4), lake)
    assert lake.version == before + 1


@pytest.mark.parametrize("way", ["no-jar", "jar"])
def test_the_spark_page_reads_one_snapshot_and_an_older_one(
    way: str, lake: FlightsLake, tmp_path: Path
) -> None:
    python = sys.executable if way == "no-jar" else os.environ.get(SPARK_4_1)
    if python is None:
        pytest.skip(f"there is no JAR for Spark 4.2: set {SPARK_4_1} to a Python with pyspark 4.1")
    before = lake.version
    read = run_on_spark(way, str(Path(python).absolute()), tmp_path, between=lake.commit_day_4)
    check_read(read, lake)
    assert lake.version == before + 1


def test_tally_sql_of_the_duckdb_page_returns_the_departures(lake: FlightsLake) -> None:
    results = [
        {row["origin"]: int(row["n"]) for row in csv.DictReader(_bash(block).splitlines())}
        for block in blocks("duckdb", "sh")
    ]
    assert results == [departures(lake.committed()), departures(lake.committed_as_of())]


def _bash(script: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        ["bash", "-euc", script], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_pandas_without_arrow_types_turns_whole_numbers_with_nulls_into_floats(
    lake: FlightsLake,
) -> None:
    """The reason for ArrowDtype on the pandas page."""
    names: dict[str, Any] = {"__name__": "pandas"}
    exec(compile(blocks("pandas", "python")[0], "read-with-pandas.md", "exec"), names)
    assert str(names["flights"].dtypes["dep_delay"]) == "int32[pyarrow]"
    metadata = names["snapshot"].metadata["flights"]
    plain = names["StaticTable"].from_metadata(metadata, names["s3"]).scan().to_pandas()
    assert str(plain.dtypes["dep_delay"]) == "float64"
    assert lake.rows


def test_every_page_has_the_same_parts_in_the_same_order() -> None:
    sections = [
        "What you need",
        "The code",
        "One consistent snapshot of several tables",
        "As of an older version",
        "Limits",
    ]
    pages = sorted(PAGES.glob("read-with-*.md"))
    assert [page.stem.removeprefix("read-with-") for page in pages] == sorted([*ROWS, "spark"])
    for page in pages:
        assert re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE) == sections, page.name
