"""--format of status, log, tables and sql: one place, the same values in each form."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import duckdb
import pytest

from support.small_lake import SmallLake
from tallystick.cli import sql, text
from tallystick.cli.forms import TEXT_ROWS_MAX, Form
from unit.cli.invoke import LAKE, tally, tally_json

COMMANDS = {"status": "intervals", "log": "commits", "tables": "tables"}


def rows_of(command: str, *options: str) -> list[dict[str, str]]:
    result = tally(command, LAKE, "--format", "csv", *options)
    assert result.exit_code == 0, result.stderr
    return list(csv.DictReader(io.StringIO(result.stdout)))


def vertical(output: str) -> list[dict[str, str]]:
    """Parse the vertical form: each row is a heading and a line per column."""
    rows: list[dict[str, str]] = []
    for line in output.splitlines():
        if line.startswith("-[ row "):
            rows.append({})
        else:
            name, _, value = line.partition(" |")
            rows[-1][name.strip()] = value.removeprefix(" ")
    return rows


@pytest.mark.parametrize("command", COMMANDS)
def test_vertical_and_csv_have_the_same_rows(lake: SmallLake, command: str) -> None:
    output = tally(command, LAKE, "--format", "vertical").stdout
    assert vertical(output) == rows_of(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_the_same_with_both_options(lake: SmallLake, command: str) -> None:
    both = json.loads(tally(command, LAKE, "-f", "json").stdout), tally_json(command, LAKE)
    for answer in both:
        for grant in answer.get("grants", ()):
            # By this machine's clock, of which the second command sees a later second.
            assert grant.pop("age_s") > 0
    assert both[0] == both[1]


def test_a_row_of_status_has_the_values_of_the_json(lake: SmallLake) -> None:
    row = rows_of("status")[1]
    found = tally_json("status", LAKE)["intervals"][1]
    assert (row["from"], row["to"], row["state"]) == (found["from"], found["to"], "committed")
    assert {name: int(row[name]) for name in found["totals"]} == found["totals"]
    assert (row["dag"], row["run"], row["clear"]) == (
        "small",
        "scheduled__2013-01-02T00:00:00+00:00",
        "1",
    )
    assert row["plan"] == found["plan"]


def test_what_is_not_committed_has_no_counts(lake: SmallLake) -> None:
    row = rows_of("status")[-1]
    assert (row["state"], row["records"], row["dead_share"]) == ("granted", "", "")


def test_a_row_of_the_log_is_an_interval_of_a_commit(lake: SmallLake) -> None:
    commits = tally_json("log", LAKE)["commits"]
    rows = rows_of("log")
    assert [row["version"] for row in rows] == [str(commit["version"]) for commit in commits]
    assert rows[0]["replaces"] == commits[2]["record"]


def test_a_row_of_the_tables_has_its_columns_and_partitioning(lake: SmallLake) -> None:
    (row,) = [row for row in rows_of("tables") if row["name"] == "per_kind"]
    assert (row["columns"], row["partition_by"]) == ("kind string?, n long", "")


@pytest.mark.parametrize(
    ("form", "shown"), [("table", 50), ("vertical", 50), ("csv", 60), ("json", 60)]
)
def test_without_limit_a_form_for_programs_has_all_intervals(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, form: str, shown: int
) -> None:
    _many_intervals(lake, monkeypatch, 60)
    output = tally("status", LAKE, "--format", form).stdout
    assert output.count("manual__") == shown


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize(("limit", "shown"), [("2", 2), ("0", 60), ("100", 60)])
def test_a_limit_holds_in_every_form(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, form: Form, limit: str, shown: int
) -> None:
    _many_intervals(lake, monkeypatch, 60)
    output = tally("status", LAKE, "--format", form, "-n", limit).stdout
    assert output.count("manual__") == shown


def _many_intervals(lake: SmallLake, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Replace the status by one with many intervals."""
    from dataclasses import replace
    from datetime import timedelta

    from tallystick.format.interval import Interval, Request
    from tallystick.operations import status

    answer = status.read_status(lake.lake)
    one = answer.intervals[0]
    intervals = tuple(
        replace(
            one,
            interval=Interval(
                start=one.interval.start + timedelta(days=n),
                end=one.interval.end + timedelta(days=n),
            ),
            owner=Request(dag="small", run=f"manual__{n}", clear=0),
        )
        for n in range(count)
    )
    many = replace(answer, intervals=intervals, grants=(), gaps=(), cancelled=())
    monkeypatch.setattr(status, "read_status", lambda _, *, newest: many)


@pytest.mark.parametrize(("limit", "shown"), [("2", 2), ("0", 5)])
def test_the_limit_of_the_log(lake: SmallLake, limit: str, shown: int) -> None:
    assert len(tally_json("log", LAKE, "--limit", limit)["commits"]) == shown


@pytest.mark.parametrize("command", ["status", "log", "tables", "sql"])
def test_contradicting_forms_are_refused(lake: SmallLake, command: str) -> None:
    words = [command, "select 1", LAKE] if command == "sql" else [command, LAKE]
    result = tally(*words, "--json", "--format", "csv")
    assert result.exit_code == 77
    assert "expected one form, found json and csv" in result.stderr


