"""`tally compact` on a real S3 server: every reader gets the same rows, also after an interval was replaced."""

from __future__ import annotations

import json
import os
from typing import Any

import polars as pl
import pytest
from pyiceberg.table import StaticTable
from typer.testing import CliRunner, Result

from support.small_lake import SmallLake, days
from tallystick import read_snapshot
from tallystick.cli import app as cli
from tallystick.runtime import system_runtime
from tallystick.store.s3 import S3Store

SMALL = ("--min-files", "2")


@pytest.fixture
def lake(on_ministack: str, lake_uri: str, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """Return a lake with four days."""
    monkeypatch.delenv("TALLYSTICK_LAKE", raising=False)
    small = SmallLake(store=S3Store(lake_uri), runtime=system_runtime())
    for number in range(1, 5):
        small.run(days(number, number + 1))
    return small


def tally(*argv: str) -> Result:
    result = CliRunner().invoke(cli.app, list(argv), prog_name="tally")
    assert result.exit_code == 0, result.stdout + result.stderr
    return result


def tally_json(*argv: str) -> Any:
    return json.loads(tally(*argv, "--json").stdout)


def numbers(lake: SmallLake) -> dict[str, list[tuple[int, int]]]:
    """Return (partition, offset) of each event, as each reader finds them."""
    uri = read_snapshot(lake.store.uri).metadata["events"]
    select = "SELECT _kafka_partition, _offset FROM events ORDER BY 1, 2"
    columns = ["_kafka_partition", "_offset"]
    options = {
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"],
        "s3.region": os.environ["AWS_DEFAULT_REGION"],
    }
    scanned = pl.scan_iceberg(uri, storage_options=options).select(columns).sort(columns).collect()
    table = (
        StaticTable.from_metadata(uri, properties=options)
        .scan(selected_fields=tuple(columns))
        .to_arrow()
    )
    return {
        "DuckDB": [tuple(row) for row in tally_json("sql", select, lake.store.uri)["rows"]],
        "polars": scanned.rows(),
        "PyIceberg": sorted(zip(*(table[name].to_pylist() for name in columns), strict=True)),
    }


def same_for_all(lake: SmallLake) -> list[tuple[int, int]]:
    found = numbers(lake)
    assert found["DuckDB"] == found["polars"] == found["PyIceberg"]
    return found["DuckDB"]


def test_every_reader_gets_the_same_rows_before_and_after(lake: SmallLake) -> None:
    before = same_for_all(lake)
    dry = tally_json("compact", lake.store.uri, *SMALL, "--dry-run")
    assert dry["tables"]["events"]["files_before"] == 8
    assert same_for_all(lake) == before
    done = tally_json("compact", lake.store.uri, *SMALL)
    assert done["tables"]["events"]["files_after"] == 1
    assert done["left"] == {}
    assert same_for_all(lake) == before
    lake.job = b"version 2"
    lake.run(
        days(2, 3),
        clear=1,
        keep=lambda record: record.value.get("n") != 1,
        accept_compaction=True,
    )
    after = same_for_all(lake)
    assert set(after) < set(before)
    tally("verify", lake.store.uri, "--deep")
    # The new files of the day and the shared file become one, without the deleted rows.
    tally("compact", lake.store.uri, *SMALL)
    assert same_for_all(lake) == after
    assert "Nothing to compact" in tally("compact", lake.store.uri, *SMALL).stdout
    tally("verify", lake.store.uri, "--deep")


def test_the_text_has_a_line_per_table(lake: SmallLake) -> None:
    text = tally("compact", lake.store.uri, *SMALL, "--table", "events").stdout
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("events")] == [
        ["events", "8", "1"]
    ]
    assert not [line for line in text.splitlines() if len(line) > 100]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--target-size", "12"), "expected a size, found '12'"),
        (("--min-files", "1"), "at least 2 files"),
        (("--older-than", "tomorrow"), "expected a duration"),
        (("--table", "delays"), "no table 'delays'"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(
    lake: SmallLake, argv: tuple[str, ...], message: str
) -> None:
    result = CliRunner().invoke(cli.app, ["compact", lake.store.uri, *argv], prog_name="tally")
    assert result.exit_code == 77
    assert message in " ".join(result.stderr.split())
