"""The output of `tally`: text for people, JSON for programs."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace

import pytest

from support.small_lake import TOPIC, SmallLake, days
from tallystick.cli import text
from unit.cli.invoke import LAKE, READ_COMMANDS, tally, tally_json, too_wide

# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("argv", READ_COMMANDS)
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


def test_status_shows_intervals_gaps_and_grants(lake: SmallLake) -> None:
    output = tally("status", LAKE).stdout
    assert f"small at {LAKE}, version 11" in output
    assert (
        "2013-01-02  01-03  committed    2        5  2 (28%)  scheduled__2013-01-02T00:00:00+00:00 (clear 1)\n"
        in output
    )
    assert "4 intervals committed: 15 records, 6 dead letters, 2 aborted, 2 control." in output
    assert "1 grant not committed yet:" in output
    assert "2013-01-06 to 2013-01-07: small / scheduled__2013-01-06T00:00:00+00:00" in output
    assert "1 gap:\n  2013-01-04 to 2013-01-05 (1 interval, 7 offsets)\n" in output


def test_the_command_of_a_gap_can_be_pasted_into_a_shell(lake: SmallLake) -> None:
    output = tally("status", LAKE).stdout
    command = output[output.index("airflow backfill") :].split("\n\n")[0]
    words = subprocess.run(
        ["sh", "-c", f"airflow() {{ printf '%s\\n' \"$@\"; }}\n{command}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert ["airflow", *words] == tally_json("status", LAKE)["gaps"][0]["command"]


def test_a_command_with_conf_is_quoted(lake: SmallLake) -> None:
    lake.run(days(4, 5), run="manual__x", **{"from": "2013-01-04", "to": "2013-01-04T06:00"})
    output = tally("status", LAKE).stdout
    command = output[output.index("airflow dags trigger") :].split("\n\n")[0]
    words = subprocess.run(
        ["sh", "-c", f"airflow() {{ printf '%s\\n' \"$@\"; }}\n{command}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert words[:3] == ["dags", "trigger", "small"]
    assert json.loads(words[4]) == {
        "from": "2013-01-04T06:00:00Z",
        "to": "2013-01-05T00:00:00Z",
    }


def test_status_shows_the_latest_intervals_and_counts_the_others(lake: SmallLake) -> None:
    output = tally("status", LAKE, "--limit", "2").stdout
    assert "2013-01-03  01-04  committed" not in output
    assert "3 earlier intervals not shown: --limit 0 shows all." in output


def test_status_shows_losses(lake: SmallLake) -> None:
    lake.log.expire(TOPIC, 0, before=9)
    lake.run(days(3, 4), run="manual__loss", accept_loss=True, mode="replace")
    output = tally("status", LAKE).stdout
    # The replacement was read from a log that lost one of the day's offsets since.
    assert "LOST: 1 offset, deleted before they were read; an operator accepted that:" in output
    assert "2013-01-03 to 2013-01-04: 1 of 7 offsets" in output
    (loss,) = tally_json("status", LAKE)["lost"]
    assert (loss["from"], loss["lost"], loss["offsets"]) == ("2013-01-03T00:00:00.000Z", 1, 7)


def test_status_shows_the_age_of_a_grant_and_the_command_that_releases_it(lake: SmallLake) -> None:
    """The lake's clock shows 2024, and this machine's clock a later time."""
    output = tally("status", LAKE).stdout
    assert re.search(r"generation 1, fills a gap, granted \d+ d ago", " ".join(output.split()))
    assert "STUCK? 1 grant a day old or more, or without a plan. If a run will never" in output
    command = output[output.index("tally release") :].split("\n\n")[0]
    words = subprocess.run(
        ["sh", "-c", f"tally() {{ printf '%s\\n' \"$@\"; }}\n{command}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    grant = tally_json("status", LAKE)["grants"][0]
    assert ["tally", *words] == grant["release"]
    assert (grant["planned_at"], grant["stuck"]) == ("2024-05-01T00:00:00.000Z", True)
    assert tally(*words).exit_code == 0
    assert tally_json("status", LAKE)["grants"] == []


@pytest.mark.parametrize("name", ["TALLYSTICK_AIRFLOW_URL", "AIRFLOW__API__BASE_URL"])
def test_a_grant_has_the_address_of_its_run_if_airflow_is_known(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "https://user:secret@airflow.example/base/")
    page = "airflow.example/base/dags/small/runs/scheduled__2013-01-06T00%3A00%3A00%2B00%3A00"
    output = tally("status", LAKE).stdout
    assert f"    https://***@{page}\n" in output
    assert "Look at the run in Airflow: if it failed, clear it;" in " ".join(output.split())
    assert "To see links here" not in output
    assert tally_json("status", LAKE)["grants"][0]["url"] == f"https://***@{page}"


def test_the_named_address_of_airflow_takes_precedence(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://other")
    monkeypatch.setenv("TALLYSTICK_AIRFLOW_URL", "http://named")
    assert tally_json("status", LAKE)["grants"][0]["url"].startswith("http://named/dags/")


@pytest.mark.parametrize("url", [None, "", "airflow:8080"])
def test_without_an_address_of_airflow_status_names_the_variable(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    if url is not None:
        monkeypatch.setenv("TALLYSTICK_AIRFLOW_URL", url)
    output = " ".join(tally("status", LAKE).stdout.split())
    assert "Look at the run in Airflow" in output
    assert "To see links here, set TALLYSTICK_AIRFLOW_URL to Airflow's address." in output
    assert tally_json("status", LAKE)["grants"][0]["url"] is None


def test_a_gap_without_a_schedule_is_described_by_its_offsets(lake: SmallLake) -> None:
    lake.store.delete(lake.keys(""))
    lake.run(days(1, 2), run="manual__1")
    lake.run(days(3, 4), run="manual__2")
    assert "1 gap:\n  2013-01-02 to 2013-01-03 (11 offsets)\n" in tally("status", LAKE).stdout


def test_a_gap_that_cuts_the_schedules_intervals_is_marked(lake: SmallLake) -> None:
    lake.run(days(4, 5), run="manual__x", **{"from": "2013-01-04", "to": "2013-01-04T06:00"})
    output = tally("status", LAKE).stdout
    assert "(2 offsets; not a whole number of the schedule's intervals)" in output


def test_status_shows_grants_that_ended_without_a_commit(lake: SmallLake) -> None:
    lake.run(days(1, 2), run="manual__1", mode="replace")
    lake.plan(days(1, 2), run="manual__2", mode="replace")
    assert tally("release", LAKE, "--from", "2013-01-01", "--to", "2013-01-02").exit_code == 0
    output = tally("status", LAKE).stdout
    assert (
        "Grants that ended without a commit (taken over, released, refused, or requested again):"
        in output
    )
    assert "2013-01-01 to 2013-01-02: 1, of small / manual__2" in output
    assert too_wide(output) == []
    assert tally_json("status", LAKE)["cancelled"] == [
        {
            "from": "2013-01-01T00:00:00.000Z",
            "to": "2013-01-02T00:00:00.000Z",
            "count": 1,
            "owners": [{"dag": "small", "run": "manual__2", "clear": 0}],
        }
    ]


def test_status_shows_replacements_that_hold_fewer_records(lake: SmallLake) -> None:
    topic = lake.log.topics[TOPIC]
    topic.compacted = True
    for partition in topic.partitions:
        partition.records[0] = replace(partition.records[0], kind="absent")
    lake.run(days(1, 2), run="manual__c", accept_compaction=True, mode="replace")
    output = tally("status", LAKE).stdout
    assert (
        "FEWER: replaced by fewer records and dead letters, and an operator accepted that:"
        in output
    )
    assert "2013-01-01 to 2013-01-02: 5 of 7 records and dead letters" in output
    (replacement,) = tally_json("status", LAKE)["fewer"]
    assert (replacement["before"], replacement["now"]) == (7, 5)


def test_log_shows_what_each_commit_replaced(lake: SmallLake) -> None:
    output = tally("log", LAKE).stdout
    assert "version 10   2024-05-01 00:00:00 UTC   tallystick 0.1.0" in output
    assert "  2013-01-02 to 2013-01-03   generation 2, replaces version 7" in output


def test_log_states_that_there_are_older_commits(lake: SmallLake) -> None:
    assert (
        "Older commits are not shown: --limit shows more." in tally("log", LAKE, "-n", "2").stdout
    )


def test_a_uri_is_never_cut_so_that_it_can_be_copied(lake: SmallLake) -> None:
    words = tally("tables", LAKE).stdout.split()
    assert {table["metadata"] for table in tally_json("tables", LAKE)["tables"]} <= set(words)


def test_verify_prints_one_line_per_check_and_the_verdict(lake: SmallLake) -> None:
    output = tally("verify", LAKE).stdout
    heads = [line.split()[:2] for line in output.splitlines() if line.startswith("ok")]
    assert [name for _, name in heads] == [
        *("chain", "tiling", "accounts", "objects", "tables", "columns", "lineage")
    ]
    assert (
        f"Proven: small at {LAKE}, version 11. Rows were not read; use --deep to read them."
        in output
    )


def test_verify_exits_with_1_and_prints_the_first_counter_example(lake: SmallLake) -> None:
    gone = lake.data_files("events")[0]
    lake.store.delete([gone])
    result = tally("verify", LAKE)
    assert result.exit_code == 1
    assert "FAIL  objects   1 counter-example, the first:" in result.stdout
    assert gone in result.stdout
    assert "expected  an object" in result.stdout
    assert "NOT PROVEN" in result.stdout
    assert "Counter-examples in: objects." in " ".join(result.stdout.split())


def test_control_characters_are_escaped() -> None:
    assert text.rows(["v"], [["a\x1b[2Jb\nc"]]).splitlines()[1] == "a\\x1b[2Jb\\nc"


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize("argv", READ_COMMANDS)
def test_every_answer_names_its_lake_and_version(lake: SmallLake, argv: list[str]) -> None:
    answer = tally_json(*argv, LAKE)
    assert (answer["lake"], answer["pipeline"], answer["version"]) == (LAKE, "small", 11)


def test_status_as_json(lake: SmallLake) -> None:
    answer = tally_json("status", LAKE)
    assert set(answer) == {
        *("lake", "pipeline", "version", "record", "topics", "from", "to", "every_s", "totals"),
        *("ok", "problems", "committed_at", "lag", "dead_share", "generations"),
        *(
            "intervals",
            "pending",
            "unregistered",
            "stale",
            "gaps",
            "grants",
            "cancelled",
            "lost",
            "fewer",
        ),
        "retention",
    }
    assert answer["intervals"][1] == {
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
    assert answer["intervals"][4]["totals"] is None
    assert answer["every_s"] == 86400


def test_log_as_json(lake: SmallLake) -> None:
    answer = tally_json("log", LAKE)
    newest = answer["commits"][0]
    assert newest["version"] == 10
    assert newest["intervals"][0]["replaces"] == answer["commits"][2]["record"]
    assert newest["intervals"][0]["files_dropped"] == {
        "dead_letters": 2,
        "events": 2,
        "per_kind": 1,
    }


def test_tables_as_json(lake: SmallLake) -> None:
    by_name = {table["name"]: table for table in tally_json("tables", LAKE)["tables"]}
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
    answer = json.loads(result.stdout)
    objects = next(check for check in answer["checks"] if check["name"] == "objects")
    assert (answer["proven"], objects["proven"], objects["problems"]) == (False, False, 6)
    assert {finding["where"] for finding in objects["findings"]} <= set(gone)
    assert set(objects["findings"][0]) == {"rule", "where", "message", "expected", "found"}
