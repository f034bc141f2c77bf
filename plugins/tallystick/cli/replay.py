"""`tally replay`: plans, stages and commits a span of a DAG file's pipeline in one process, without Airflow and Spark."""

from __future__ import annotations

import os
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli.errors import RETRY_LATER, exit_on_error, out, out_json
from tallystick.errors import SettingsError, listed

if TYPE_CHECKING:
    from tallystick.cli.replay_run import ReplayAnswer
    from tallystick.format.interval import Request
    from tallystick.format.page import Totals
    from tallystick.spark.in_one_process import ReplayedInterval


# The extra `engine`. Without a check, the first of them would be missed only after the span is planned.
_ENGINE = ("llvmlite", "numba", "numpy")


class ReplayMode(StrEnum):
    """What a replay does with committed intervals: leaves them, or replaces them."""

    PROCESS = "process"
    REPLACE = "replace"


File = typer.Argument(metavar="FILE", help="The DAG file; it and its job are run.")
Mode = typer.Option(
    ReplayMode.PROCESS, "--mode", help="replace: also replace committed intervals of the span."
)


@exit_on_error
def replay(
    file: Path = File,
    start: str = typer.Option(
        ..., "--from", metavar="TIME", help="Beginning, inclusive; UTC without offset."
    ),
    end: str = typer.Option(..., "--to", metavar="TIME", help="End, exclusive."),
    pipeline: str | None = typer.Option(
        None, "--pipeline", metavar="NAME", help="If the file declares several pipelines."
    ),
    mode: ReplayMode = Mode,
    run: str | None = typer.Option(
        None, "--run", metavar="NAME", help="The run to begin or to continue. Default: by the span."
    ),
    take_over: bool = typer.Option(
        False, "--take-over", help="Cancel the grants of other runs in the span."
    ),
    accept_loss: bool = typer.Option(
        False, "--accept-loss", help="Commit although the topic has lost records of the span."
    ),
    accept_compaction: bool = typer.Option(
        False, "--accept-compaction", help="Replace although the topic was compacted since."
    ),
    accept_dead_letters: bool = typer.Option(
        False, "--accept-dead-letters", help="Replace although rows become dead letters."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Plan, stage and commit a span of a DAG file's pipeline in this process, without Airflow and Spark."""
    from tallystick.runtime.loading import loading
    from tallystick.runtime.memory import keep_freed_memory

    _check_engine()
    keep_freed_memory(os.environ)
    with loading():
        from tallystick.cli.replay_run import ReplayOptions, replayed, with_options
    options = ReplayOptions(
        start=start,
        end=end,
        pipeline=pipeline,
        run=run,
        mode=str(mode),
        as_json=as_json,
        switches={
            "take_over": take_over,
            "accept_loss": accept_loss,
            "accept_compaction": accept_compaction,
            "accept_dead_letters": accept_dead_letters,
        },
    )
    answer = replayed(file, options)
    if as_json:
        out_json(form(answer))
    else:
        out(text(answer))
    if answer.result.lost:
        raise with_options(answer.result.lost[0])
    if not answer.result.complete:
        raise typer.Exit(RETRY_LATER)


def _check_engine() -> None:
    """Raise SettingsError if a package is missing without which no record is decoded."""
    missing = [name for name in _ENGINE if find_spec(name) is None]
    if missing:
        raise SettingsError(
            f"expected the packages {listed(_ENGINE)} in this environment, found no {listed(missing)}.",
            hint="install them: pip install 'tallystick[engine]'.",
        )


def text(answer: ReplayAnswer) -> str:
    """Return the answer as text: a block per interval, then how many are committed, and what is left to do."""
    from tallystick.cli.text import command, many, paragraph

    result = answer.result
    head = f"{result.pipeline} at {result.uri}, version {result.version}, run {result.request}"
    parts = [paragraph(head), *(_block(one, answer.mode) for one in result.intervals)]
    states = [one.state for one in result.intervals]
    counts = [f"{many(states.count('committed'), 'interval')} committed"]
    if already := states.count("already"):
        counts.append(f"{already:,} committed already")
    if missing := len(states) - states.count("committed") - already:
        counts.append(f"{missing:,} not committed")
    parts.append(f"{', '.join(counts)}, in {answer.elapsed_s:.1f} s.")
    if any(one.other_code for one in result.intervals):
        why = "Some were committed by another job or declaration than those of the file: --mode replace replaces them."
        parts.append(paragraph(why))
    if "held" in states:
        how = "Next: repeat the command later, or cancel the other run's grant with --take-over."
        parts.append(paragraph(how))
    elif "gap" in states:
        parts.append("Next: repeat the command: a grant was cancelled meanwhile.")
    if answer.publish:
        parts.append("Outputs outside the lake are not published by this command:")
        parts[-1] += f"\n{command(answer.publish)}"
    return "\n\n".join(parts)


def _block(one: ReplayedInterval, mode: str) -> str:
    from tallystick.cli.text import INDENT, classes, many, paragraph, span

    head = f"{span(one.interval)}: "
    if one.state == "gap":
        return f"{head}NOT COMMITTED, and not granted to any run"
    if one.state == "held":
        what = "NOT REPLACED" if mode == ReplayMode.REPLACE and one.totals else "NOT COMMITTED"
        return paragraph(f"{head}{what}: held by another run, {one.request}")
    if one.state == "committed":
        lines = [f"{head}committed, version {one.version}, generation {one.generation}"]
    else:
        was = f"{head}was committed already, version {one.version}, generation {one.generation}, by {one.request}"
        lines = [paragraph(was)]
    if one.totals is not None:
        lines.append(paragraph(classes(one.totals), indent=INDENT))
    if one.rows:
        rows = ", ".join(f"{table} {many(count, 'row')}" for table, count in one.rows.items())
        lines.append(paragraph(rows, indent=INDENT))
    return "\n".join(lines)


def form(answer: ReplayAnswer) -> dict[str, Any]:
    """Return the JSON of `tally replay`."""
    from tallystick.format import keys

    result = answer.result
    return {
        "lake": result.uri,
        "pipeline": result.pipeline,
        "version": result.version,
        "from": keys.instant(answer.start),
        "to": keys.instant(answer.end),
        "run": _request(result.request),
        "complete": result.complete,
        "intervals": [
            {
                "from": keys.instant(one.interval.start),
                "to": keys.instant(one.interval.end),
                "state": one.state,
                "version": one.version,
                "generation": one.generation,
                "totals": _totals(one.totals),
                "rows": None if one.rows is None else dict(one.rows),
                "owner": None if one.request is None else _request(one.request),
                "other_code": one.other_code,
            }
            for one in result.intervals
        ],
        "publish": list(answer.publish),
        "elapsed_s": round(answer.elapsed_s, 3),
    }


def _request(request: Request) -> dict[str, Any]:
    return {"dag": request.dag, "run": request.run, "clear": request.clear}


def _totals(totals: Totals | None) -> dict[str, int] | None:
    from tallystick.format.page import TOTALS

    if totals is None:
        return None
    return {**{name: getattr(totals, name) for name in TOTALS}, "offsets": totals.offsets}
