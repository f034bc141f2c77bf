"""The command `tally`: asks the use cases and renders their answers, as text for people or JSON for programs.

app       the commands and their options
report    exit codes, errors and interrupts
where     which lake is meant
text      for people, at most 100 columns
forms     for programs
sql       questions over one cut of all tables
stack     the embedded stack
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit; docs/reference/cli.md lists the exit codes."""
    from tallystick.cli.report import run

    raise SystemExit(run())
