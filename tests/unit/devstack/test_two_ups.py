"""Two `tally local up` at the same moment: the first starts a stack, and the second leaves it unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.errors import SettingsError
from tallystick_devstack import stack
from tallystick_devstack.info import StackInfo, read_stack, supervisor_pid
from tallystick_devstack.stack import down, up


@pytest.fixture
def winner(tmp_path: Path) -> Iterator[StackInfo]:
    info = up(tmp_path, project_dir=tmp_path, parts={"s3"}, report=lambda _: None)
    yield info
    down(tmp_path)


def names(state_dir: Path) -> set[str]:
    return {path.name for path in state_dir.iterdir()}


def test_the_second_of_two_simultaneous_ups_leaves_the_stack_of_the_first_alone(
    winner: StackInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = (tmp_path / "supervisor.log").read_text()
    before = names(tmp_path)
    # The second call checks before the supervisor of the first has the lock.
    monkeypatch.setattr(stack, "supervisor_pid", lambda _: None)
    with pytest.raises(
        SettingsError, match=rf"another stack runs in .*process {winner.supervisor_pid}"
    ):
        up(tmp_path, project_dir=tmp_path, parts={"s3"}, report=lambda _: None)
    monkeypatch.undo()
    assert supervisor_pid(tmp_path) == winner.supervisor_pid
    assert read_stack(tmp_path) == winner
    assert "s3: up after" in log
    assert (tmp_path / "supervisor.log").read_text() == log
    assert names(tmp_path) == before


def test_interrupting_the_second_up_leaves_the_stack_of_the_first_alone(
    winner: StackInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stack, "supervisor_pid", lambda _: None)
    monkeypatch.setattr(stack, "_follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        up(tmp_path, project_dir=tmp_path, parts={"s3"}, report=lambda _: None)
    monkeypatch.undo()
    assert read_stack(tmp_path) == winner


def test_interrupting_the_only_up_stops_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("s3: up"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        up(tmp_path, project_dir=tmp_path, parts={"s3"}, report=interrupt)
    assert supervisor_pid(tmp_path) is None
    info = read_stack(tmp_path)
    assert info is not None
    assert info.state == "stopped"
