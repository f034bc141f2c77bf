"""What each task reads of its run: the XCom of an earlier task, and the span for its errors."""

from __future__ import annotations

from typing import Any

from tallystick.airflow.outcome import airflow_errors
from tallystick.airflow.run import span_of
from tallystick.errors import InvalidRequest

PLAN, STAGE, COMMIT, PUBLISH = "plan", "stage", "commit", "publish"


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
