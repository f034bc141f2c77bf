"""`tally doctor`: checks everything around tallystick on this machine, and shows how to correct it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli.errors import COUNTER_EXAMPLE, bars, exit_on_error, out, out_json

if TYPE_CHECKING:
    from tallystick.operations.doctor.check import DoctorCheck

_STATE_WIDTH = 9
_NAMES_SHOWN = 6

Lakes = typer.Argument(
    None,
    metavar="LAKE...",
    help="URIs of lakes, e.g. s3://lake/flights. Default: $TALLYSTICK_LAKE.",
)


@exit_on_error
def doctor(
    lakes: list[str] = Lakes,
    write: bool = typer.Option(
        False, "--write", help="Also test conditional writes, with scratch objects."
    ),
    strict: bool = typer.Option(False, "--strict", help="Exit with 1 also if there is a warning."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Show each check that is ok."),
    spark: str = typer.Option(
        "spark_default", "--spark", metavar="CONN_ID", help="Airflow's connection of Spark."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Check this machine, Airflow, Kafka, stores and lakes, and show what to correct. Exit with 1 upon an error."""
    from tallystick.cli.doctor_run import DoctorOptions, diagnose
    from tallystick.operations.doctor.check import failed

    options = DoctorOptions(lakes=lakes or [], write=write, spark=spark)
    with bars() as watch:
        found = diagnose(options, os.environ, watch=watch)
    bad = failed(found, strict=strict)
    if as_json:
        out_json(form(found, ok=not bad))
    else:
        out(text(found, verbose=verbose))
    if bad:
        raise typer.Exit(COUNTER_EXAMPLE)


def text(found: Sequence[DoctorCheck], *, verbose: bool) -> str:
    """Return the checks as text, by area: those that are ok in one line, and the others with what to do."""
    parts = []
    for area, of_area in groupby(found, key=lambda check: check.area):
        checks = list(of_area)
        good = [check for check in checks if check.state == "ok"]
        lines = [area]
        if good and not verbose:
            lines.append(_line("ok", _names(good)))
        lines += [
            _line(one.state, f"{one.name}: {one.found}", one)
            for one in checks
            if verbose or one.state != "ok"
        ]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, verdict(found)])


def _names(checks: Sequence[DoctorCheck]) -> str:
    names = list(dict.fromkeys(check.name for check in checks))
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
    return shown


def _line(state: str, what: str, check: DoctorCheck | None = None) -> str:
    """Return a check as text: state, name and what was found, then what to do, and the command that does it."""
    from tallystick.cli import colour
    from tallystick.cli.text import INDENT, command, paragraph, shown

    indent = INDENT + " " * _STATE_WIDTH
    body = paragraph(shown(what), indent=indent).lstrip()
    meaning: Any = {"ok": "good", "error": "bad", "info": None}.get(state, "open")
    word = state if meaning is None else colour.painted(state, meaning)
    lines = [f"{INDENT}{word}{' ' * (_STATE_WIDTH - len(state))}{body}"]
    if check is not None and check.fix:
        lines.append(paragraph(f"Next: {shown(check.fix)}", indent=indent))
    if check is not None and check.command:
        lines.append(command(check.command))
    return "\n".join(lines)


def verdict(found: Sequence[DoctorCheck]) -> str:
    """Return the last line: how many errors, warnings and unknown results there are."""
    from tallystick.cli import colour
    from tallystick.cli.text import many

    states = [check.state for check in found]
    errors, warnings = states.count("error"), states.count("warning")
    parts = [many(errors, "error"), many(warnings, "warning")]
    if unknown := states.count("unknown"):
        parts.append(f"{unknown:,} unknown")
    shown = f"{', '.join(parts)}; {many(states.count('ok'), 'check')} ok."
    return colour.painted(shown, "bad" if errors else "open" if warnings else "good")


def form(found: Sequence[DoctorCheck], *, ok: bool) -> dict[str, Any]:
    """Return the JSON of `tally doctor`."""
    states = [check.state for check in found]
    return {
        "ok": ok,
        "errors": states.count("error"),
        "warnings": states.count("warning"),
        "unknown": states.count("unknown"),
        "checks": [
            {
                "area": check.area,
                "name": check.name,
                "state": check.state,
                "found": check.found,
                "fix": check.fix,
                "command": list(check.command),
            }
            for check in found
        ],
    }
