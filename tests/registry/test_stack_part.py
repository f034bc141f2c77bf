"""The registry as a part of a stack: it starts only if it is requested, and the stack's variables lead to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import resolve
from tallystick.registry.client import RegistryClient
from tallystick_devstack.info import PARTS, REGISTRY, StackInfo
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.process import wait_until
from tallystick_devstack.stack import down, status, up

DONE_S = 120


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackInfo]:
    """Start a stack that is a registry alone."""
    folder = tmp_path_factory.mktemp("stack")
    yield up(folder / ".tally", project_dir=folder, parts=(REGISTRY,), bound=True)
    down(folder / ".tally")


def client(info: StackInfo) -> RegistryClient:
    return RegistryClient(resolve(RegistrySettings, "default", environ=info.environment()))


def test_its_address_and_password_are_a_connection_of_the_stack(stack: StackInfo) -> None:
    part = stack.parts[REGISTRY]
    assert (part.state, len(part.pids)) == ("running", 1)
    assert part.address == f"http://127.0.0.1:{part.port}/apis/ccompat/v7"
    assert client(stack).subjects() == ()


def test_a_dead_registry_is_started_again(stack: StackInfo) -> None:
    psutil.Process(stack.parts[REGISTRY].pids[0]).kill()

    def revived() -> bool:
        info = status(stack.state_dir)
        return info is not None and info.running and info.parts[REGISTRY].restarts == 1

    wait_until(revived, deadline_s=DONE_S, what="the registry up again")
    wait_until(
        lambda: client(stack).subjects() == (), deadline_s=DONE_S, what="the answer at its address"
    )


def test_a_stack_has_no_registry_by_default(tmp_path: Path) -> None:
    assert REGISTRY not in PARTS
    stack = LocalStack(tmp_path, project_dir=tmp_path)
    assert stack.registry is None
    assert "TALLYSTICK_REGISTRY_DEFAULT" not in stack.environment()
    assert not (tmp_path / REGISTRY).exists()