@pytest.mark.parametrize("command", ["status", "log", "tables", "sql"])
def test_every_form_is_in_the_help(command: str) -> None:
    words = " ".join(tally(command, "--help").stdout.split())
    assert "--format" in words
    assert all(form in words for form in Form)


# ---------------------------------------------------------------- values of rows


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (True, "true"),
        (b'{"a": "\xc3\xa9"}', '{"a": "é"}'),
        (b"\x00\xff\x10", "0x00ff10"),
        (bytearray(b"ab"), "ab"),
        (b"a\x1b[2J", "a\\x1b[2J"),
        ("two\nlines", "two\\nlines"),
        ([b"\xff", None, 1], '["0xff", null, 1]'),
        ({"key": b"v", "of": [True]}, '{"key": "v", "of": [true]}'),
    ],
)
def test_a_value_as_text(value: Any, shown: str) -> None:
    assert text.cell(value) == shown
    assert text.vertical(1, ["v"], [value]).splitlines()[1:] == [f"v | {shown}".rstrip()]
    assert text.rows(["v"], [[value]]).splitlines()[1:] == ([shown] if shown else [])


@pytest.fixture
def rows(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the views on S3 by tables in DuckDB."""

    def connect(*_: object) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:")
        connection.execute("create table events as select 1 as n, 'a' as kind")
        return connection

    monkeypatch.setattr(sql, "connect", connect)


@pytest.mark.usefixtures("rows")
def test_sql_vertical_has_a_line_per_column_and_a_long_value_stays_on_its_line() -> None:
    value = "x" * 300
    result = tally(
        "sql", f"select 'a' as short, '{value}' as a_longer_name", LAKE, "-f", "vertical"
    )
    assert result.stdout.splitlines() == [
        "-[ row 1 ]------",
        "short         | a",
        f"a_longer_name | {value}",
    ]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("form", ["table", "vertical"])
def test_text_has_a_thousand_rows_and_counts_the_others(form: str) -> None:
    result = tally("sql", "from range(2500) t(n)", LAKE, "--format", form)
    assert "1,500 rows more not shown: --format csv writes all.\n" in result.stdout
    assert result.stdout.count("\n") == TEXT_ROWS_MAX * (1 if form == "table" else 2) + (
        2 if form == "table" else 1
    )
    complete = tally("sql", "from range(2500) t(n)", LAKE, "--format", "csv").stdout
    assert complete.splitlines() == ["n", *map(str, range(2500))]


@pytest.mark.usefixtures("rows")
def test_no_rows_are_no_rows_in_every_form() -> None:
    found = {
        form: tally("sql", "from events where n > 1", LAKE, "-f", form).stdout for form in Form
    }
    assert found == {
        Form.TABLE: "n  kind\n",
        Form.VERTICAL: "No rows.\n",
        Form.JSON: '{"columns": ["n", "kind"], "rows": []}\n',
        Form.CSV: "n,kind\n",
    }


@pytest.mark.usefixtures("rows")
def test_a_row_that_does_not_fit_names_the_form_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    hint = "Cells are folded: --format vertical has a line per column."
    wide = f"select '{'x' * 80}' as a, '{'y' * 80}' as b"
    assert hint in tally("sql", wide, LAKE).stderr
    assert hint not in tally("sql", "from events", LAKE).stderr
    assert hint not in tally("sql", wide, LAKE, "--json").stderr


@pytest.mark.usefixtures("rows")
def test_bytes_in_csv_are_base64_and_escape_sequences_are_kept() -> None:
    result = tally("sql", r"select 'ab'::blob as b, chr(27) || '[1m' as e", LAKE, "-f", "csv")
    assert result.stdout == "b,e\nYWI=,\x1b[1m\n"


# ---------------------------------------------------------------- DuckDB's messages


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("statement", "lines"),
    [
        (
            "select * from event",
            [
                "invalid_request: DuckDB refused the statement:",
                "Catalog Error: Table with name event does not exist!",
                'Did you mean "events"?',
                "LINE 1: select * from event",
                "                      ^",
                "Next: correct the statement. The tables of this lake are: dead_letters, events, per_kind.",
            ],
        ),
        (
            "select nn from events",
            [
                "invalid_request: DuckDB refused the statement:",
                'Binder Error: Referenced column "nn" not found in FROM clause!',
                'Candidate bindings: "n", "kind"',
                "LINE 1: select nn from events",
                "               ^",
                "Next: correct the statement.",
            ],
        ),
        (
            "select * form events",
            [
                "invalid_request: DuckDB cannot parse the statement:",
                'Parser Error: syntax error at or near "events"',
                "LINE 1: select * form events",
                "                      ^",
                "Next: correct the statement.",
            ],
        ),
    ],
)
def test_a_refused_statement_shows_the_whole_message(statement: str, lines: list[str]) -> None:
    result = tally("sql", statement, LAKE)
    assert result.exit_code == 77
    assert result.stderr.splitlines() == lines
    error = json.loads(tally("sql", statement, LAKE, "--json").stderr)["error"]
    assert error["message"].splitlines() == [
        lines[0].removeprefix("invalid_request: "),
        *lines[1:-1],
    ]
