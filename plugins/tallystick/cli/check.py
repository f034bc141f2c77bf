"""`tally check`: finds mistakes in a DAG file and its job before the first run, and in CI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli.errors import (
    COUNTER_EXAMPLE,
    OK,
    RETRY_LATER,
    busy,
    exit_on_error,
    out,
    out_json,
)

if TYPE_CHECKING:
    from tallystick.operations.check.finding import Checked

RECORDS = 500
_STATE_WIDTH, _CHECK_WIDTH = 13, 13

Samples = typer.Option(
    [],
    "--sample",
    metavar="FILE",
    help="JSON lines (.gz too) instead of the topic's records; TOPIC=FILE if there are several topics.",
)


File = typer.Argument(metavar="FILE", help="The DAG file; it and its job are run.")


@exit_on_error
def check(
    file: Path = File,
    records: int = typer.Option(
        RECORDS, "--records", metavar="N", min=1, max=100_000, help="Number of records to try."
    ),
    sample: list[str] = Samples,
    no_kafka: bool = typer.Option(False, "--no-kafka", help="Do not connect to Kafka."),
    offline: bool = typer.Option(False, "--offline", help="Connect neither to Kafka nor to S3."),
    probe: bool = typer.Option(
        False, "--probe", help="Also write scratch objects to the warehouse, as tally probe does."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Check a DAG file, its job, topic, warehouse and first records, without Spark. Exit with 1 if a run would fail."""
    from tallystick.cli.check_run import CheckOptions, check_file

    options = CheckOptions(
        records=records,
        samples=dict(_named(one) for one in sample),
        kafka=not (no_kafka or offline),
        store=not offline,
        probe=probe,
    )
    found: list[Checked] = []
    checks = check_file(file, options)
    while True:
        with busy("checking"):
            finding = next(checks, None)
        if finding is None:
            break
        if not as_json:
            if found and found[-1].pipeline not in (None, finding.pipeline):
                out(f"\npipeline {finding.pipeline}")
            out(text(finding))
        found.append(finding)
    if as_json:
        out_json(form(file, found))
    else:
        out("\n" + verdict(found))
    if (code := exit_code(found)) != OK:
        raise typer.Exit(code)


def _named(sample: str) -> tuple[str, Path]:
    """Return (topic, file) of `TOPIC=FILE`; the topic of a file alone is empty."""
    topic, named, path = sample.partition("=")
    return (topic, Path(path)) if named and not Path(sample).exists() else ("", Path(sample))


def exit_code(found: Sequence[Checked]) -> int:
    """Return 0 without a problem, 75 if only a retry can show whether there is one, else 1."""
    from tallystick.operations.check.finding import problems

    bad = problems(found)
    if not bad:
        return OK
    return RETRY_LATER if all(one.retry for one in bad) else COUNTER_EXAMPLE


def text(finding: Checked) -> str:
    """Return one finding as text: state, check, what was found, details, and the next step."""
    from tallystick.cli.text import paragraph

    indent = " " * (_STATE_WIDTH + _CHECK_WIDTH)
    head = f"{finding.state:<{_STATE_WIDTH}}{finding.check:<{_CHECK_WIDTH}}"
    lines = [head + paragraph(finding.text, indent=indent).lstrip()]
    # Details are laid out in columns, so that they are not wrapped.
    lines += [f"{indent}  {_cut(one, indent)}" for one in finding.details]
    if finding.hint is not None:
        lines.append(paragraph(f"Next: {finding.hint}", indent=indent))
    return "\n".join(lines)


def _cut(detail: str, indent: str) -> str:
    from tallystick.cli.text import shown, width

    room = width() - len(indent) - 2
    one_line = shown(detail)
    return one_line if len(one_line) <= room else f"{one_line[: room - 3]}..."


def verdict(found: Sequence[Checked]) -> str:
    """Return the last line: how many problems, warnings and checks that were not made."""
    from tallystick.cli.text import many

    states = [one.state for one in found]
    parts = [many(states.count("FAIL"), "problem"), many(states.count("warning"), "warning")]
    if skipped := states.count("not checked"):
        parts.append(f"{skipped} not checked")
    return ", ".join(parts) + "."


def form(file: Path, found: Sequence[Checked]) -> dict[str, Any]:
    """Return the JSON of `tally check`."""
    states = [one.state for one in found]
    return {
        "file": str(file),
        "ok": "FAIL" not in states,
        "problems": states.count("FAIL"),
        "warnings": states.count("warning"),
        "not_checked": states.count("not checked"),
        "findings": [
            {
                "pipeline": one.pipeline,
                "check": one.check,
                "state": one.state,
                "text": one.text,
                "hint": one.hint,
                "kind": one.kind,
                "details": list(one.details),
            }
            for one in found
        ],
    }
