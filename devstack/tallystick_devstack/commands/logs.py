"""`tally local logs`: the logs of a DAG run's tasks, errors first, as text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli.errors import busy, exit_on_error, out, out_json
from tallystick.errors import InvalidRequest
from tallystick_devstack.which_stack import StateDir, choose, running_stack

if TYPE_CHECKING:
    from tallystick_devstack.airflow_api import AirflowApi
    from tallystick_devstack.task_logs import BrokenFile, DagLine, LogLine, RunLogs, TaskLog

_FOLLOW_S = 2.0


@exit_on_error
def logs(
    dag: str | None = typer.Argument(None, metavar="DAG", help="The DAG. Default: list all DAGs."),
    run: str | None = typer.Argument(
        None,
        metavar="RUN",
        help="The run's id, or its unique beginning. Default: the latest run.",
    ),
    task: str | None = typer.Option(None, "--task", metavar="TASK", help="Only this task."),
    try_number: int | None = typer.Option(
        None, "--try", metavar="N", min=1, help="This try of --task. Default: the last try."
    ),
    everything: bool = typer.Option(
        False, "--all", help="Also show what Airflow logs of itself, and whole stack traces."
    ),
    follow: bool = typer.Option(
        False, "--follow", "-f", help="Print new lines until the run ends."
    ),
    state_dir: Path | None = StateDir,
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Show the tasks of a run with their states and logs, errors first; without DAG, the DAGs with their latest runs."""
    _check(dag, task=task, try_number=try_number, follow=follow, as_json=as_json)
    chosen = choose(state_dir)
    api = running_stack(chosen, "airflow").airflow()
    from tallystick_devstack import task_logs

    place = {"state_dir": str(chosen.folder)}
    scheduler_log = chosen.folder / "airflow" / "scheduler.log"
    if dag is None:
        with busy("reading Airflow"):
            dags, broken = task_logs.read_dags(api), task_logs.read_import_errors(api)
        if as_json:
            lists = {
                "dags": [asdict(one) for one in dags],
                "import_errors": [asdict(one) for one in broken],
            }
            out_json(place | lists)
        else:
            out(_dags(dags, broken))
        return
    with busy("reading Airflow"):
        run_id = task_logs.find_run(api, dag, run)
        found = task_logs.read_run(api, dag, run_id, task=task, try_number=try_number)
    if as_json:
        out_json(place | _form(found))
    else:
        out("\n".join((_head(found), *_errors(found, scheduler_log))))
        printed: dict[str, tuple[int, int]] = {}
        _print_new(api, found, printed, everything=everything)
        while follow and not found.ended:
            time.sleep(_FOLLOW_S)
            found = task_logs.read_run(api, dag, run_id, task=task)
            _print_new(api, found, printed, everything=everything)
            if found.ended:
                out("\n".join(("", _head(found), *_errors(found, scheduler_log))))


def _check(
    dag: str | None, *, task: str | None, try_number: int | None, follow: bool, as_json: bool
) -> None:
    for needs, given, lacks in (
        ("a DAG", task is not None or follow, dag is None),
        ("--task", try_number is not None, task is None),
        ("text", follow, as_json),
        ("the last try", follow, try_number is not None),
    ):
        if given and lacks:
            option = "--follow" if follow else "--try" if try_number is not None else "--task"
            raise InvalidRequest(
                f"{option}: expected {needs} with it, found none.",
                hint="see `tally local logs --help`.",
            )


def _print_new(
    api: AirflowApi, run: RunLogs, printed: dict[str, tuple[int, int]], *, everything: bool
) -> None:
    """Print the lines of each task that are not printed yet: of its last try, and the rest of the try before."""
    from tallystick_devstack.task_logs import read_run

    for current in run.tasks:
        before, _ = printed.get(current.name, (0, 0))
        tries = [current]
        if 0 < before < current.try_number:
            earlier = read_run(api, run.dag_id, run.run_id, task=current.task_id, try_number=before)
            tries[:0] = [one for one in earlier.tasks if one.map_index == current.map_index]
        for one in tries:
            number, count = printed.get(one.name, (0, 0))
            known = count if number == one.try_number else 0
            if one.lines[known:] or number != one.try_number:
                lines = list(_log_text(one.lines[known:], everything=everything))
                if lines:
                    out("\n".join(("", f"--- {one.name}, {_try(one)}", *lines)))
            printed[one.name] = (one.try_number, len(one.lines))


