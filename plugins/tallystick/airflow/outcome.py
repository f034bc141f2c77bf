"""Translates the errors of tasks to Airflow's exceptions, and reads the result file of a Spark job."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tallystick.airflow.lines import log_lines
from tallystick.airflow.notes import leave_error, leave_note
from tallystick.airflow.task_ids import REPLAY
from tallystick.errors import (
    InvalidPipeline,
    ReportRejected,
    RetryLater,
    TallystickError,
    error_of_kind,
    listed,
)
from tallystick.format.plan import Plan

log = logging.getLogger(__name__)

WHEN_A_TASK_FAILS = "docs/how-to/when-a-task-fails.md"
_TASK_OF_HINT = re.compile(
    r"(?P<whose>this run's |the )?(?:(?:plan|stage) task|(?:task )?`(?:plan|stage|commit)`)(?: with its downstream)?"
)


@contextmanager
def airflow_errors(
    span: str = "", ti: Any = None, *, leave: Callable[[Any, str], None] = leave_note
) -> Iterator[None]:
    """Raise tallystick's errors as Airflow's: RetryLater is retried, Superseded and ActionRequired fail without a retry.

    The message is the error's own text, with both values and the next step, and the run's `span` (`span_of`) if there is
    one. It is also logged in separate lines, because Airflow shows it only below a stack trace. If `ti` is given, an XCom
    contains it, too, and so does the note on the run's page, which `leave` pushes. The cause is left out, because it is
    only tallystick's stack.
    """
    try:
        yield
    except TallystickError as error:
        shown = with_span(error, span)
        if _is_of_one_task(ti):
            shown = type(shown)(shown.message, hint=in_one_task(shown.hint))
        retry = isinstance(error, RetryLater)
        log_lines(log.warning if retry else log.error, error_lines(shown))
        if ti is not None:
            leave_error(ti, shown, leave)
        raise (AirflowException if retry else AirflowFailException)(str(shown)) from None


def error_lines(error: TallystickError) -> Iterator[str]:
    """Yield the log lines of an error: its kind and message, the next step, and a link to the documentation."""
    yield f"{error.kind}: {error.message}"
    yield f"Next: {error.hint}"
    yield f"More: {WHEN_A_TASK_FAILS}#{error.kind}"


def with_span(error: TallystickError, span: str) -> TallystickError:
    """Return the error with the span of its run: most code that raises has only a topic, a key or a server."""
    if span in error.message:
        return error
    message = f"{error.message} This run requests {span}."
    return type(error)(message, hint=error.hint)


def in_one_task(text: str) -> str:
    """Return a next step for a DAG with `one_task`: what names the task `plan`, `stage` or `commit` names `replay`."""
    return _TASK_OF_HINT.sub(lambda found: f"{found['whose'] or ''}task `{REPLAY}`", text)


def _is_of_one_task(ti: Any) -> bool:
    """Return True if a task, or another one of its DAG, is `replay`."""
    if getattr(ti, "task_id", None) == REPLAY:
        return True
    task = getattr(ti, "task", None)
    # Not `task.dag`, which raises an error of its own for an operator outside of a DAG, in place of the one to show.
    dag = None if task is None else task.get_dag()
    return dag is not None and REPLAY in dag.task_dict


def error_from(written: Mapping[str, Any]) -> TallystickError | None:
    """Return the error of a job's result file by its kind.

    Returns None if the error is not tallystick's: then the task is retried.
    """
    error = error_of_kind(
        str(written.get("kind")),
        str(written.get("message", "")),
        hint=str(written.get("hint", "")),
    )
    return None if type(error) is TallystickError else error


def raise_reported_error(result: Path) -> None:
    """Raise the error that the job wrote to its result file, if it wrote one: tallystick's, or AirflowException."""
    try:
        written = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # it died before it wrote an error: the caller uses the last lines of its output
    if not isinstance(written, dict) or not isinstance(written.get("error"), dict):
        return
    fields = written["error"]
    error = error_from(fields)
    if error is not None:
        raise error
    raise AirflowException(f"{fields.get('message')} Next: {fields.get('hint')}")


def read_result(result: Path, plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return the plans and reports of a job's result file. The plans are exactly those that the job was started for.

    Raises InvalidPipeline if the job succeeded without a result file, ReportRejected if it contains other plans.
    """
    if not result.is_file():
        raise InvalidPipeline(
            "the job succeeded and staged nothing.",
            hint="end the job file with `if __name__ == '__main__': run(transform)` (tallystick.spark).",
        )
    written = json.loads(result.read_text(encoding="utf-8"))
    staged = sorted(str(p.get("plan")) for p in written) if isinstance(written, list) else []
    requested = sorted(plan.key for plan in plans)
    if staged != requested:
        raise ReportRejected(
            f"result of the job: expected {listed(requested)}, found {listed(staged)}.",
            hint="deploy the same version of tallystick for Airflow and for Spark, then clear the stage task.",
        )
    return [{"plan": p["plan"], "report": p["report"]} for p in written]
