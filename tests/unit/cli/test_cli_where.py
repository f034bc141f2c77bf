"""Which lake a command is about, and on which server it is read."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest

from small_lake import SmallLake
from tallystick import errors
from tallystick.cli import lake_argument as where
from unit.cli.asking import LAKE, ask, tally


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


@pytest.mark.parametrize("uri", ["s3://lake/flights/", "s3://lake/clicks", "s3://lake/a/b"])
def test_every_lake_of_the_stacks_bucket_is_read_there_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], uri: str
) -> None:
    used: list[Any] = []
    monkeypatch.setattr(where, "_running_stack", _running)
    monkeypatch.setattr(where, "_use", used.append)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert where.open_lake(uri).store.uri == uri.removesuffix("/")
    assert len(used) == 1
    said = capsys.readouterr()
    assert said.err == f"{uri} is read from the running local stack, not from AWS.\n"
    assert said.out == ""


def test_with_json_standard_error_is_for_errors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_there(_: str, **__: Any) -> None:
        raise errors.SettingsError("It happened.", next_step="do this.")

    monkeypatch.setattr(where, "_running_stack", _running)
    monkeypatch.setattr(where, "_use", lambda _: None)
    monkeypatch.setattr(where, "open_store", nothing_there)
    for words in (["status", "s3://lake/x", "--json"], ["sql", "x", "s3://lake/x", "-f", "json"]):
        assert json.loads(tally(*words).stderr)["error"]["kind"] == "settings"
