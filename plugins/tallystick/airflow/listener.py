"""Copies the notes of a run's tasks to the note of the run, which the run's page shows. It runs in the scheduler.

Airflow 3.3 has no other way to do this. The Task SDK and the execution API accept a note only for a run that a task
triggers. The REST API accepts one only from a user who may edit runs: each worker would need that user's password. A
listener is called at the end of a run, when the run's row is written anyway, and needs no additional permission.

The listener shares the scheduler's process and transaction. So it imports nothing of tallystick's core, does two small
reads by primary key and one write in a separate savepoint, and never flushes or commits the session. If it fails, the
error is only logged. If TALLYSTICK_RUN_NOTES is 0, it does nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from airflow.listeners import hookimpl

from tallystick.airflow.note_text import NOTE, OFF, merged

log = logging.getLogger(__name__)

# Messages of the scheduler only. If a person marks a run, it ends in a transaction of the API server, which may itself
# write a note.
_SCHEDULERS = ("success", "task_failure", "all_tasks_deadlocked", "timed_out")
_RAN = ("success", "failed")


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Copy the notes of a run that succeeded. Safe to repeat: the notes are replaced, text by a person stays."""
    _copy(dag_run, msg)


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Copy the notes of a run that failed. Safe to repeat: the notes are replaced, text by a person stays."""
    _copy(dag_run, msg)


def _copy(dag_run: Any, msg: str) -> None:
    if msg not in _SCHEDULERS or os.environ.get(OFF) == "0":
        return
    try:
        from sqlalchemy.orm import object_session

        session = object_session(dag_run)
        if session is None:
            return
        # The connection, not the session: the guard of the scheduler's loop counts a session's savepoint as a commit.
        connection = session.connection()
        with connection.begin_nested():
            notes = _left(connection, dag_run.id)
            if notes:
                _write(connection, dag_run.id, notes)
    except Exception:
        log.exception("run %s: the note could not be written", getattr(dag_run, "run_id", None))


def _left(connection: Any, dag_run_id: int) -> Sequence[str]:
    """Return the notes from the latest tries of the run's tasks, oldest first.

    Airflow deletes the XComs of a task when the task starts again. If a task was cleared and has not run since, because
    an upstream task failed, it still has the note of its earlier try. That note must not be shown, so only tasks that
    have ended count.
    """
    import sqlalchemy as sa
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel

    xcom, task = XComModel.__table__.c, TaskInstance.__table__.c
    same = [xcom[name] == task[name] for name in ("dag_id", "run_id", "task_id", "map_index")]
    found = connection.execute(
        sa.select(xcom.value)
        .join_from(XComModel.__table__, TaskInstance.__table__, sa.and_(*same))
        .where(xcom.dag_run_id == dag_run_id, xcom.key == NOTE, task.state.in_(_RAN))
        .order_by(xcom.timestamp)
    )
    return [value for (value,) in found if isinstance(value, str)]


def _write(connection: Any, dag_run_id: int, notes: Sequence[str]) -> None:
    """Write the run's note, unless a person changes it at this moment. Safe to repeat: the resulting text is the same."""
    import sqlalchemy as sa
    from airflow.models.dagrun import DagRunNote
    from airflow.sdk import timezone

    table = DagRunNote.__table__
    here = table.c.dag_run_id == dag_run_id
    found = connection.execute(sa.select(table.c.content).where(here)).first()
    text = merged(found[0] if found else None, notes)
    now = timezone.utcnow()
    if found is None:
        row = {"dag_run_id": dag_run_id, "content": text, "created_at": now, "updated_at": now}
        connection.execute(sa.insert(table).values(row))
    elif text != found[0]:
        unchanged = table.c.content.is_not_distinct_from(found[0])
        connection.execute(
            sa.update(table).where(here, unchanged).values(content=text, updated_at=now)
        )
