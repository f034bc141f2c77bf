"""A part that dies is started again; if its start fails, the other parts run on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import RetryLater, SettingsError, StoreUnavailable, TallystickError
from tallystick_devstack.info import StackInfo, read_stack, supervisor_lock
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.postgres import Postgres
from tallystick_devstack.process import free_port
from tallystick_devstack.s3 import S3Server

PARTS = ("kafka", "s3", "postgres", "airflow")


class FakeServer:
    """A server that does not really run; its start raises `fault`."""

    def __init__(self) -> None:
        self.alive = False
        self.starts = 0
        self.fault: TallystickError | None = None
        self.process = None

    def start(self) -> None:
        self.starts += 1
        if self.fault is not None:
            raise self.fault
        self.alive = True

    def stop(self) -> None:
        self.alive = False

    def nothing(self, _: str) -> None:
        """Do nothing: the bucket or database exists."""


@pytest.fixture
def servers() -> dict[str, FakeServer]:
    return {name: FakeServer() for name in PARTS}


@pytest.fixture
def stack(
    tmp_path: Path, servers: dict[str, FakeServer], monkeypatch: pytest.MonkeyPatch
) -> LocalStack:
    """Return a started stack of fake servers."""
    started = LocalStack(tmp_path / "state", project_dir=tmp_path)
    monkeypatch.setattr(started, "_servers", dict(servers))
    monkeypatch.setattr(started.s3, "create_bucket", servers["s3"].nothing)
    monkeypatch.setattr(started.postgres, "create_database", servers["postgres"].nothing)
    started.start(lambda _: None)
    return started


def described(stack: LocalStack) -> StackInfo:
    with supervisor_lock(stack.state_dir):
        info = read_stack(stack.state_dir)
    assert info is not None
    return info


def states(stack: LocalStack) -> dict[str, str]:
    return {name: part.state for name, part in described(stack).parts.items()}


@pytest.mark.parametrize("there", [True, False])
def test_a_download_of_kafka_is_reported_before_it_begins(
    stack: LocalStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setattr(stack.kafka, "_jar_dir", tmp_path if there else tmp_path / "none yet")
    reported: list[str] = []
    stack.start(reported.append)
    at = reported.index("kafka: starting") + 1
    assert reported[at].startswith("kafka: up" if there else "kafka: downloading its jars"), (
        reported
    )


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("kafka", SettingsError("no java.", hint="install it.")),
        ("s3", StoreUnavailable("no answer.", hint="try again.")),
        ("postgres", RetryLater("no answer.", hint="try again.")),
        ("airflow", RetryLater("its database does not answer.", hint="try again.")),
    ],
)
def test_a_part_that_cannot_be_restarted_fails_and_the_others_run_on(
    stack: LocalStack, servers: dict[str, FakeServer], name: str, error: TallystickError
) -> None:
    servers[name].alive = False
    servers[name].fault = error
    reported: list[str] = []
    for _ in range(5):
        stack.revive(reported.append)
    assert servers[name].starts == 1 + 3
    assert states(stack) == {part: "failed" if part == name else "running" for part in PARTS}
    assert described(stack).running
    assert f"{name}: {error}" in reported
    assert reported[-1] == f"{name}: failed after 3 restarts; the other parts continue to run"


def _no_bucket(stack: LocalStack, fault: Callable[[str], None]) -> None:
    stack.s3.create_bucket = fault  # type: ignore[method-assign]


def _no_database(stack: LocalStack, fault: Callable[[str], None]) -> None:
    stack.postgres.create_database = fault  # type: ignore[method-assign]


@pytest.mark.parametrize(("name", "break_it"), [("s3", _no_bucket), ("postgres", _no_database)])
def test_a_part_that_is_up_but_not_ready_is_started_again(
    stack: LocalStack,
    servers: dict[str, FakeServer],
    name: str,
    break_it: Callable[[LocalStack, Callable[[str], None]], None],
) -> None:
    def fails_once(_: str) -> None:
        break_it(stack, servers[name].nothing)
        raise RetryLater("not yet.", hint="try again.")

    break_it(stack, fails_once)
    servers[name].alive = False
    reported: list[str] = []
    stack.revive(reported.append)
    assert states(stack)[name] == "starting"
    assert not described(stack).running
    stack.revive(reported.append)
    assert states(stack)[name] == "running"
    assert described(stack).running
    assert f"{name}: not ready, starting it again" in reported


def test_a_server_that_answers_no_bucket_request_is_a_tallystick_error(tmp_path: Path) -> None:
    server = S3Server(tmp_path, port=free_port())
    with pytest.raises(StoreUnavailable, match=rf"{server.endpoint} did not create the bucket b"):
        server.create_bucket("b")


def test_an_unreachable_database_server_is_a_tallystick_error(tmp_path: Path) -> None:
    with pytest.raises(RetryLater, match="did not create the database airflow: connection to"):
        Postgres(tmp_path).create_database("airflow")
