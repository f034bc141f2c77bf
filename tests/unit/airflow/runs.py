"""A DAG run with its params and XComs, for operators that tests execute directly."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from tallystick.format.interval import Interval
from tallystick.operations.run_request import defaults


@dataclass
class FakeRun:
    """One DAG run: `context` is the context of its tasks, `returned` their return values, `pushed` their other XComs."""

    interval: Interval | None
    run_after: datetime
    run_id: str = "scheduled__2013-01-02T00:00:00+00:00"
    clear_number: int | None = 0
    params: dict[str, Any] = field(default_factory=dict)
    returned: dict[str, Any] = field(default_factory=dict)
    events: dict[Any, Any] = field(default_factory=dict)
    pushed: dict[tuple[str, str], Any] = field(default_factory=dict)
    attempt: uuid.UUID = field(default_factory=uuid.uuid4)
    logical_date: datetime | None = None
    run_type: str = ""
    try_number: int = 1
    max_tries: int = 3
    task_states: dict[str, dict[str, str]] = field(default_factory=dict)

    def context(self, task_id: str = "task") -> dict[str, Any]:
        def push(key: str, value: Any) -> None:
            self.pushed[task_id, key] = value

        return {
            "dag_run": SimpleNamespace(
                dag_id="small",
                run_id=self.run_id,
                run_type=self.run_type or ("scheduled" if self.interval else "manual"),
                logical_date=self.logical_date,
                data_interval_start=self.interval.start if self.interval else None,
                data_interval_end=self.interval.end if self.interval else None,
                run_after=self.run_after,
                clear_number=self.clear_number,
            ),
            "params": {**defaults(), **self.params},
            "ti": SimpleNamespace(
                id=self.attempt,
                task_id=task_id,
                try_number=self.try_number,
                max_tries=self.max_tries,
                xcom_pull=self._pull,
                xcom_push=push,
                get_task_states=lambda **_: self.task_states,
            ),
            "outlet_events": _Events(self.events),
        }

    def _pull(self, task_ids: str) -> Any:
        return self.returned.get(task_ids)

    def execute(self, operator: Any) -> Any:
        """Execute a task and store its return value for the next tasks."""
        self.returned[operator.task_id] = operator.execute(self.context(operator.task_id))
        return self.returned[operator.task_id]


class _Events:
    def __init__(self, by_asset: dict[Any, Any]) -> None:
        self._by_asset = by_asset

    def __getitem__(self, asset: Any) -> Any:
        return self._by_asset.setdefault(asset.name, SimpleNamespace(extra=None))
