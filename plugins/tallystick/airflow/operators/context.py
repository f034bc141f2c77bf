"""What the steps of a run have in common: what they read of it, the link to what they wrote, and the note of its page."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from airflow.sdk import BaseOperator

from tallystick.airflow.notes import leave_note
from tallystick.airflow.outcome import airflow_errors
from tallystick.airflow.run import span_of
from tallystick.errors import InvalidRequest
from tallystick.pipeline import Pipeline


class RunStep(BaseOperator):
    """An operator with one or more steps of a run. `linked`: the address of the object that it wrote last."""

    pipeline: Pipeline
    linked: str | None = None

    def leave(self, ti: Any, text: str) -> None:
        """Push a note for the run's page. Safe to repeat: see `leave_note`."""
        leave_note(ti, text)

    def errors(self, context: Any) -> AbstractContextManager[None]:
        """Raise tallystick's errors inside as Airflow's, with the span of the run: see `airflow_errors`."""
        return airflow_errors(run_span(context), context["ti"], leave=self.leave)

    def named(self, text: str) -> str:
        """Return a text that names tasks to clear, with the names of this DAG's tasks."""
        return text


def run_span(context: Any) -> str:
    return span_of(context["dag_run"], context["params"])


def pulled(context: Any, task: str) -> Any:
    found = context["ti"].xcom_pull(task_ids=task)
    if found is None:
        with airflow_errors(run_span(context), context["ti"]):
            raise InvalidRequest(
                f"the {task} task of this run returned no XCom: it has not run, or its XCom was cleared.",
                hint=f"clear the {task} task with its downstream.",
            )
    return found
