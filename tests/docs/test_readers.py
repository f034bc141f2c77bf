"""The pages read-with-*.md keep their word: their own code, run as it stands, gives the committed rows and no others.

The rows are known from the log alone. Blocks fenced as `python` are run in one namespace per page, `sh` by bash.
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
    "pyiceberg": lambda found: found.to_pylist(),
    "pandas": lambda found: pa.Table.from_pandas(found, preserve_index=False).to_pylist(),
    "polars": lambda found: found.to_dicts(),
    "duckdb": lambda found: found.to_pylist(),
}
FENCED = re.compile(r"^```(?P<words>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str, *, way: str = "") -> list[str]:
    """The page's fenced blocks of a language, in order; of those for one `way` of several only that way's."""
    found = FENCED.finditer((PAGES / f"read-with-{page}.md").read_text())
    wanted = {language, f"{language} {way}"}
    return [match["code"] for match in found if match["words"] in wanted]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ministack() as url:
        yield url


@pytest.fixture
def lake(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlightsLake]:
    """The lake of the pages, anew for each test, and an environment in which only its server is known."""
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
    """What a page's names hold after its code was run, as plain rows."""

    flights: Sequence[Row]
    jfk: Sequence[Row]
    counted: Mapping[str, int]
    flights_then: Sequence[Row]


def run_here(page: str, between: Callable[[], None]) -> Read:
    """Run a page's blocks in this process, and `between` once it has its cut."""
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
    """Run the Spark page's blocks under a Python that has the Spark of that way, and `between` once it has its cut."""
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
    told = json.loads(lines[-1])
    assert told.pop("spark").startswith({"jar": "4.1.", "no-jar": "4.2."}[way])
    return Read(**{name: told[name] for name in Read.__slots__})


def same(found: Sequence[Row], expected: Sequence[Row]) -> None:
    """Compare rows without regard to their order; instants may be text."""
    assert sorted(map(_plain, found)) == sorted(map(_plain, expected))


def _plain(row: Row) -> str:
    texts = {n: v.isoformat() if isinstance(v, datetime) else v for n, v in row.items()}
    return json.dumps(texts, sort_keys=True)


def holds(read: Read, lake: FlightsLake) -> None:
    """What was read is what the lake held before day 4 was committed, and at the version to which the pages go back."""
    now, then = flights(lake.committed()), flights(lake.committed_as_of())
    same(read.flights, now)
    assert read.counted == departures(now)
    from_jfk = [row for row in now if row["origin"] == "JFK"]
    same(read.jfk, [{n: row[n] for n in ("carrier", "dep_delay")} for row in from_jfk])
    same(read.flights_then, then)


@pytest.mark.parametrize("page", sorted(ROWS))
def test_a_page_reads_one_cut_and_an_older_one(page: str, lake: FlightsLake) -> None:
    """Day 4 lies in the lake from the beginning, and is committed when the page has its cut."""
    before = lake.version
    holds(run_here(page, between=lake.commit_day_4), lake)
    assert lake.version == before + 1


@pytest.mark.parametrize("way", ["no-jar", "jar"])
def test_the_spark_page_reads_one_cut_and_an_older_one(
    way: str, lake: FlightsLake, tmp_path: Path
) -> None:
    python = sys.executable if way == "no-jar" else os.environ.get(SPARK_4_1)
    if python is None:
        pytest.skip(f"no JAR for Spark 4.2: {SPARK_4_1} may name a Python with pyspark 4.1")
    before = lake.version
    read = run_on_spark(way, str(Path(python).absolute()), tmp_path, between=lake.commit_day_4)
    holds(read, lake)
    assert lake.version == before + 1


def test_tally_sql_of_the_duckdb_page_answers(lake: FlightsLake) -> None:
    answers = [
        {row["origin"]: int(row["n"]) for row in csv.DictReader(_bash(block).splitlines())}
        for block in blocks("duckdb", "sh")
    ]
    assert answers == [departures(lake.committed()), departures(lake.committed_as_of())]


def _bash(script: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        ["bash", "-euc", script], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_pandas_alone_turns_whole_numbers_with_nulls_into_floats(lake: FlightsLake) -> None:
    """The pandas page's reason for ArrowDtype."""
    names: dict[str, Any] = {"__name__": "pandas"}
    exec(compile(blocks("pandas", "python")[0], "read-with-pandas.md", "exec"), names)
    assert str(names["flights"].dtypes["dep_delay"]) == "int32[pyarrow]"
    metadata = names["snapshot"].metadata["flights"]
    plain = names["StaticTable"].from_metadata(metadata, names["s3"]).scan().to_pandas()
    assert str(plain.dtypes["dep_delay"]) == "float64"
    assert lake.rows


def test_every_page_has_the_same_parts_in_the_same_order() -> None:
    wanted = [
        "What you need",
        "The code",
        "One consistent snapshot of several tables",
        "As of an older version",
        "Limits",
    ]
    pages = sorted(PAGES.glob("read-with-*.md"))
    assert [page.stem.removeprefix("read-with-") for page in pages] == sorted([*ROWS, "spark"])
    for page in pages:
        assert re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE) == wanted, page.name
