"""The command `tally`: calls the use cases and renders their answers, as text for people or JSON for programs.

app            the commands and their options
errors         exit codes, errors and interrupts
lake_argument  the lake of a command
forms          the form of an answer: table, vertical, json or csv
text           for people, at most 100 columns
colour         colours of single words on a terminal
json_output    for programs
waiting        the time limit of a command, and its notice of a server that does not answer
sql            queries on one snapshot of all tables
catalog        the server of the catalog, and tokens for it
"""

from __future__ import annotations

import traceback


def main() -> None:
    """Run the command line and exit; docs/reference/cli.md lists the exit codes."""
    raise SystemExit(run())


def run() -> int:
    """Run the command line with the process's arguments and return its exit code."""
    from tallystick.cli.app import app
    from tallystick.cli.errors import DEFECT, INTERRUPTED, OK

    try:
        app(prog_name="tally")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:  # noqa: BLE001 - a defect: a bug report needs its stack trace
        traceback.print_exc()
        return DEFECT
    return OK
