"""One real Airflow (with S3, Kafka and PostgreSQL) for the tests of a file, in its own project folder.

from support.airflow_stack import airflow_stack  # noqa: F401  (in a test module or a conftest.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.stack import StackInfo, down, up

PARSED_S = 90.0


@dataclass(frozen=True)
class RunningStack:
    """A running stack and the project folder with its DAGs."""

    info: StackInfo
    project_dir: Path
    airflow: AirflowApi

    def add_dag(self, name: str, source: str) -> None:
        """Write a DAG file, wait until Airflow has parsed it, and unpause the DAG."""
        (self.project_dir / "dags" / f"{name}.py").write_text(source)
        self.airflow.wait_for_dag(name, deadline_s=PARSED_S)
        self.airflow.set_paused(name, paused=False)


def make_project(folder: Path) -> Path:
    """Create an empty project and return its state folder."""
    for name in ("dags", "plugins"):
        (folder / name).mkdir(exist_ok=True)
    return folder / ".tally"


@pytest.fixture(scope="module")
def airflow_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """Run all parts for the tests of one file, which add their DAGs."""
    project_dir = tmp_path_factory.mktemp("project")
    state_dir = make_project(project_dir)
    info = up(state_dir, project_dir=project_dir, bound=True)
    try:
        yield RunningStack(info, project_dir, info.airflow())
    finally:
        down(state_dir)
