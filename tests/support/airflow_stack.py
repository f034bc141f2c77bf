"""One real Airflow (with S3, Kafka and PostgreSQL) for a whole test session, in a project folder of its own.

from support.airflow_stack import airflow_stack  # noqa: F401  (in a test module or a conftest.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.stack import StackInfo, down, up

SEEN_S = 90.0


@dataclass(frozen=True)
class RunningStack:
    """A running stack and the project folder whose DAGs it sees."""

    info: StackInfo
    project_dir: Path
    airflow: AirflowApi

    def add_dag(self, name: str, source: str) -> None:
        """Put a DAG file in place, wait until Airflow has seen it, and turn its switch on."""
        (self.project_dir / "dags" / f"{name}.py").write_text(source)
        self.airflow.wait_for_dag(name, deadline_s=SEEN_S)
        self.airflow.set_paused(name, paused=False)


def make_project(folder: Path) -> Path:
    """Make an empty project and return its state folder."""
    for name in ("dags", "plugins"):
        (folder / name).mkdir(exist_ok=True)
    return folder / ".tally"


@pytest.fixture(scope="module")
def airflow_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """All parts, up for the tests of one file; those add their DAGs."""
    project_dir = tmp_path_factory.mktemp("project")
    state_dir = make_project(project_dir)
    info = up(state_dir, project_dir=project_dir, bound=True)
    try:
        yield RunningStack(info, project_dir, info.airflow())
    finally:
        down(state_dir)
