"""The demo begins anew each time, and removes nothing that it did not make."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo import ground as ground_module
from examples.demo.example import FLIGHTS
from examples.demo.ground import Ground
from examples.demo.story import Story
from tallystick.errors import SettingsError
from tallystick_devstack.info import supervisor_lock


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / ".tally", Story(), FLIGHTS)


def test_an_earlier_demo_is_removed(ground: Ground) -> None:
    ground.clear()
    (ground.state_dir / "kafka").mkdir()
    (ground.state_dir / "stack.json").touch()
    ground.sent.touch()
    ground.clear()
    assert sorted(p.name for p in ground.state_dir.iterdir()) == ["demo", "tallystick-demo.mark"]
    assert not ground.sent.exists()


def test_only_what_a_stack_or_a_demo_makes_is_removed(ground: Ground) -> None:
    ground.clear()
    for name in ("kafka", "s3", "postgres", "airflow", "project", "photos", "before-demo-1"):
        (ground.state_dir / name).mkdir()
    (ground.state_dir / "letter.txt").write_text("dear")
    ground.clear()
    assert sorted(p.name for p in ground.state_dir.iterdir()) == [
        *("before-demo-1", "demo", "letter.txt", "photos", "tallystick-demo.mark")
    ]


@pytest.mark.parametrize(
    "names", [("demo/letter.txt",), ("letter.txt",), ("s3/precious",), ("tallystick-demo.mark",)]
)
def test_a_folder_that_is_no_stacks_is_refused_and_left_as_it_is(
    ground: Ground, names: tuple[str, ...]
) -> None:
    for name in names:
        path = ground.state_dir / name
        path.parent.mkdir(parents=True)
        path.write_text("dear")
    before = sorted(ground.state_dir.rglob("*"))
    with pytest.raises(SettingsError, match="is not empty, and holds no state of a stack"):
        ground.clear()
    assert sorted(ground.state_dir.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("supervisor.lock", "4711"),
        ("stack.json", '{"format": "tallystick-stack/1", "parts": {}}'),
        ("stack.json", '{"format": "tallystick-stack/99"}'),
    ],
)
def test_a_state_that_no_demo_made_is_kept_aside(ground: Ground, name: str, text: str) -> None:
    (ground.state_dir / "s3").mkdir(parents=True)
    (ground.state_dir / "s3" / "precious").write_text("rows")
    (ground.state_dir / "letter.txt").write_text("dear")
    (ground.state_dir / name).write_text(text)
    ground.clear()
    assert (ground.state_dir / "letter.txt").read_text() == "dear"
    ground.clear()
    (kept,) = ground.state_dir.glob("before-demo-*/s3/precious")
    assert kept.read_text() == "rows"
    assert not (ground.state_dir / "s3").exists()


def test_a_running_stack_that_no_demo_made_is_not_touched(ground: Ground) -> None:
    (ground.state_dir / "s3").mkdir(parents=True)
    with (
        supervisor_lock(ground.state_dir),
        pytest.raises(SettingsError, match=r"no demo made runs in .*tally local down"),
    ):
        ground.clear()
    assert (ground.state_dir / "s3").is_dir()


def test_the_stack_of_an_earlier_demo_is_stopped_first(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.clear()
    stopped: list[Path] = []
    monkeypatch.setattr(ground_module, "supervisor_pid", lambda _: 4711)
    monkeypatch.setattr(ground_module, "down", stopped.append)
    ground.clear()
    assert stopped == [ground.state_dir]


def test_the_project_is_copied_so_that_the_clone_stays_clean(ground: Ground) -> None:
    ground.clear()
    ground.copy_project()
    project = Path(__file__).parents[4]
    for name in ("dags/flights.py", "spark_jobs/flights.py"):
        assert (ground.project / name).read_text() == (project / name).read_text()
    assert ground.job.is_file()
    assert ground.dag.is_file()
    assert not list(ground.project.rglob("__pycache__"))
