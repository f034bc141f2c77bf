"""`tally dead-letters`: a table of kinds, samples as text, and a command that replaces the intervals."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shlex

import pytest

from support.small_lake import SmallLake, day, days
from tallystick.cli.dead_letters import _sample
from tallystick.operations.dead_letters import DeadLetter
from unit.cli.invoke import LAKE, tally, tally_json, too_wide


def test_kinds_are_counted_with_a_sample_and_the_command(lake: SmallLake) -> None:
    output = tally("dead-letters", LAKE).stdout
    assert "6 dead letters among 21 records, in 3 of 4 committed intervals." in output
    assert "json  -          6          3  2013-01-01  2013-01-04" in output
    assert "events[0] offset 2, 2013-01-01 09:00\n  reason  json: not JSON" in output
    assert "  key     null\n  value   {\n" in output
    command = next(line for line in output.splitlines() if "airflow dags trigger" in line)
    assert json.loads(shlex.split(command)[-1]) == {"mode": "dead_letters"}
    assert too_wide(output) == []


def test_a_choice_limits_the_command_to_the_time_of_what_it_found(lake: SmallLake) -> None:
    output = tally("dead-letters", LAKE, "--kind", "json", "--limit", "0").stdout
    assert "Intervals with them:\n  2013-01-01 to 2013-01-02: 2\n" in output
    assert "reason" not in output
    found = tally_json(
        "dead-letters", LAKE, "--kind", "json", "--from", "2013-01-02", "--to", "2013-01-03"
    )
    assert (found["count"], found["records"], found["intervals"]) == (2, 7, 1)
    conf = json.loads(found["command"][-1])
    assert conf == {
        "mode": "dead_letters",
        "from": "2013-01-02T00:00:00Z",
        "to": "2013-01-03T00:00:00Z",
    }
    [kind] = found["kinds"]
    assert base64.b64decode(kind["samples"][0]["value"]) == b"{"


def test_without_dead_letters_no_command_is_shown(lake: SmallLake) -> None:
    output = tally("dead-letters", LAKE, "--kind", "type").stdout
    assert (
        "\n0 dead letters of kind type among 21 records, in 0 of 4 committed intervals.\n" in output
    )
    assert "airflow" not in output
    assert tally_json("dead-letters", LAKE, "--kind", "type")["command"] == []


def test_vertical_and_csv_have_a_row_per_kind(lake: SmallLake) -> None:
    vertical = tally("dead-letters", LAKE, "--format", "vertical").stdout
    assert re.search(r"^kind +\| json$", vertical, re.MULTILINE)
    assert re.search(r"^value +\| \{$", vertical, re.MULTILINE)
    [row] = csv.DictReader(io.StringIO(tally("dead-letters", LAKE, "-f", "csv").stdout))
    assert (row["kind"], row["count"], row["from"]) == ("json", "6", "2013-01-01T00:00:00.000Z")
    assert base64.b64decode(row["value"]) == b"{"


def test_one_date_alone_is_refused(lake: SmallLake) -> None:
    result = tally("dead-letters", LAKE, "--from", "2013-01-02")
    assert result.exit_code == 77
    assert "'from' is set without 'to'" in result.stderr


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ["  value   null"]),
        (b"", ["  value"]),
        ("Zürich \x1b[2J".encode(), ["  value   Zürich \\x1b[2J"]),
        (b"\x00\x00\x00\x00\x07\xff", ["  value   0x0000000007ff"]),
        (
            b"x" * 500,
            [
                "  value   " + "x" * 90,
                *["          " + "x" * 90] * 3,
                "          " + "x" * 40 + "... (500 characters; --json has all)",
            ],
        ),
    ],
)
def test_values_are_shown_as_text_in_lines_that_fit(value: bytes | None, shown: list[str]) -> None:
    letter = DeadLetter(
        interval=days(1, 2),
        topic="t",
        partition=0,
        offset=7,
        at=day(1),
        key=b"k",
        value=value,
        headers=None,
        reason="json: -",
    )
    lines = _sample(letter).splitlines()[3:]
    assert lines == shown
    assert max(map(len, lines)) <= 100
