"""What Airflow loads by its entry point `airflow.plugins`: the link, and the schedules that `replay_dag` makes."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tallystick.airflow import listener
from tallystick.airflow.links import LakeObjectLink
from tallystick.airflow.timetables import BoundedCron, BoundedDelta


class TallystickPlugin(AirflowPlugin):
    """Registers the links for tasks of DAGs that were serialised by another version of them, the schedules, and the
    notes on runs.
    """

    name = "tallystick"
    operator_extra_links: list[Any] = [LakeObjectLink()]  # noqa: RUF012 - Airflow declares it so
    timetables: list[Any] = [BoundedCron, BoundedDelta]  # noqa: RUF012 - as above
    listeners: list[Any] = [listener]  # noqa: RUF012 - as above
