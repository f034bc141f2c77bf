"""Every command on a prefix where nothing has been planned yet, and on a lake whose root is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.small_lake import SmallLake
from tallystick.format import keys
from tallystick.store.open import open_store
from unit.cli.invoke import LAKE, tally

DAY = ("--from", "2013-01-01", "--to", "2013-01-02")
COMMANDS = {
    "status": ("status", LAKE),
    "status --ok": ("status", LAKE, "--ok"),
    "log": ("log", LAKE),
    "tables": ("tables", LAKE),
    "tables --as-of": ("tables", LAKE, "--as-of", "1"),
    "tables --files": ("tables", LAKE, "--files"),
    "sql": ("sql", "select 1", LAKE),
    "plan": ("plan", LAKE, *DAY),
    "release": ("release", LAKE, *DAY),
    "gc": ("gc", LAKE),
    "gc --delete": ("gc", LAKE, "--delete"),
    "show": ("show", "root.json", LAKE),
    "verify": ("verify", LAKE),
    "verify --deep": ("verify", LAKE, "--deep"),
    "publish": ("publish", LAKE, "--pipeline", str(Path(__file__))),
}


@pytest.mark.parametrize("argv", COMMANDS.values(), ids=COMMANDS)
def test_nothing_is_planned_yet_and_the_next_step_is_named(argv: tuple[str, ...]) -> None:
    result = tally(*argv)
    assert result.exit_code == 77
    assert result.stdout == ""
    message = " ".join(result.stderr.split())
    assert message.startswith(f"nothing_planned: nothing has been planned at {LAKE} yet. Next: ")
    assert "airflow dags unpause DAG" in message
    assert "restore" not in message
    assert [listed.key for listed in open_store(LAKE).list("")] == []


def test_as_json_it_is_an_error_with_its_kind() -> None:
    result = tally("status", LAKE, "--json")
    assert json.loads(result.stderr)["error"]["kind"] == "nothing_planned"


@pytest.mark.parametrize("argv", COMMANDS.values(), ids=COMMANDS)
def test_a_lake_without_its_root_has_vanished(lake: SmallLake, argv: tuple[str, ...]) -> None:
    lake.store.delete([keys.ROOT])
    before = lake.keys("")
    result = tally(*argv)
    assert result.exit_code == 77
    assert result.stderr.startswith("root_vanished: ")
    assert lake.keys("") == before
