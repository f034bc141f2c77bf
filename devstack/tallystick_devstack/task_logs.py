"""Reads the runs of a DAG, their tasks, and the logs of each try from Airflow, as values that are ready to be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.errors import InvalidRequest
from tallystick_devstack.airflow_api import RUN_ENDED, AirflowApi
from tallystick_devstack.similar_names import unknown_name

_FAILED = frozenset({"failed", "up_for_retry"})
# tallystick logs its errors with this logger, in the house's form: kind, message, next step.
_ERRORS = "tallystick.airflow.outcome"
_SOURCES = "::group::Log message source details"
# Warnings that each run on the embedded stack has: of Airflow's own code, and of a password that stays on this machine.
_FOLDED = frozenset({"py.warnings", "kafka.net.sasl.plain"})
_PRINTED = frozenset({"task.stdout", "task.stderr"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One event of a log. `detail` are the lines of an exception; `folded` is True for what Airflow logs of itself."""

    at: str
    level: str
    logger: str
    text: str
    detail: tuple[str, ...] = ()
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLog:
    """One try of a task with its log; a try of 0: the task has not started."""

    task_id: str
    map_index: int
    state: str
    try_number: int
    tries_max: int
    started: str | None
    ended: str | None
    lines: tuple[LogLine, ...]

    @property
    def name(self) -> str:
        """The task's name, with its index if it is mapped."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"

    @property
    def failed(self) -> bool:
        """True if the try failed, finally or for now."""
        return self.state in _FAILED

    @property
    def error(self) -> tuple[str, ...]:
        """The lines of the last error: tallystick's with its next step, else the exception; empty if there is none."""
        own = [line.text for line in self.lines if line.logger == _ERRORS and line.level == "error"]
        if own:
            return tuple(own)
        found = [line for line in self.lines if line.level in ("error", "critical")]
        return (found[-1].detail[-1:] or (found[-1].text,)) if found else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLogs:
    """One run of a DAG with the logs of its tasks, in the order in which the tasks started."""

    dag_id: str
    run_id: str
    state: str
    note: str | None
    start: str | None
    end: str | None
    tasks: tuple[TaskLog, ...]

    @property
    def ended(self) -> bool:
        """True if the run has ended."""
        return self.state in RUN_ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class DagLine:
    """A DAG and its latest run, if it has one."""

    dag_id: str
    paused: bool
    run_id: str | None
    state: str | None
    run_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenFile:
    """A DAG file that could not be imported, and the last line of its stack trace."""

    file: str
    why: str


def read_dags(api: AirflowApi) -> list[DagLine]:
    """Return all DAGs with their latest runs."""
    found = []
    for dag in api.dags():
        last: Mapping[str, Any] = api.latest_run(dag["dag_id"]) or {}
        found.append(
            DagLine(
                dag_id=dag["dag_id"],
                paused=bool(dag["is_paused"]),
                run_id=last.get("dag_run_id"),
                state=last.get("state"),
                run_after=last.get("run_after"),
            )
        )
    return found


def read_import_errors(api: AirflowApi) -> list[BrokenFile]:
    """Return the DAG files that could not be imported."""
    return [
        BrokenFile(file=str(one["filename"]), why=str(one["stack_trace"]).strip().splitlines()[-1])
        for one in api.import_errors()
    ]


def find_run(api: AirflowApi, dag_id: str, run_id: str | None) -> str:
    """Return the id of a run: the latest one, or the one that `run_id` is, or is the unique beginning of.

    Raises InvalidRequest if the DAG or the run does not exist; the hint names similar ones, or the DAG files with errors.
    """
    dags = {dag["dag_id"]: dag for dag in api.dags()}
    if dag_id not in dags:
        broken = "; ".join(f"{one.file}: {one.why}" for one in read_import_errors(api))
        error = unknown_name("DAG", dag_id, dags, none="copy a DAG file to dags/ of the project.")
        if broken:
            raise InvalidRequest(error.message, hint=f"{error.hint} Not imported: {broken}.")
        raise error
    if run_id is None:
        latest = api.latest_run(dag_id)
        if latest is not None:
            return str(latest["dag_run_id"])
        paused = bool(dags[dag_id]["is_paused"])
        raise InvalidRequest(
            f"DAG {dag_id}: expected a run, found none{' (it is paused)' if paused else ''}.",
            hint=f"start one: airflow dags {'unpause' if paused else 'trigger'} {dag_id}.",
        )
    known = [str(run["dag_run_id"]) for run in api.runs(dag_id)]
    begin = [one for one in known if one.startswith(run_id)]
    if run_id in known:
        return run_id
    if len(begin) == 1:
        return begin[0]
    if len(begin) > 1:
        raise InvalidRequest(
            f"run {run_id!r} of {dag_id}: expected one run, found {len(begin)} that begin so.",
            hint=f"use the whole id, e.g. {begin[-1]}.",
        )
    raise unknown_name("run", run_id, known, none=f"start one: airflow dags trigger {dag_id}.")


