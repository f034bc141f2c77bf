"""Writes the note of one line for a run's page: what was committed, or the error of a failed task and the next step.

A task cannot write the note of its run, because the Task SDK has no message for it. So the task pushes the text as an
XCom, and the listener in the scheduler copies it to the run (`tallystick.airflow.listener`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tallystick.airflow.note_text import NOTE
from tallystick.airflow.run_summary import Covered, Own
from tallystick.errors import TallystickError
from tallystick.format.interval import Request
from tallystick.format.page import Totals

log = logging.getLogger(__name__)

ERROR = "error"
"""The key of the XCom with a failed task's error, for programs: `kind`, `message`, `hint`."""

_NAMED_MAX = 2


def commit_note(covered: Covered, own: Own, request: Request) -> str:
    """Return the note for a run whose commit task succeeded, as one line."""
    if covered.interval is None:
        return f"nothing is new, version {covered.version}"
    parts = [_what_was_done(covered, own, request)]
    if covered.held:
        holders = [e.granted.request for e in covered.held if e.granted is not None]
        parts.append(f"{_count(len(covered.held), 'interval')} held by {_named(holders, request)}")
    if covered.gaps:
        parts.append(f"{_count(len(covered.gaps), 'gap')} left")
    return "; ".join([*parts, f"version {covered.version}"]).replace("; version", ", version")


def _what_was_done(covered: Covered, own: Own, request: Request) -> str:
    if own.intervals:
        several = f" in {_count(own.intervals, 'interval')}" if own.intervals > 1 else ""
        before = ", committed before" if own.already == own.intervals else ""
        return f"{_short(own.totals)}{several}{before}"
    others = [
        e.committed.request
        for e in covered.committed
        if e.committed is not None and not e.committed.request.same_run(request)
    ]
    if others:
        return f"covered by {_named(others, request)}"
    return "nothing was left to do" if covered.committed else "nothing was committed"


def _short(totals: Totals) -> str:
    lost = f", {totals.lost:,} lost" if totals.lost else ""
    dead = _count(totals.dead_letters, "dead letter")
    return f"{_count(totals.records, 'record')}, {dead}{lost}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _named(requests: Sequence[Request], own: Request) -> str:
    """Return the names of the runs in their order, each once; with the DAG if it is not the DAG of `own`."""
    names = dict.fromkeys(
        f"run {one.run}" + (f" of DAG {one.dag}" if one.dag != own.dag else "") for one in requests
    )
    shown = list(names)[:_NAMED_MAX]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def error_note(task: str, error: TallystickError) -> str:
    """Return the note for a task that failed: the error and the next step."""
    return f"{task}: {error.kind}: {error}"


def error_form(error: TallystickError) -> Mapping[str, str]:
    """Return the error as an XCom. It contains no secrets: no error of tallystick does."""
    return {"kind": error.kind, "message": error.message, "hint": error.hint}


def leave_note(ti: Any, text: str) -> None:
    """Push the text for the run's page. Safe to repeat: the XCom is replaced. If it cannot be pushed, that is logged."""
    _push(ti, NOTE, text)


def leave_error(
    ti: Any, error: TallystickError, leave: Callable[[Any, str], None] = leave_note
) -> None:
    """Push an error for the run's page, with `leave`, and for programs, before the task fails.

    Safe to repeat: the XComs are replaced, and Airflow clears them when the task starts again.
    """
    _push(ti, ERROR, error_form(error))
    leave(ti, error_note(ti.task_id, error))


def _push(ti: Any, key: str, value: Any) -> None:
    try:
        ti.xcom_push(key=key, value=value)
    except Exception as error:  # noqa: BLE001 - a note must never make a task fail, nor hide its error
        log.warning("XCom %r of the run could not be written: %s", key, type(error).__name__)
