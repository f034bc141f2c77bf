"""Connects `operations.stage_together` with Airflow: the tries of a task, and the state of the task in another run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tallystick.format.interval import Request

RUNNING = "running"


def is_first_try(ti: Any, retries: int) -> bool:
    """Return True if this is the task's first try since the run began, or since the task was cleared.

    When Airflow 3.3.2 clears a task, it sets `max_tries` to the number of tries so far plus `retries`.
    """
    number, last = getattr(ti, "try_number", None), getattr(ti, "max_tries", None)
    return number is not None and last is not None and number == last - retries + 1


def is_running(ti: Any, task_id: str) -> Callable[[Request], bool]:
    """Return a function that returns False if Airflow reports that this task of a request's run does not run."""

    def running(request: Request) -> bool:
        try:
            states: Mapping[str, Any] = ti.get_task_states(
                dag_id=request.dag, task_ids=[task_id], run_ids=[request.run]
            )
            return bool(states.get(request.run, {}).get(task_id) == RUNNING)
        except Exception:  # noqa: BLE001 - Airflow's clients raise many classes, and the claim's time limits the wait
            return True

    return running
