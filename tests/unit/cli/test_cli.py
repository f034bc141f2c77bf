"""The command line as a user and a program meet it: texts, JSON, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from small_lake import TOPIC, SmallLake, days, good_lake
from tallystick import errors
from tallystick.cli import app as cli
from tallystick.cli import report, stack, text, where
from tallystick.protocol import keys
from tallystick.store.memory import MemoryStore
from tallystick.store.open import open_store

WIDTH_MAX = 100
LAKE = "memory://cli-lake"
ANSWERS = (["status"], ["log"], ["tables"], ["verify"], ["verify", "--deep"])


@pytest.fixture(autouse=True)
def _no_lake_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in (
        "TALLYSTICK_LAKE",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL",
        "COLUMNS",
        "FORCE_COLOR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TALLYSTICK_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def lake() -> Iterator[SmallLake]:
    store = open_store(LAKE)
    assert isinstance(store, MemoryStore)
    store.delete([listed.key for listed in store.list("")])
    yield good_lake(store)
    store.delete([listed.key for listed in store.list("")])


def tally(*argv: str) -> Result:
    return CliRunner().invoke(cli.app, list(argv), prog_name="tally")


def ask(*argv: str) -> Any:
    result = tally(*argv, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def too_wide(told: str) -> list[str]:
    """Lines beyond the width; a key or URI that is longer by itself stays whole on a line of its own."""
    return [line for line in told.splitlines() if len(line) > WIDTH_MAX and " " in line.strip()]


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


def test_status_tells_intervals_holes_and_grants(lake: SmallLake) -> None:
    told = tally("status", LAKE).stdout
    assert f"small at {LAKE}, version 11" in told
    assert "2013-01-02  2013-01-03  committed    2        5     2       11" in told
    assert "4 intervals committed: 15 records, 6 dead letters, 2 aborted, 2 control." in told
    assert "1 grant not committed yet:" in told
    assert "2013-01-06 to 2013-01-07: small / scheduled__2013-01-06T00:00:00+00:00" in told
    assert "1 hole:\n  2013-01-04 to 2013-01-05 (1 interval)\n" in told


def test_a_told_command_can_be_pasted_into_a_shell(lake: SmallLake) -> None:
    told = tally("status", LAKE).stdout
    pasted = told[told.index("airflow backfill") :]
    words = subprocess.run(
        ["sh", "-c", f"airflow() {{ printf '%s\\n' \"$@\"; }}\n{pasted}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert ["airflow", *words] == ask("status", LAKE)["holes"][0]["command"]


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
        "from": "2013-01-04T06:00:00+00:00",
        "to": "2013-01-05T00:00:00+00:00",
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
    assert "LOST: 1 offset had expired, and an operator accepted that:" in told
    assert "2013-01-03 to 2013-01-04: 1 of 7 offsets" in told


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
        *("intervals", "holes", "grants"),
    }
    assert form["intervals"][1] == {
        "from": "2013-01-02T00:00:00.000Z",
        "to": "2013-01-03T00:00:00.000Z",
        "state": "committed",
        "generation": 2,
        "totals": {
            **{"records": 5, "dead": 2, "aborted": 2, "control": 2, "absent": 0, "lost": 0},
            "offsets": 11,
        },
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
    assert set(objects["findings"][0]) == {"rule", "where", "happened", "expected", "found"}


# ---------------------------------------------------------------- how it ends


class Boom(Exception):
    """Something that no command expects."""


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.NotYet, 75),
        (errors.StoreUnavailable, 75),
        (errors.OutcomeUnknown, 75),
        (errors.Superseded, 76),
        (errors.Corrupt, 77),
        (errors.RootVanished, 77),
        (errors.SettingsError, 77),
    ],
)
def test_an_error_ends_with_its_groups_code_and_no_trace(
    monkeypatch: pytest.MonkeyPatch, kind: type[errors.TallystickError], code: int
) -> None:
    def fail(_: str | None) -> None:
        raise kind("It happened: 1, not 2.", next_step="do this.")

    monkeypatch.setattr(cli, "_open", fail)
    result = tally("status")
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr == f"{kind.kind}: It happened: 1, not 2.\nNext: do this.\n"
    as_json = tally("status", "--json")
    assert as_json.exit_code == code
    assert json.loads(as_json.stderr) == {
        "error": {"kind": kind.kind, "happened": "It happened: 1, not 2.", "next_step": "do this."}
    }


def test_the_spark_entry_ends_with_the_same_codes() -> None:
    from tallystick.spark import outcome

    for kind in (errors.NotYet, errors.Superseded, errors.Corrupt):
        error = kind("a", next_step="b")
        assert report.exit_code(error) == outcome.exit_code(error)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "not canonical JSON"),
        (b'{"format":"tallystick.root/9"}', "another version of tallystick"),
    ],
)
@pytest.mark.parametrize("argv", [["status"], ["log"], ["tables"], ["verify"], ["sql", "select 1"]])
def test_a_root_that_cannot_be_read_is_refused_by_every_command(
    lake: SmallLake, argv: list[str], body: bytes, told: str
) -> None:
    lake.overwrite(keys.ROOT, body)
    result = tally(*argv, LAKE)
    assert result.exit_code == 77
    assert told in " ".join(result.stderr.split())
    assert lake.store.get(keys.ROOT).body == body  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "argv",
    [["nonsense"], ["status", "--nonsense"], ["status", "a", "b"], ["sql"], ["log", "-n", "0"]],
)
def test_wrong_usage_ends_with_2(argv: list[str]) -> None:
    result = tally(*argv)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_a_uri_that_is_none_is_refused() -> None:
    result = tally("status", "/tmp/lake")
    assert result.exit_code == 77
    assert "begins with neither s3:// nor memory://" in " ".join(result.stderr.split())


def test_ctrl_c_ends_with_130_and_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: str | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_open", interrupt)
    result = tally("status")
    assert (result.exit_code, "Traceback" in result.stderr) == (130, False)


def test_a_defect_keeps_its_trace_and_is_not_taken_for_a_counter_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(_: str | None) -> None:
        raise Boom("unexpected")

    monkeypatch.setattr(cli, "_open", explode)
    monkeypatch.setattr(sys, "argv", ["tally", "verify"])
    assert report.run() == 70
    assert "Boom: unexpected" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(cli, "out", closed)
    monkeypatch.setattr(report, "_silence_stdout", lambda: None)
    assert tally("log", LAKE).exit_code == 141


def test_row_demands_need_rows(lake: SmallLake) -> None:
    result = tally("verify", LAKE, "--every-record", "events")
    assert (result.exit_code, "add --deep" in result.stderr) == (77, True)


def test_version() -> None:
    assert tally("--version").stdout.startswith("tally 0.")


def test_the_commands_cost_no_heavy_import_until_they_run() -> None:
    code = """
        import sys
        from tallystick.cli import main
        sys.argv = ["tally", "--help"]
        try:
            main()
        except SystemExit as end:
            assert end.code == 0
        heavy = "pyarrow duckdb pyiceberg boto3 botocore airflow pyspark numba numpy kafka rich.table"
        print([name for name in heavy.split() if name in sys.modules])
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout.splitlines()[-1]


