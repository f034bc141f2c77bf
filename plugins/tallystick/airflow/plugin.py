"""What Airflow loads by its entry point `airflow.plugins`: one name, so that the UI shows our version, and the link."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tallystick.airflow import listener
from tallystick.airflow.links import LakeObjectLink


class TallystickPlugin(AirflowPlugin):
    """Registers the links for tasks of DAGs that were serialised by another version of them, and the notes on runs."""

    name = "tallystick"
    operator_extra_links: list[Any] = [LakeObjectLink()]  # noqa: RUF012 - Airflow declares it so
    listeners: list[Any] = [listener]  # noqa: RUF012 - Airflow declares it so
