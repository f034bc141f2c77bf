"""Run the command line in tests, and read its output."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from tallystick.cli import app as cli

WIDTH_MAX = 100
LAKE = "memory://cli-lake"
READ_COMMANDS = (
    ["status"],
    ["log"],
    ["tables"],
    ["tables", "--files"],
    ["dead-letters"],
    ["verify"],
    ["verify", "--deep"],
)


def tally(*argv: str) -> Result:
    """Run `tally` in this process."""
    return CliRunner().invoke(cli.app, list(argv), prog_name="tally")


def tally_json(*argv: str) -> Any:
    """Return the JSON output of a command that must succeed."""
    result = tally(*argv, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def too_wide(text: str) -> list[str]:
    """Return the lines that are too long; a longer key or URI is allowed on a line of its own."""
    return [line for line in text.splitlines() if len(line) > WIDTH_MAX and " " in line.strip()]
