"""A DAG run with its params and XComs, for operators that tests execute directly."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from airflow.sdk import Asset
from airflow.sdk.api.datamodels._generated import AssetEventResponse, AssetResponse
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetEventsResult, GetAssetEventByAsset
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.task_runner import _serialize_outlet_events

from tallystick.format.interval import Interval
from tallystick.operations.run_request import defaults


class AirflowEvents:
    """The Asset events of Airflow's database, for tasks that read them. Its rules are those of Airflow 3.3.

    A task's success stores an event for each outlet: one for each partition key, or one without a key if there is none.
    """

    def __init__(self) -> None:
        self.stored: list[AssetEventResponse] = []
        self.reads: list[GetAssetEventByAsset] = []
        self._ids = itertools.count(1)

    def success(self, run: FakeRun, operator: Any) -> None:
        """Store the events of a task that succeeded."""
        emitted = list(_serialize_outlet_events(run.accessors))
        for outlet in operator.outlets:
            of_asset: list[Any] = [e for e in emitted if e["dest_asset_key"]["name"] == outlet.name]  # type: ignore[index,call-overload]
            for event in of_asset or [{}]:
                self.add(outlet, run.run_id, event.get("extra"), event.get("partition_key"))

    def add(
        self,
        asset: Asset,
        run_id: str,
        extra: Any,
        partition_key: str | None,
        at: datetime | None = None,
    ) -> None:
        """Store one event."""
        event = AssetEventResponse(
            id=next(self._ids),
            timestamp=at or datetime.now(UTC),
            extra=extra,
            asset=AssetResponse(name=asset.name, uri=asset.uri, group=asset.group),
            created_dagruns=[],
            source_dag_id="small",
            source_run_id=run_id,
            source_task_id="commit",
            partition_key=partition_key,
        )
        self.stored.append(event)

    def keys(self, asset: Asset) -> list[tuple[str | None, Any]]:
        """Return the partition key and the extra of each event of an Asset."""
        return [(e.partition_key, e.extra) for e in self.stored if e.asset.name == asset.name]

    def send(self, msg: GetAssetEventByAsset) -> AssetEventsResult:
        """Answer a task's request for events, as Airflow's supervisor does."""
        self.reads.append(msg)
        found = [
            e
            for e in self.stored
            if e.asset.name == msg.name and (msg.after is None or e.timestamp >= msg.after)
        ]
        return AssetEventsResult(asset_events=sorted(found, key=lambda e: e.timestamp)[: msg.limit])


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
    accessors: OutletEventAccessors = field(default_factory=OutletEventAccessors)

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
            "outlet_events": self.accessors,
        }

    def _pull(self, task_ids: str) -> Any:
        return self.returned.get(task_ids)

    def execute(self, operator: Any) -> Any:
        """Execute a task and store its return value for the next tasks."""
        self.accessors = OutletEventAccessors()
        self.returned[operator.task_id] = operator.execute(self.context(operator.task_id))
        self.events |= {key.name: one for key, one in self.accessors._dict.items()}  # type: ignore[union-attr]
        stored = getattr(task_runner, "SUPERVISOR_COMMS", None)
        if isinstance(stored, AirflowEvents):
            stored.success(self, operator)
        return self.returned[operator.task_id]
