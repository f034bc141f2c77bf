"""What `tally` answers, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace

import pytest

from support.small_lake import TOPIC, SmallLake, days
from tallystick.cli import text
from unit.cli.asking import ANSWERS, LAKE, ask, tally, too_wide

# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("argv", ANSWERS)
def test_texts_fit_their_columns(lake: SmallLake, argv: list[str]) -> None:
    result = tally(*argv, LAKE)
    assert result.exit_code == 0, result.stderr
    assert too_wide(result.stdout) == []


@pytest.mark.parametrize(
    "argv", [["--help"], *([*a, "--help"] for a in (["sql"], ["status"], ["verify"]))]
)
def test_help_fits_its_columns_and_shows_no_markup(argv: list[str]) -> None:
    result = tally(*argv)
    assert result.exit_code == 0
    assert too_wide(result.stdout) == []


def test_status_tells_intervals_gaps_and_grants(lake: SmallLake) -> None:
    told = tally("status", LAKE).stdout
    assert f"small at {LAKE}, version 11" in told
    assert "2013-01-02  2013-01-03  committed    2        5  2 (28%)       11" in told
    assert "4 intervals committed: 15 records, 6 dead letters, 2 aborted, 2 control." in told
    assert "1 grant not committed yet:" in told
    assert "2013-01-06 to 2013-01-07: small / scheduled__2013-01-06T00:00:00+00:00" in told
    assert "1 gap:\n  2013-01-04 to 2013-01-05 (1 interval)\n" in told


def test_a_told_command_can_be_pasted_into_a_shell(lake: SmallLake) -> None:
    told = tally("status", LAKE).stdout
    pasted = told[told.index("airflow backfill") :]
    words = subprocess.run(
        ["sh", "-c", f"airflow() {{ printf '%s\\n' \"$@\"; }}\n{pasted}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert ["airflow", *words] == ask("status", LAKE)["gaps"][0]["command"]


def test_a_command_with_conf_is_quoted(lake: SmallLake) -> None:
    lake.run(days(4, 5), run="manual__x", **{"from": "2013-01-04", "to": "2013-01-04T06:00"})
    told = tally("status", LAKE).stdout
    pasted = told[told.index("airflow dags trigger") :]
    words = subprocess.run(
        ["sh", "-c", f"airflow() {{ printf '%s\\n' \"$@\"; }}\n{pasted}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert words[:3] == ["dags", "trigger", "small"]
    assert json.loads(words[4]) == {
        "from": "2013-01-04T06:00:00Z",
        "to": "2013-01-05T00:00:00Z",
    }


def test_status_shows_the_latest_intervals_and_says_what_it_left_out(lake: SmallLake) -> None:
    told = tally("status", LAKE, "--last", "2").stdout
    assert "2013-01-03  2013-01-04  committed" not in told
    assert "3 earlier intervals not shown: --last 0 shows all." in told


def test_status_tells_losses(lake: SmallLake) -> None:
    lake.log.expire(TOPIC, 0, before=9)
    lake.run(days(3, 4), run="manual__loss", accept_loss=True, mode="replace")
    told = tally("status", LAKE).stdout
    # Replaced in a log that lost one of the day's offsets since.
    assert "LOST: 1 offset, gone before they were read; an operator accepted that:" in told
    assert "2013-01-03 to 2013-01-04: 1 of 7 offsets" in told
    (one,) = ask("status", LAKE)["lost"]
    assert (one["from"], one["lost"], one["offsets"]) == ("2013-01-03T00:00:00.000Z", 1, 7)


def test_status_tells_how_old_a_grant_is_and_how_to_end_it(lake: SmallLake) -> None:
    """The lake's clock stands in 2024, and this machine's is later."""
    told = tally("status", LAKE).stdout
    assert re.search(r"generation 1, fills a gap, granted \d+ d ago", " ".join(told.split()))
    assert (
        "STUCK? 1 grant a day old or more, or without a plan. End one whose run will never" in told
    )
    pasted = told[told.index("tally release") :].split("\n\n")[0]
    words = subprocess.run(
        ["sh", "-c", f"tally() {{ printf '%s\\n' \"$@\"; }}\n{pasted}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    form = ask("status", LAKE)["grants"][0]
    assert ["tally", *words] == form["release"]
    assert (form["planned_at"], form["stuck"]) == ("2024-05-01T00:00:00.000Z", True)
    assert tally(*words).exit_code == 0
    assert ask("status", LAKE)["grants"] == []


def test_status_tells_grants_that_ended_without_a_commit(lake: SmallLake) -> None:
    lake.run(days(1, 2), run="manual__1", mode="replace")
    lake.plan(days(1, 2), run="manual__2", mode="replace")
    assert tally("release", LAKE, "--from", "2013-01-01", "--to", "2013-01-02").exit_code == 0
    told = tally("status", LAKE).stdout
    assert (
        "Grants that ended without a commit (taken over, released, refused, or wished anew):"
        in told
    )
    assert "2013-01-01 to 2013-01-02: 1, of small / manual__2" in told
    assert too_wide(told) == []
    assert ask("status", LAKE)["cancelled"] == [
        {
            "from": "2013-01-01T00:00:00.000Z",
            "to": "2013-01-02T00:00:00.000Z",
            "count": 1,
            "owners": [{"dag": "small", "run": "manual__2", "clear": 0}],
        }
    ]


def test_status_tells_replacements_that_hold_fewer_records(lake: SmallLake) -> None:
    topic = lake.log.topics[TOPIC]
    topic.compacted = True
    for partition in topic.partitions:
        partition.records[0] = replace(partition.records[0], kind="absent")
    lake.run(days(1, 2), run="manual__c", accept_compaction=True, mode="replace")
    told = tally("status", LAKE).stdout
    assert "FEWER: replaced by less than was there, and an operator accepted that:" in told
    assert "2013-01-01 to 2013-01-02: 5 of 7 records and dead letters" in told
    (one,) = ask("status", LAKE)["fewer"]
    assert (one["before"], one["now"]) == (7, 5)


def test_log_tells_what_replaced_what(lake: SmallLake) -> None:
    told = tally("log", LAKE).stdout
    assert "version 10   2024-05-01 00:00:00 UTC   tallystick 0.1.0" in told
    assert "  2013-01-02 to 2013-01-03   generation 2, replaces version 7" in told


def test_log_says_that_there_is_more(lake: SmallLake) -> None:
    assert (
        "Older commits are not shown: --limit shows more." in tally("log", LAKE, "-n", "2").stdout
    )


def test_a_uri_is_never_cut_so_that_it_can_be_copied(lake: SmallLake) -> None:
    words = tally("tables", LAKE).stdout.split()
    assert {table["metadata"] for table in ask("tables", LAKE)["tables"]} <= set(words)


def test_verify_tells_one_line_per_check_and_the_verdict(lake: SmallLake) -> None:
    told = tally("verify", LAKE).stdout
    heads = [line.split()[:2] for line in told.splitlines() if line.startswith("ok")]
    assert [name for _, name in heads] == [
        *("chain", "tiling", "accounts", "objects", "tables", "columns", "lineage")
    ]
    assert f"Proven: small at {LAKE}, version 11. Rows were not read: --deep does." in told


def test_verify_ends_with_1_and_tells_the_first_counter_example(lake: SmallLake) -> None:
    gone = lake.data_files("events")[0]
    lake.store.delete([gone])
    result = tally("verify", LAKE)
    assert result.exit_code == 1
    assert "FAIL  objects   1 counter-example, the first:" in result.stdout
    assert gone in result.stdout
    assert "expected  an object" in result.stdout
    assert "NOT PROVEN" in result.stdout
    assert "Counter-examples in: objects." in " ".join(result.stdout.split())


def test_what_could_move_the_cursor_is_spelt_out() -> None:
    assert text.rows(["v"], [["a\x1b[2Jb\nc"]]).splitlines()[1] == "a\\x1b[2Jb\\nc"


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize("argv", ANSWERS)
def test_every_answer_names_its_lake_and_version(lake: SmallLake, argv: list[str]) -> None:
    form = ask(*argv, LAKE)
    assert (form["lake"], form["pipeline"], form["version"]) == (LAKE, "small", 11)


def test_status_as_json(lake: SmallLake) -> None:
    form = ask("status", LAKE)
    assert set(form) == {
        *("lake", "pipeline", "version", "record", "topics", "from", "to", "every_s", "totals"),
        *("ok", "problems", "committed_at", "lag", "dead_share", "generations"),
        *("intervals", "pending", "stale", "gaps", "grants", "cancelled", "lost", "fewer"),
    }
    assert form["intervals"][1] == {
        "from": "2013-01-02T00:00:00.000Z",
        "to": "2013-01-03T00:00:00.000Z",
        "state": "committed",
        "generation": 2,
        "totals": {
            **{"records": 5, "dead_letters": 2, "aborted": 2, "control": 2, "absent": 0, "lost": 0},
            "offsets": 11,
        },
        "dead_share": 2 / 7,
        "owner": {"dag": "small", "run": "scheduled__2013-01-02T00:00:00+00:00", "clear": 1},
        "plan": lake.keys(f"plans/{days(2, 3).part}/")[1],
    }
    assert form["intervals"][4]["totals"] is None
    assert form["every_s"] == 86400


def test_log_as_json(lake: SmallLake) -> None:
    form = ask("log", LAKE)
    newest = form["commits"][0]
    assert newest["version"] == 10
    assert newest["intervals"][0]["replaces"] == form["commits"][2]["record"]
    assert newest["intervals"][0]["files_dropped"] == {
        "dead_letters": 2,
        "events": 2,
        "per_kind": 1,
    }


def test_tables_as_json(lake: SmallLake) -> None:
    by_name = {table["name"]: table for table in ask("tables", LAKE)["tables"]}
    assert by_name["per_kind"]["columns"] == [
        {"id": 1, "name": "kind", "type": "string", "required": False},
        {"id": 2, "name": "n", "type": "long", "required": True},
    ]
    assert (by_name["events"]["rows"], by_name["events"]["files"]) == (15, 6)


def test_verify_as_json_lists_every_counter_example(lake: SmallLake) -> None:
    gone = lake.data_files("events")
    lake.store.delete(gone)
    result = tally("verify", LAKE, "--json")
    assert result.exit_code == 1
    form = json.loads(result.stdout)
    objects = next(check for check in form["checks"] if check["name"] == "objects")
    assert (form["proven"], objects["proven"], objects["problems"]) == (False, False, 6)
    assert {finding["where"] for finding in objects["findings"]} <= set(gone)
    assert set(objects["findings"][0]) == {"rule", "where", "message", "expected", "found"}
