"""The end of a command: exit codes, errors, interrupts."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

import duckdb
import pytest

from support.small_lake import SmallLake
from tallystick import errors
from tallystick.cli import app as cli
from tallystick.cli import errors as report
from tallystick.cli import forms, sql
from tallystick.cli import run as cli_run
from tallystick.cli.forms import Form
from tallystick.format import keys
from unit.cli.invoke import LAKE, tally


class BoomError(Exception):
    """An error that no command expects."""


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
def test_an_error_exits_with_its_groups_code_and_no_trace(
    monkeypatch: pytest.MonkeyPatch, kind: type[errors.TallystickError], code: int
) -> None:
    def fail(_: str | None) -> None:
        raise kind("It happened: 1, not 2.", hint="do this.")

    monkeypatch.setattr(cli, "_open", fail)
    result = tally("status")
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr == f"{kind.kind}: It happened: 1, not 2.\nNext: do this.\n"
    as_json = tally("status", "--json")
    assert as_json.exit_code == code
    assert json.loads(as_json.stderr) == {
        "error": {"kind": kind.kind, "message": "It happened: 1, not 2.", "hint": "do this."}
    }


def test_the_spark_entry_exits_with_the_same_codes() -> None:
    from tallystick.spark import outcome

    for kind in (errors.NotYet, errors.Superseded, errors.Corrupt):
        error = kind("a", hint="b")
        assert report.exit_code(error) == outcome.exit_code(error)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "expected canonical JSON"),
        (b'{"format":"tallystick.root/9"}', "another version of tallystick"),
    ],
)
@pytest.mark.parametrize("argv", [["status"], ["log"], ["tables"], ["verify"], ["sql", "select 1"]])
def test_a_root_that_cannot_be_read_is_refused_by_every_command(
    lake: SmallLake, argv: list[str], body: bytes, message: str
) -> None:
    lake.overwrite(keys.ROOT, body)
    result = tally(*argv, LAKE)
    assert result.exit_code == 77
    assert message in " ".join(result.stderr.split())
    assert lake.store.get(keys.ROOT).body == body  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["status", "--nonsense"],
        ["status", "a", "b"],
        ["sql"],
        ["log", "-n", "-1"],
        ["sql", "select 1", "--format", "xml"],
    ],
)
def test_wrong_usage_exits_with_2(argv: list[str]) -> None:
    result = tally(*argv)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_an_invalid_uri_is_refused() -> None:
    result = tally("status", "/tmp/lake")
    assert result.exit_code == 77
    assert "begins with neither s3:// nor memory://" in " ".join(result.stderr.split())


def test_ctrl_c_exits_with_130_and_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: str | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_open", interrupt)
    result = tally("status")
    assert (result.exit_code, "Traceback" in result.stderr) == (130, False)


def test_a_defect_prints_its_trace_and_is_no_counter_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(_: str | None) -> None:
        raise BoomError("unexpected")

    monkeypatch.setattr(cli, "_open", explode)
    monkeypatch.setattr(sys, "argv", ["tally", "verify"])
    assert cli_run() == 70
    assert "BoomError: unexpected" in capsys.readouterr().err


def test_a_closed_pipe_is_no_error(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(forms, "out", closed)
    monkeypatch.setattr(report, "_silence_stdout", lambda: None)
    assert tally("log", LAKE).exit_code == 141


def test_every_record_needs_deep(lake: SmallLake) -> None:
    result = tally("verify", LAKE, "--every-record", "events")
    assert (result.exit_code, "add --deep" in result.stderr) == (77, True)


def test_version() -> None:
    assert tally("--version").stdout.startswith("tally 0.")


def test_the_commands_import_nothing_heavy_until_they_run() -> None:
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


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, errors.Corrupt),
        (401, errors.SettingsError),
        (403, errors.SettingsError),
        (503, errors.StoreUnavailable),
    ],
)
def test_unreadable_rows_raise_the_kind_that_fits_the_servers_answer(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, status: int, kind: type[Exception]
) -> None:
    refused = duckdb.HTTPException(f"HTTP code {status}")
    refused.status_code = status

    class Reading:
        def execute(self, _: str) -> None:
            raise refused

        def close(self) -> None:
            """Do nothing: nothing is open."""

    monkeypatch.setattr(sql, "connect", lambda *_: Reading())
    monkeypatch.setattr("tallystick.tables.sql.reading_only", lambda _, question: question)
    with pytest.raises(kind, match=rf"could not read the tables at AWS \(HTTP code {status}"):
        sql.answer(lake.lake, "select 1", form=Form.TABLE)
