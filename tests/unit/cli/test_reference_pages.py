"""The reference pages match the code: every error kind, every command and option, every exit code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from tallystick import errors
from tallystick.cli import app as cli
from tallystick.cli import errors as report
from tallystick.operations.verify import CHECKS

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


# Superseded is a group with one kind: itself.
GROUPS = (errors.RetryLater, errors.Superseded, errors.ActionRequired)


def _kinds(group: type[errors.TallystickError]) -> set[tuple[str, str]]:
    """Return (kind, class name) of every error of a group that errors.py defines."""
    found = (value for value in vars(errors).values() if isinstance(value, type))
    return {
        (c.kind, c.__name__)
        for c in found
        if issubclass(c, group) and c not in (errors.RetryLater, errors.ActionRequired)
    }


def test_the_page_of_errors_has_exactly_the_kinds_of_the_code_each_under_its_group() -> None:
    page = (REFERENCE / "errors.md").read_text()
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    for section, group in zip(sections, GROUPS, strict=True):
        assert section.startswith(f"{group.__name__}\n")
        headings = re.findall(r"^### `(\w+)` \((\w+)\)$", section, re.MULTILINE)
        assert len(headings) == len(set(headings))
        assert set(headings) == _kinds(group)


def test_each_error_has_what_to_do() -> None:
    page = (REFERENCE / "errors.md").read_text()
    entries = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    assert [entry for entry in entries if "\n**What to do:** " not in entry] == []


def _commands(group: Any, prefix: str = "tally") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        path = f"{prefix} {name}"
        found |= _commands(command, path) if hasattr(command, "commands") else {path: command}
    return found


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = (REFERENCE / "cli.md").read_text()
    parts = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    # "`tally status [LAKE]`": the command in small letters, then its arguments.
    sections = {
        found[0].strip(): part
        for part in parts
        if (found := re.findall(r"^`(tally [a-z -]+)", part))
    }
    commands = _commands(typer.main.get_command(cli.app))
    assert set(sections) == set(commands)
    for path, command in commands.items():
        for param in command.params:
            for option in param.opts:
                if option.startswith("--") and option != "--help":
                    assert f"`{option}" in sections[path], f"{option} of {path} is not on the page"


def test_the_page_of_commands_has_every_exit_code_and_check() -> None:
    page = (REFERENCE / "cli.md").read_text()
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert codes == {
        *(report.OK, report.COUNTER_EXAMPLE, report.USAGE, report.DEFECT),
        *(
            report.RETRY_LATER,
            report.SUPERSEDED,
            report.ACTION_REQUIRED,
            report.INTERRUPTED,
            report.PIPE_CLOSED,
        ),
    }
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) >= set(CHECKS)
