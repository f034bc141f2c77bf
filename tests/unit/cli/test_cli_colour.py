"""Colours: on a terminal or when they are forced, never in JSON or CSV; the words are the same with and without them."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tallystick
from support.small_lake import SmallLake, days
from tallystick.cli import colour
from unit.cli.invoke import LAKE, tally

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
GREEN, YELLOW, RED = "\x1b[32m", "\x1b[33m", "\x1b[1;31m"


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")


@pytest.mark.usefixtures("forced")
def test_states_gaps_and_verdicts_have_colours(lake: SmallLake) -> None:
    output = tally("status", LAKE, "--ok").stdout
    for painted in (
        f"{GREEN}committed",
        f"{YELLOW}granted",
        f"{RED}1 gap:",
        f"{YELLOW}STUCK?",
        f"{RED}NOT OK",
    ):
        assert painted in output
    lake.plan(days(1, 2), run="manual__r", mode="replace")
    assert f"{YELLOW}replacing" in tally("status", LAKE).stdout


@pytest.mark.usefixtures("forced")
def test_ok_and_fail_have_colours(lake: SmallLake) -> None:
    assert f"{GREEN}ok\x1b[0m    chain" in tally("verify", LAKE).stdout
    lake.store.delete([lake.data_files("events")[0]])
    output = tally("verify", LAKE).stdout
    assert f"{RED}FAIL\x1b[0m  objects" in output
    assert f"{RED}NOT PROVEN\x1b[0m: " in output


@pytest.mark.usefixtures("forced")
def test_an_error_has_a_colour_on_its_kind(lake: SmallLake) -> None:
    assert tally("log", LAKE, "--format", "csv", "--json").stderr.startswith("{")
    assert tally("tables", LAKE, "--as-of", "99").stderr.startswith(
        f"{RED}invalid_request:\x1b[0m "
    )


@pytest.mark.parametrize("argv", [["status", "--ok"], ["verify"], ["log"], ["tables"]])
@pytest.mark.parametrize("columns", ["60", "100"])
def test_without_its_colours_a_text_is_the_same(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, argv: list[str], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    plain = tally(*argv, LAKE).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert ESCAPE.sub("", tally(*argv, LAKE).stdout) == plain
    assert "\x1b" not in plain


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("form", ["json", "csv", "vertical"])
@pytest.mark.parametrize("command", ["status", "log", "tables"])
def test_rows_and_json_have_no_colours(lake: SmallLake, command: str, form: str) -> None:
    assert "\x1b" not in tally(command, LAKE, "--format", form).stdout


def test_no_color_takes_precedence(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in tally("status", LAKE).stdout


PROGRAM = "import sys; from tallystick.cli.colour import painted; sys.stdout.write(painted('committed', 'good'))"


def written(*, terminal: bool, **environ: str) -> str:
    """Return what a process writes to a terminal or a pipe."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    base = {n: v for n, v in os.environ.items() if n not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    path = str(Path(tallystick.__file__).parents[1])
    try:
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            stdout=theirs,
            env={**base, "PYTHONPATH": path, "TERM": "xterm", **environ},
            check=True,
        )
        return os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("terminal", "environ", "coloured"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_a_terminal_has_colours_and_a_pipe_has_none(
    terminal: bool, environ: dict[str, str], coloured: bool
) -> None:
    assert written(terminal=terminal, **environ) == (
        f"{GREEN}committed\x1b[0m" if coloured else "committed"
    )


def test_every_state_has_a_colour() -> None:
    from typing import get_args

    from tallystick.operations.status.read import State

    assert colour._STATES.keys() == set(get_args(State))