def _try(task: TaskLog) -> str:
    return f"try {task.try_number} of {max(task.try_number, task.tries_max)}: {task.state}"


def _log_text(lines: Sequence[LogLine], *, everything: bool) -> Iterator[str]:
    from tallystick.cli.text import shown

    house = any(line.logger == "tallystick.airflow.outcome" for line in lines)
    for line in lines:
        if line.folded and not everything:
            continue
        level = "" if line.level == "info" else line.level.upper()
        texts = line.text.splitlines() or [""]
        yield f"{line.at[11:23]:12}  {level:<8}{shown(texts[0])}".rstrip()
        more = [*texts[1:], *_detail(line, everything=everything, house=house)]
        yield from (f"{'':22}{shown(text)}" for text in more)


def _detail(line: LogLine, *, everything: bool, house: bool) -> list[str]:
    """Return the lines of an exception: of tallystick's own error none, else without the frames of installed packages."""
    if everything:
        return list(line.detail)
    if house:
        return []
    return [
        text for text in line.detail if not ("site-packages" in text and text.startswith("  File"))
    ]


def _head(run: RunLogs) -> str:
    from tallystick.cli.text import grid, paragraph

    span = f", interval {_time(run.start)} to {_time(run.end)}" if run.start and run.end else ""
    rows = [
        (
            one.name,
            one.state,
            f"{one.try_number} of {max(one.try_number, one.tries_max)}" if one.try_number else "-",
            _time(one.started) if one.try_number else "-",
            _length(one.started, one.ended) if one.try_number else "-",
        )
        for one in run.tasks
    ]
    return "\n".join(
        (
            paragraph(f"DAG {run.dag_id}, run {run.run_id}: {run.state}{span}"),
            grid(("task", "state", "try", "started (UTC)", "seconds"), rows, right=("seconds",)),
        )
    )


def _errors(run: RunLogs, scheduler_log: Path) -> Iterator[str]:
    """Yield the errors of failed tasks: the kind with both values, and the next step.

    A task that never started has no log: why is in the log of the scheduler.
    """
    from tallystick.cli.text import INDENT, shown

    for task in run.tasks:
        if task.failed:
            yield ""
            yield f"{task.name} failed:"
            empty = f"its log has no error: use --all, or read {scheduler_log}."
            for line in task.error or (empty,):
                yield from (f"{INDENT}{shown(text)}" for text in line.splitlines())


def _dags(dags: Sequence[DagLine], broken: Sequence[BrokenFile]) -> str:
    from tallystick.cli.text import grid, paragraph

    rows = [
        (
            one.dag_id,
            "yes" if one.paused else "no",
            one.state or "no runs",
            one.run_id or "-",
        )
        for one in dags
    ]
    parts = [grid(("DAG", "paused", "latest run", "its id"), rows)] if rows else []
    if not rows:
        parts.append(
            "No DAGs yet. Next: copy a DAG file to dags/ of the project (`tally local status` names it)."
        )
    parts += [paragraph(f"Not imported: {one.file}: {one.why}") for one in broken]
    return "\n".join(parts)


def _form(run: RunLogs) -> dict[str, Any]:
    tasks = [
        {
            "task_id": one.task_id,
            "map_index": one.map_index,
            "state": one.state,
            "try": one.try_number,
            "tries_max": one.tries_max,
            "started": one.started,
            "ended": one.ended,
            "error": list(one.error) if one.failed else [],
            "lines": [
                {
                    "at": line.at,
                    "level": line.level,
                    "logger": line.logger,
                    "text": line.text,
                    "detail": list(line.detail),
                }
                for line in one.lines
            ],
        }
        for one in run.tasks
    ]
    return {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "state": run.state,
        "from": run.start,
        "to": run.end,
        "tasks": tasks,
    }


def _time(text: str | None) -> str:
    from tallystick.cli.text import spell

    if not text:
        return "-"
    at = datetime.fromisoformat(text)
    return spell(at.replace(microsecond=at.microsecond // 1000 * 1000))


def _length(start: str | None, end: str | None) -> str:
    if not start or not end:
        return "-"
    return f"{(datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds():.1f}"
