"""The Airflow plugin, loaded by the entry point `airflow.plugins`: the pages, the link, timetables and the listener."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tallystick.airflow import listener
from tallystick.airflow.links import LakeObjectLink
from tallystick.airflow.pages.mount import EXTERNAL_VIEWS, FASTAPI_APPS
from tallystick.airflow.timetables import BoundedCron, BoundedDelta


class TallystickPlugin(AirflowPlugin):
    """The registration of the pages, the operator link, the timetables of `replay_dag` and the listener for run notes.

    Airflow needs the link here for tasks of DAGs that another version of the operators serialized.
    """

    name = "tallystick"
    operator_extra_links: list[Any] = [LakeObjectLink()]  # noqa: RUF012 - declared like this in Airflow
    timetables: list[Any] = [BoundedCron, BoundedDelta]  # noqa: RUF012 - as above
    listeners: list[Any] = [listener]  # noqa: RUF012 - as above
    fastapi_apps: list[Any] = FASTAPI_APPS
    external_views: list[Any] = EXTERNAL_VIEWS
