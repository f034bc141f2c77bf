"""The demo starts from an empty state, and removes nothing that it did not create."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo import workspace as workspace_module
from examples.demo.console import Console
from examples.demo.pipelines import FLIGHTS
from examples.demo.workspace import Workspace
from tallystick.errors import SettingsError
from tallystick_devstack.info import supervisor_lock


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / ".tally", Console(), FLIGHTS)


def test_the_state_of_an_earlier_demo_is_removed(workspace: Workspace) -> None:
    workspace.clear()
    (workspace.state_dir / "kafka").mkdir()
    (workspace.state_dir / "stack.json").touch()
    workspace.sent.touch()
    workspace.clear()
    assert sorted(p.name for p in workspace.state_dir.iterdir()) == ["demo", "tallystick-demo.mark"]
    assert not workspace.sent.exists()


def test_only_names_that_a_stack_or_a_demo_creates_are_removed(workspace: Workspace) -> None:
    workspace.clear()
    for name in ("kafka", "s3", "postgres", "airflow", "project", "photos", "before-demo-1"):
        (workspace.state_dir / name).mkdir()
    (workspace.state_dir / "letter.txt").write_text("dear")
    workspace.clear()
    assert sorted(p.name for p in workspace.state_dir.iterdir()) == [
        *("before-demo-1", "demo", "letter.txt", "photos", "tallystick-demo.mark")
    ]


@pytest.mark.parametrize(
    "names", [("demo/letter.txt",), ("letter.txt",), ("s3/precious",), ("tallystick-demo.mark",)]
)
def test_a_folder_with_other_files_is_refused_and_left_unchanged(
    workspace: Workspace, names: tuple[str, ...]
) -> None:
    for name in names:
        path = workspace.state_dir / name
        path.parent.mkdir(parents=True)
        path.write_text("dear")
    before = sorted(workspace.state_dir.rglob("*"))
    with pytest.raises(SettingsError, match="is not empty, and contains no state of a stack"):
        workspace.clear()
    assert sorted(workspace.state_dir.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("supervisor.lock", "4711"),
        ("stack.json", '{"format": "tallystick-stack/1", "parts": {}}'),
        ("stack.json", '{"format": "tallystick-stack/99"}'),
    ],
)
def test_a_state_that_the_demo_did_not_create_is_moved_and_kept(
    workspace: Workspace, name: str, text: str
) -> None:
    (workspace.state_dir / "s3").mkdir(parents=True)
    (workspace.state_dir / "s3" / "precious").write_text("rows")
    (workspace.state_dir / "letter.txt").write_text("dear")
    (workspace.state_dir / name).write_text(text)
    workspace.clear()
    assert (workspace.state_dir / "letter.txt").read_text() == "dear"
    workspace.clear()
    (moved,) = workspace.state_dir.glob("before-demo-*/s3/precious")
    assert moved.read_text() == "rows"
    assert not (workspace.state_dir / "s3").exists()


def test_a_running_stack_that_the_demo_did_not_start_is_not_touched(workspace: Workspace) -> None:
    (workspace.state_dir / "s3").mkdir(parents=True)
    with (
        supervisor_lock(workspace.state_dir),
        pytest.raises(SettingsError, match=r"the demo did not start runs in .*tally local down"),
    ):
        workspace.clear()
    assert (workspace.state_dir / "s3").is_dir()


def test_the_stack_of_an_earlier_demo_is_stopped_first(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.clear()
    stopped: list[Path] = []
    monkeypatch.setattr(workspace_module, "supervisor_pid", lambda _: 4711)
    monkeypatch.setattr(workspace_module, "down", stopped.append)
    workspace.clear()
    assert stopped == [workspace.state_dir]


def test_the_project_is_copied_so_that_the_clone_is_not_changed(workspace: Workspace) -> None:
    workspace.clear()
    workspace.copy_project()
    project = Path(__file__).parents[4]
    for name in ("dags/flights.py", "spark_jobs/flights.py"):
        assert (workspace.project / name).read_text() == (project / name).read_text()
    assert workspace.job.is_file()
    assert workspace.dag.is_file()
    assert not list(workspace.project.rglob("__pycache__"))
