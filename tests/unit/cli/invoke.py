"""How the tests of the command line call it, and read what it says."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from tallystick.cli import app as cli

WIDTH_MAX = 100
LAKE = "memory://cli-lake"
READ_COMMANDS = (["status"], ["log"], ["tables"], ["verify"], ["verify", "--deep"])


def tally(*argv: str) -> Result:
    """Run `tally` in this process."""
    return CliRunner().invoke(cli.app, list(argv), prog_name="tally")


def tally_json(*argv: str) -> Any:
    """The JSON answer of a command that must succeed."""
    result = tally(*argv, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def too_wide(text: str) -> list[str]:
    """Lines beyond the width; a key or URI that is longer by itself stays whole on a line of its own."""
    return [line for line in text.splitlines() if len(line) > WIDTH_MAX and " " in line.strip()]
