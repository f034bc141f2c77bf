"""Set a temporary AIRFLOW_HOME before any test module imports Airflow, which reads it upon import."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from unit.airflow.runs import AirflowEvents

if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="tallystick-airflow-home-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")


@pytest.fixture
def airflow_events(monkeypatch: pytest.MonkeyPatch) -> AirflowEvents:
    """Give the tasks of a test Asset events that they can read."""
    from airflow.sdk.execution_time import task_runner

    from unit.airflow.runs import AirflowEvents

    events = AirflowEvents()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", events, raising=False)
    return events
