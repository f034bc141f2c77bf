"""The lake of a command, and the server on which it is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.small_lake import SmallLake
from tallystick import errors
from tallystick.cli import lake_argument
from tallystick_devstack.info import LAKE_BUCKET, StackInfo, supervisor_lock, write_stack
from unit.cli.invoke import LAKE, tally, tally_json


def test_without_a_lake_the_error_names_what_to_do() -> None:
    result = tally("status")
    assert result.exit_code == 77
    message = " ".join(result.stderr.split())
    assert "neither the argument nor TALLYSTICK_LAKE is set" in message
    assert 'eval "$(tally local env)"' in message


def test_the_environment_names_the_lake(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_LAKE", LAKE)
    assert tally_json("status")["lake"] == LAKE


def test_an_argument_wins_over_the_environment(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_LAKE", "memory://another")
    assert tally_json("status", LAKE)["lake"] == LAKE


def test_another_server_than_aws_is_named_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert lake_argument.open_lake("s3://lake/clicks").store.uri == "s3://lake/clicks"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2")
    lake_argument.open_lake("s3://lake/clicks")
    written = capsys.readouterr()
    assert written.err == (
        "Lake s3://lake/clicks at http://127.0.0.1:1.\nLake s3://lake/clicks at http://127.0.0.1:2.\n"
    )
    assert written.out == ""


def test_aws_is_used_unless_the_environment_names_a_server_even_if_a_stack_runs_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A user may have a bucket of that name: a command uses the stack only if the environment names it."""
    write_stack(
        StackInfo(
            state_dir=tmp_path,
            state="running",
            supervisor_pid=os.getpid(),
            parts={},
            variables={"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"},
        )
    )
    monkeypatch.setenv("TALLYSTICK_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in lake_argument.ENDPOINT_ENVS:
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with supervisor_lock(tmp_path):
        lake_argument.open_lake(f"s3://{LAKE_BUCKET}/flights")
    assert dict(os.environ) == before
    assert capsys.readouterr().err == ""


def test_with_json_standard_error_is_for_errors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_there(_: str, **__: Any) -> None:
        raise errors.SettingsError("It happened.", hint="do this.")

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setattr(lake_argument, "open_store", nothing_there)
    for words in (["status", "s3://lake/x", "--json"], ["sql", "x", "s3://lake/x", "-f", "json"]):
        assert json.loads(tally(*words).stderr)["error"]["kind"] == "settings"
