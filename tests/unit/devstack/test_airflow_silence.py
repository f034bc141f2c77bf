"""A component of the embedded Airflow that runs and sends no heartbeat is restarted, and no other component is."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import SettingsError
from tallystick_devstack import airflow
from tallystick_devstack.airflow import COMPONENTS, AirflowStack

SILENT_S, UP_S = 0.3, 0.6


@dataclass
class FakeProcess:
    """A process that does not really run."""

    log_path: Path
    alive: bool = True
    killed: bool = False
    name: str = "a component"
    began: float = field(default_factory=time.monotonic)

    def kill(self) -> None:
        self.alive, self.killed = False, True

    def tail(self) -> str:
        return "last lines"


class FakeAirflow(AirflowStack):
    """Components that do not really run; those in `hung` give no sign of life."""

    def __init__(self, tmp_path: Path, *, api_up_s: float = 0.0) -> None:
        super().__init__(
            tmp_path, dags_dir=tmp_path, plugins_dir=tmp_path, database="sqlite:///none.db"
        )
        self.api_up_s = api_up_s
        self.started: list[str] = []
        self.hung: set[str] = set()

    def _reach_database(self) -> bool:
        return True

    def _migrate(self, *, empty: bool) -> None:
        assert not empty

    def start_component(self, name: str) -> None:
        process: Any = self.processes.get(name)
        if process is None or not process.alive:
            process = FakeProcess(self.state_dir / f"{name}.log")
            self.processes[name] = process
            self.started.append(name)
            self.hung.discard(name)

    def reported(self, _api: object, part: str | None, _since: datetime) -> bool:
        """Return True if Airflow reports the part as healthy: it reports no part until the api-server is up."""
        api: Any = self.processes["api-server"]
        if not api.alive or "api-server" in self.hung:
            return False
        if "api-server" in self.started[3:] and time.monotonic() < api.began + self.api_up_s:
            return False
        name = next(n for n, p in COMPONENTS.items() if p == part)
        return self.processes[name].alive and name not in self.hung


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeAirflow:
    """Return a started Airflow."""
    stack = FakeAirflow(tmp_path, api_up_s=UP_S)
    monkeypatch.setattr(airflow, "_SILENT_S", SILENT_S)
    monkeypatch.setattr(airflow, "_START_S", 5.0)
    monkeypatch.setattr(airflow, "_reported", stack.reported)
    stack.start()
    assert stack.started == list(COMPONENTS)
    return stack


def test_components_that_answer_are_left_alone(stack: FakeAirflow) -> None:
    stack.start()
    assert len(stack.started) == 3


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_silent_component_is_killed_and_restarted(stack: FakeAirflow, name: str) -> None:
    silent: Any = stack.processes[name]
    stack.hung = {name}
    stack.start()
    assert silent.killed
    assert stack.started[3:] == [name]
    assert stack.alive


def test_a_component_that_ends_while_it_is_waited_for_is_started_again(stack: FakeAirflow) -> None:
    """A scheduler ends in this way if its database is gone."""
    scheduler: Any = stack.processes["scheduler"]
    stack.hung = {"scheduler"}
    ending = threading.Timer(SILENT_S / 3, scheduler.kill)
    ending.start()
    stack.start()
    ending.join()
    assert stack.started[3:] == ["scheduler"]


def test_a_slow_api_server_does_not_make_the_others_look_silent(stack: FakeAirflow) -> None:
    """The api-server reports on the others, and needs longer to start than they may be silent."""
    stack.processes["api-server"].kill()
    scheduler: Any = stack.processes["scheduler"]
    stack.start()
    assert stack.started[3:] == ["api-server"]
    assert not scheduler.killed


def test_a_component_that_does_not_come_up_is_an_error(
    stack: FakeAirflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airflow, "_START_S", 0.1)
    monkeypatch.setattr(airflow, "_reported", lambda *_: False)
    with pytest.raises(SettingsError, match="a heartbeat of Airflow's api-server did not"):
        stack.start()
