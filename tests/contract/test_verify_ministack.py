"""`tally` on a lake on a real S3 server: SQL on one snapshot, verify, damage, and an unreachable server."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner, Result

from support.small_lake import SmallLake, days, good_lake
from tallystick.cli import app as cli
from tallystick.format import keys
from tallystick.store.s3 import S3Settings, S3Store
from tallystick_devstack.testing.servers import free_port

BUCKET = "contract"  # created by conftest.py


@pytest.fixture(scope="module")
def built(session: boto3.session.Session, ministack_url: str) -> SmallLake:
    """Return one lake for all tests that only read."""
    settings = S3Settings(endpoint_url=ministack_url)
    return good_lake(S3Store(f"s3://{BUCKET}/verify-read-only", settings=settings, session=session))


@pytest.fixture
def lake(built: SmallLake, on_ministack: str, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    monkeypatch.delenv("TALLYSTICK_LAKE", raising=False)
    return built


@pytest.fixture
def own_lake(on_ministack: str, lake_uri: str) -> SmallLake:
    """Return a lake for one test, which may damage it."""
    small = SmallLake(store=S3Store(lake_uri))
    small.run(days(1, 2))
    return small


def tally(*argv: str) -> Result:
    return CliRunner().invoke(cli.app, list(argv), prog_name="tally")


def rows(lake: SmallLake, question: str) -> Any:
    result = tally("sql", question, lake.store.uri, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_deep_verification_of_a_good_lake_on_s3_passes(lake: SmallLake) -> None:
    result = tally("verify", lake.store.uri, "--deep", "--every-record", "events", "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    output = json.loads(result.stdout)
    assert (output["proven"], len(output["checks"])) == (True, 8)


def test_sql_reads_only_committed_rows(lake: SmallLake) -> None:
    found = rows(lake, "select count(*), count(distinct (_kafka_partition, _offset)) from events")
    assert found["rows"] == [[15, 15]]
    assert rows(lake, "select count(*) from dead_letters")["rows"] == [[6]]


def test_sql_reads_all_tables_of_one_root(lake: SmallLake) -> None:
    question = "select sum(n) from per_kind union all select sum(n) from events"
    first, second = rows(lake, question)["rows"]
    assert first == second


def test_sql_writes_csv(lake: SmallLake) -> None:
    question = "select _kafka_partition, count(*) as records from events group by 1 order by 1"
    result = tally("sql", question, lake.store.uri, "--format", "csv")
    assert list(csv.reader(io.StringIO(result.stdout))) == [
        ["_kafka_partition", "records"],
        ["0", "6"],
        ["1", "9"],
    ]


def test_sql_prints_a_table(lake: SmallLake) -> None:
    result = tally(
        "sql",
        "select _kafka_partition as p, count(*) as n from events group by 1 order by 1",
        lake.store.uri,
    )
    assert result.stdout.splitlines() == ["p  n", "0  6", "1  9"]


def test_sql_keeps_values_exact(lake: SmallLake) -> None:
    question = "select value, reason, _timestamp, 1.10::decimal(5,2), null, 'nan'::double from dead_letters limit 1"
    (row,) = rows(lake, question)["rows"]
    assert row[:2] == ["ew==", "json: not JSON"]
    assert row[2].startswith("2013-01-0")
    assert row[3:] == ["1.10", None, "nan"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("drop view events", "found DROP"),
        ("copy (select 1) to 'x.csv'", "found COPY"),
        ("select 1; select 2", "SELECT and SELECT"),
        ("select nothing from events", "DuckDB refused the statement"),
        ("select * from flights", "DuckDB refused the statement"),
        ("this is not sql", "DuckDB cannot parse the statement"),
        ("select * from read_text('/etc/hostname')", "DuckDB"),
    ],
)
def test_sql_refuses_statements_that_do_more_than_read_the_lake(
    lake: SmallLake, question: str, message: str
) -> None:
    result = tally("sql", question, lake.store.uri)
    assert result.exit_code == 77, result.stdout
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert "test-secret" not in result.stderr


def test_an_unknown_format_is_refused(lake: SmallLake) -> None:
    result = tally("sql", "select 1", lake.store.uri, "--format", "xml")
    assert result.exit_code == 2
    assert all(form in result.stderr for form in ("table", "vertical", "json", "csv"))


def test_sql_before_the_first_commit_finds_no_rows(on_ministack: str, lake_uri: str) -> None:
    small = SmallLake(store=S3Store(lake_uri))
    small.plan(days(1, 2))
    assert rows(small, "select count(*) from events")["rows"] == [[0]]
    assert rows(small, "select * from per_kind") == {"columns": ["kind", "n"], "rows": []}


def test_sql_reads_a_table_without_rows_next_to_others(own_lake: SmallLake) -> None:
    """A table of the newest plan that no commit has written yet exists and is empty."""
    own_lake.change(keys.ROOT, lambda root: root["tables"]["per_kind"].update(metadata=None))
    assert rows(own_lake, "select count(*) from per_kind")["rows"] == [[0]]
    assert rows(own_lake, "select count(*) from events")["rows"] == [[5]]


def test_sql_reports_a_missing_data_file_as_corrupt_not_as_retryable(own_lake: SmallLake) -> None:
    own_lake.store.delete(own_lake.data_files("events"))
    for options in (["--json"], ["--format", "json"]):
        result = tally("sql", "select sum(n) from events", own_lake.store.uri, *options)
        assert result.exit_code == 77, result.stderr
        error = json.loads(result.stderr)["error"]
        assert error["kind"] == "corrupt"
        assert "404" in error["message"]


def test_damage_on_s3_is_found(own_lake: SmallLake) -> None:
    first, second, *_ = own_lake.data_files("events")
    own_lake.store.delete([first])
    stored = own_lake.store.get(second)
    assert stored is not None
    own_lake.overwrite(second, stored.body + b" ")
    result = tally("verify", own_lake.store.uri, "--json")
    assert result.exit_code == 1
    objects = next(c for c in json.loads(result.stdout)["checks"] if c["name"] == "objects")
    assert {finding["where"] for finding in objects["findings"]} == {first, second}


def test_an_unreachable_server_is_named(
    on_ministack: str, lake_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    result = tally("status", lake_uri)
    assert result.exit_code == 75
    message = " ".join(result.stderr.split())
    assert url in message
    assert "AWS_ENDPOINT_URL_S3" in message


def test_status_log_and_tables_work_on_s3(lake: SmallLake) -> None:
    for command in ("status", "log", "tables"):
        result = tally(command, lake.store.uri)
        assert result.exit_code == 0, result.stderr
        assert f"small at {lake.store.uri}, version 11" in result.stdout