def read_run(
    api: AirflowApi,
    dag_id: str,
    run_id: str,
    *,
    task: str | None = None,
    try_number: int | None = None,
) -> RunLogs:
    """Return a run with the logs of its tasks; `task` and `try_number` select one task, and one try instead of the last.

    Raises InvalidRequest if the run has no such task or try.
    """
    run = api.run(dag_id, run_id)
    found = sorted(
        api.tasks(dag_id, run_id), key=lambda one: (one["start_date"] or "9", one["task_id"])
    )
    if task is not None:
        names = {str(one["task_id"]) for one in found}
        if task not in names:
            raise unknown_name("task", task, names, none="wait until the run has tasks.")
        found = [one for one in found if one["task_id"] == task]
    return RunLogs(
        dag_id=dag_id,
        run_id=run_id,
        state=str(run["state"]),
        note=run["note"],
        start=run["data_interval_start"],
        end=run["data_interval_end"],
        tasks=tuple(_task_log(api, one, try_number) for one in found),
    )


def _task_log(api: AirflowApi, task: Mapping[str, Any], try_number: int | None) -> TaskLog:
    last = int(task["try_number"])
    shown: Mapping[str, Any] = task
    place = (task["dag_id"], task["dag_run_id"], task["task_id"])
    index = int(task["map_index"])
    if try_number is not None and try_number != last:
        tries = {int(one["try_number"]): one for one in api.tries(*place, map_index=index)}
        if try_number not in tries:
            raise InvalidRequest(
                f"task {task['task_id']}: expected a try {try_number}, found {', '.join(map(str, tries)) or 'none'}.",
                hint="use one of these numbers.",
            )
        shown = tries[try_number]
    number = int(shown["try_number"])
    events = api.log_events(*place, number, map_index=index) if number else []
    return TaskLog(
        task_id=str(task["task_id"]),
        map_index=index,
        state=str(shown["state"] or "waiting"),
        try_number=number,
        tries_max=int(task["max_tries"]) + 1,
        started=shown["start_date"],
        ended=shown["end_date"],
        lines=tuple(log_lines(events)),
    )


def log_lines(events: Iterable[Mapping[str, Any] | str]) -> Sequence[LogLine]:
    """Return the events of a log as lines: groups, and what Airflow logs of itself, are folded.

    The group at the beginning is left out. It names the places that were searched for the log, and its length changes
    while a task runs.
    """
    found: list[LogLine] = []
    in_group = in_sources = False
    for event in events:
        content: Mapping[str, Any] = {"event": event} if isinstance(event, str) else event
        text = str(content.get("event", ""))
        level = str(content.get("level", "info")).lower()
        if text == _SOURCES:
            in_sources = True
        if in_sources:
            in_sources = not text.startswith("::endgroup::")
            continue
        if text.startswith("::group::"):
            in_group = True
        logger = str(content.get("logger", ""))
        # What a task prints arrives by another way than what it logs: it can be in a group that begins after it.
        folded = (in_group and logger not in _PRINTED) or logger in _FOLDED
        if text.startswith("::endgroup::"):
            in_group = False
        found.append(
            LogLine(
                at=str(content.get("timestamp") or ""),
                level=level,
                logger=logger,
                text=text,
                detail=tuple(_traceback(content.get("error_detail") or ())),
                folded=folded,
            )
        )
    return found


def _traceback(details: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Yield an exception as Python prints it: the frames, then its type and value; its causes first."""
    for one in reversed(details):
        for frame in one.get("frames") or ():
            yield f'  File "{frame["filename"]}", line {frame["lineno"]}, in {frame["name"]}'
        yield f"{one.get('exc_type')}: {one.get('exc_value')}"
