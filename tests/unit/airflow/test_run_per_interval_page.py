"""docs/how-to/run-per-interval.md: its DAGs run for the keys that commits emit."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.partition_mappers.base import RollupMapper
from airflow.serialization.definitions.dag import SerializedDAG
from airflow.serialization.serialized_objects import DagSerialization

from tallystick.airflow.assets import interval_asset_of, partition_key
from tallystick.format.interval import Interval

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "run-per-interval.md").read_text()
START = datetime(2013, 1, 4, 6, tzinfo=UTC)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, found)
    return found


def stored(dag: Any) -> SerializedDAG:
    """Return the DAG as Airflow's scheduler has it."""
    return DagSerialization.from_dict(DagSerialization.to_dict(dag))


def mapper(names: dict[str, Any], dag: str) -> Any:
    timetable: Any = stored(names[dag]).timetable
    asset = interval_asset_of(names["events"])
    return timetable.get_partition_mapper(name=asset.name, uri=asset.uri)


def test_the_dag_per_interval_has_one_run_for_each_key(names: dict[str, Any]) -> None:
    key = partition_key(START)
    assert mapper(names, "per_interval").to_downstream(key) == key


def test_the_task_reads_the_interval_that_caused_its_run(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    interval = Interval(start=START, end=START + timedelta(hours=1))
    key = partition_key(START)
    extra = {
        "pipeline": "events",
        "version": 7,
        "intervals": {key: {"interval": interval.to_json(), "generation": 2}},
    }
    event = SimpleNamespace(partition_key=key, extra=extra)
    task = names["per_interval"].task_dict["summarize"]
    task.python_callable(triggering_asset_events={interval_asset_of(names["events"]): [event]})
    assert capsys.readouterr().out == f"{interval}: generation 2, version 7\n"


def test_the_dag_per_day_waits_for_the_keys_of_its_24_hours(names: dict[str, Any]) -> None:
    found = mapper(names, "per_day")
    assert isinstance(found, RollupMapper)
    midnight = START.replace(hour=0)
    hours = {partition_key(midnight + timedelta(hours=n)) for n in range(24)}
    assert found.to_upstream("2013-01-04") == hours
    assert {found.to_downstream(key) for key in hours} == {"2013-01-04"}
    with pytest.raises(ValueError, match="unconverted data remains"):
        found.to_downstream(partition_key(START + timedelta(milliseconds=5)))
