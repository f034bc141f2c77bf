"""`tally sql` ends a query that would run for ever, and a query that needs too much memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import duckdb
import pytest

from support.small_lake import SmallLake, days, fill, pipeline
from tallystick.cli import forms, sql
from tallystick.cli.forms import Form
from tallystick.errors import InvalidRequest
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.store.open import open_store
from unit.cli.invoke import LAKE, tally

ENDLESS = {
    "while it is computed": "select count(*) from range(1000000000000)",
    "while its rows are read": "select * from range(1000000000000)",
    "in a join": "select count(*) from range(10000000) a, range(10000000) b",
}
LIMIT = timedelta(milliseconds=200)


@pytest.fixture
def empty() -> SmallLake:
    """Return a lake before its first commit: DuckDB has nothing to read on S3."""
    store = open_store(LAKE)
    store.delete([listed.key for listed in store.list("")])
    lake = SmallLake(store)
    fill(lake.log)
    lake.plan(days(1, 2))
    return lake


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("query", ENDLESS.values(), ids=ENDLESS)
def test_an_endless_query_is_interrupted(empty: SmallLake, query: str, form: Form) -> None:
    with pytest.raises(InvalidRequest) as ended:
        sql.answer(empty.lake, query, form=form, timeout=LIMIT)
    assert "took longer than" in ended.value.message
    assert "--timeout" in ended.value.hint


@pytest.mark.parametrize(
    "outcome",
    [
        duckdb.InterruptException("INTERRUPT Error: Interrupted!"),
        duckdb.InvalidInputException("closed pending query result"),
        None,
    ],
    ids=["interrupted", "the stream is closed", "the query returns as if it had ended"],
)
def test_an_interrupted_query_took_too_long_in_each_way_that_duckdb_ends_it(
    outcome: duckdb.Error | None,
) -> None:
    """DuckDB 1.5.5 closed the stream of about every sixth of 12,000 interrupted queries."""
    interrupted = threading.Event()

    def work() -> None:
        assert interrupted.wait(60)
        if outcome is not None:
            raise outcome

    with pytest.raises(InvalidRequest, match="took longer than"):
        _within_limit(work, interrupted.set, LIMIT)


def test_an_error_within_the_time_is_raised_as_it_is() -> None:
    def work() -> None:
        raise duckdb.InvalidInputException("an error of its own")

    with pytest.raises(duckdb.InvalidInputException, match="of its own"):
        _within_limit(work, lambda: None, timedelta(hours=1))


def _within_limit(
    work: Callable[[], None], interrupt: Callable[[], None], timeout: timedelta
) -> None:
    connection = cast("duckdb.DuckDBPyConnection", SimpleNamespace(interrupt=interrupt))
    with sql._Limit(connection, timeout).working():
        work()


def test_the_command_exits_with_77_and_the_error_as_json(empty: SmallLake) -> None:
    result = tally("sql", ENDLESS["in a join"], LAKE, "--timeout", "1s", "--json")
    assert result.exit_code == 77
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error["kind"] == "invalid_request"
    assert error["message"] == "the statement took longer than 1 second, and was cancelled."


@pytest.mark.parametrize("timeout", ["never", "1s", "5m", "99999d"])
def test_a_query_within_its_limit_is_answered(empty: SmallLake, timeout: str) -> None:
    result = tally("sql", "select 42 n", LAKE, "--timeout", timeout, "--json")
    assert json.loads(result.stdout) == {"columns": ["n"], "rows": [[42]]}


@pytest.mark.parametrize("timeout", ["0s", "5", "-1s", "soon"])
def test_an_invalid_timeout_is_refused(empty: SmallLake, timeout: str) -> None:
    result = tally("sql", "select 42", LAKE, "--timeout", timeout)
    assert result.exit_code == 77
    assert result.stderr.startswith("invalid_request: --timeout")


def test_a_slow_reader_uses_up_nothing_of_the_limit(
    empty: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pager may remain open for an hour: the limit is for DuckDB's work."""
    clock = [0.0]
    monkeypatch.setattr(sql, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    seen: list[str] = []

    def read_slowly(text: str) -> None:
        seen.append(text)
        clock[0] += 3600

    monkeypatch.setattr(forms, "out", read_slowly)
    sql.answer(empty.lake, "from range(5000)", form=Form.CSV, timeout=timedelta(minutes=5))
    assert len(seen) == 3


def test_a_query_that_needs_too_much_memory_is_refused(
    empty: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small() -> duckdb.DuckDBPyConnection:
        return duckdb.connect(":memory:", config={"memory_limit": "1MB", "temp_directory": ""})

    monkeypatch.setattr(sql, "_nothing_to_read", small)
    query = "select max(a) from (from range(5000000) t(a) order by hash(a))"
    with pytest.raises(InvalidRequest, match="needs more memory than DuckDB may use") as refused:
        sql.answer(empty.lake, query, form=Form.TABLE, timeout=None)
    assert "80 %" in refused.value.hint


def test_a_table_without_a_commit_has_its_columns_with_nested_types(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = open_store(LAKE)
    store.delete([listed.key for listed in store.list("")])
    nested = "struct<os: string, ids: list<optional uuid>>"
    columns = [
        Column("device", nested),
        Column("counts", "map<string, decimal(9,2)>"),
        Column("clock", "time"),
        Column("digest", "fixed[2]"),
    ]

    def declared(warehouse: str) -> Pipeline:
        return replace(pipeline(warehouse), tables=[Table("events", columns=columns)])

    lake = SmallLake(store, declared=declared)
    fill(lake.log)
    lake.plan(days(1, 2))
    statement = "select device.ids, counts['a'] as a, clock, digest from events"
    sql.answer(lake.lake, statement, form=Form.JSON, timeout=None)
    found = json.loads(capsys.readouterr().out)
    assert found == {"columns": ["ids", "a", "clock", "digest"], "rows": []}