# ---------------------------------------------------------------- which lake


def test_no_lake_at_all_says_what_to_do() -> None:
    result = tally("status")
    assert result.exit_code == 77
    told = " ".join(result.stderr.split())
    assert "neither an argument nor TALLYSTICK_LAKE is given, and no local stack runs here" in told


def test_the_environment_names_the_lake(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_LAKE", LAKE)
    assert ask("status")["lake"] == LAKE


def test_an_argument_wins_over_the_environment(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_LAKE", "memory://another")
    assert ask("status", LAKE)["lake"] == LAKE


def _running(**variables: str) -> Any:
    return SimpleNamespace(variables=variables, running=True)


def test_the_running_local_stack_names_its_lake_and_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = _running(
        AWS_ENDPOINT_URL_S3="http://127.0.0.1:1",
        AWS_ACCESS_KEY_ID="local",
        AWS_SECRET_ACCESS_KEY="x",
        OTHER="x",
    )
    monkeypatch.setattr(where, "_running_stack", lambda: found)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("AWS_PROFILE", "production")
    opened = where.open_lake(None)
    assert opened.store.uri == "s3://lake/flights"
    assert os.environ["AWS_ENDPOINT_URL_S3"] == "http://127.0.0.1:1"
    assert "AWS_PROFILE" not in os.environ
    assert "OTHER" not in os.environ


def test_the_local_stacks_lake_by_name_is_read_on_the_local_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[Any] = []
    found = _running()
    monkeypatch.setattr(where, "_running_stack", lambda: found)
    monkeypatch.setattr(where, "_use", used.append)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    where.open_lake("s3://lake/flights")
    assert used == [found]


def test_another_lake_is_never_read_on_the_local_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Any] = []
    monkeypatch.setattr(where, "_running_stack", _running)
    monkeypatch.setattr(where, "_use", used.append)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    where.open_lake("s3://production/flights")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2")
    where.open_lake("s3://lake/flights")
    assert used == []


# ---------------------------------------------------------------- local


def test_local_without_its_parts_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tallystick.local.stack", None)
    # An earlier import leaves the module on its package, where `from ... import` would find it.
    monkeypatch.delattr("tallystick.local.stack", raising=False)
    result = tally("local", "status")
    assert result.exit_code == 77
    assert "pip install 'tallystick[local]'" in " ".join(result.stderr.split())


def test_local_status_and_down_where_nothing_ever_ran() -> None:
    assert "No stack was ever started in" in tally("local", "status").stdout
    assert "No stack runs in" in tally("local", "down").stdout
    assert ask("local", "down")["stopped"] is False
    assert ask("local", "status")["state"] == "never started"


def test_local_up_hands_on_what_was_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from tallystick.local.info import PartInfo, StackInfo

    (tmp_path / "dags").mkdir()
    part = PartInfo(
        name="s3", state="running", address="http://127.0.0.1:9", port=9, pids=(1,), log_paths=()
    )
    info = StackInfo(
        state_dir=tmp_path / ".tally",
        state="running",
        supervisor_pid=2,
        parts={"s3": part},
        variables={"AWS_SECRET_ACCESS_KEY": "hidden"},
        airflow_url="http://127.0.0.1:8",
        airflow_user="admin",
        airflow_password="hidden",
    )
    asked: dict[str, Any] = {}

    def up(state_dir: Any, **rest: Any) -> StackInfo:
        asked.update(rest, state_dir=state_dir)
        return info

    monkeypatch.setattr(
        stack, "stack_module", lambda: SimpleNamespace(up=up, status=lambda _: info)
    )
    state_dir = tmp_path / ".tally"
    result = tally("local", "up", "--state-dir", str(state_dir))
    assert (asked["state_dir"], asked["project_dir"], asked["foreground"]) == (
        state_dir,
        tmp_path,
        False,
    )
    assert "s3    running  http://127.0.0.1:9" in result.stdout
    for answer in (result, tally("local", "status", "--json")):
        assert answer.exit_code == 0
        assert "hidden" not in answer.stdout + answer.stderr
