"""`tally tables --files` and `--as-of` an instant, on a lake on a real S3 server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner, Result

from contract.conftest import BUCKET
from support.small_lake import SmallLake, days
from tallystick import read_snapshot
from tallystick.cli import app as cli
from tallystick.operations.status import read_log
from tallystick.runtime import system_runtime
from tallystick.store.s3 import S3Store

NO_GRACE = ("--reader-grace", "0s")


@pytest.fixture
def lake(on_ministack: str, lake_uri: str, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """Return a lake with three commits by the clock of this machine; the second day was replaced."""
    monkeypatch.delenv("TALLYSTICK_LAKE", raising=False)
    small = SmallLake(store=S3Store(lake_uri), runtime=system_runtime())
    small.run(days(1, 2))
    small.run(days(2, 3))
    small.job = b"version 2"
    small.run(days(2, 3), clear=1)
    return small


def tally(*argv: str) -> Result:
    result = CliRunner().invoke(cli.app, list(argv), prog_name="tally")
    assert result.exit_code == 0, result.stdout + result.stderr
    return result


def tally_json(*argv: str) -> Any:
    return json.loads(tally(*argv, "--json").stdout)


def objects_on_s3(lake: SmallLake) -> tuple[int, int]:
    """Return the number of objects below the lake's prefix and their bytes, as the server lists them."""
    prefix = lake.store.uri.removeprefix(f"s3://{BUCKET}/")
    found = list(boto3.resource("s3").Bucket(BUCKET).objects.filter(Prefix=f"{prefix}/"))
    return len(found), sum(one.size for one in found)


def groups(answer: Any) -> list[Any]:
    return [o for group in (answer, *answer["tables"]) for o in group["objects"]]


def sums(answer: Any, *rules: str) -> tuple[int, int]:
    """Return the objects and bytes that these rules keep; without any, those of all."""
    found = [o for o in groups(answer) if not rules or o["kept_by"] in rules]
    return sum(o["objects"] for o in found), sum(o["bytes"] for o in found)


def test_the_objects_are_those_that_the_server_lists(lake: SmallLake) -> None:
    answer = tally_json("tables", lake.store.uri, "--files")
    assert sums(answer) == objects_on_s3(lake)
    assert "\nkept by\n  current  " in tally("tables", lake.store.uri, "--files").stdout


def test_after_gc_everything_on_the_server_is_kept_by_a_rule(lake: SmallLake) -> None:
    before = tally_json("tables", lake.store.uri, "--files", *NO_GRACE)
    count, size_bytes = objects_on_s3(lake)
    tally("gc", lake.store.uri, "--delete", *NO_GRACE, "--cancel-after", "never")
    after = tally_json("tables", lake.store.uri, "--files", *NO_GRACE)
    # The swap of gc turns one more ledger page into garbage, in exchange for a new one.
    assert sums(after, "nothing") == (0, 0)
    assert count - objects_on_s3(lake)[0] == sums(before, "nothing")[0] > 0
    assert sums(after) == objects_on_s3(lake)
    for rule in ("current", "history", "always"):
        assert sums(after, rule)[0] == sums(before, rule)[0]
    assert objects_on_s3(lake)[1] < size_bytes


def test_sql_and_read_snapshot_at_an_instant_read_the_commit_before_it(lake: SmallLake) -> None:
    question = "select count(*) as n from events"
    commits = list(reversed(read_log(lake.lake, limit=None).commits))
    assert len({commit.committed_at for commit in commits}) == 3
    counted = []
    for commit in commits:
        instant = commit.committed_at + timedelta(microseconds=500)
        options = ("--as-of", instant.isoformat())
        rows = tally_json("sql", question, lake.store.uri, *options)["rows"]
        assert (
            rows
            == tally_json("sql", question, lake.store.uri, "--as-of", str(commit.version))["rows"]
        )
        counted += rows[0]
        snapshot = read_snapshot(lake.store.uri, as_of=instant)
        assert snapshot == read_snapshot(lake.store.uri, as_of=commit.version)
        assert snapshot.version == commit.version
    assert counted[0] < counted[1]
    newest = read_snapshot(lake.store.uri, as_of=datetime.now(UTC))
    assert newest.metadata == read_snapshot(lake.store.uri).metadata
