"""A described stack, for tests of `tally local` commands that need one server only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tallystick_devstack import which_stack
from tallystick_devstack.info import PartInfo, StackInfo


def running_stack(
    state_dir: Path, *, kafka: Mapping[str, Any] | None = None, airflow_url: str | None = None
) -> StackInfo:
    """Return a stack whose parts run: Kafka with a client's settings, Airflow at a URL."""
    parts = {
        name: PartInfo(name=name, state="running", address="-", port=None, pids=(), log_paths=())
        for name in ("kafka", "airflow")
    }
    return StackInfo(
        state_dir=state_dir,
        state="running",
        supervisor_pid=1,
        parts=parts,
        variables={"TALLYSTICK_KAFKA_DEFAULT": json.dumps(dict(kafka or {}))},
        airflow_url=airflow_url,
        airflow_user="admin",
        airflow_password="hidden",
    )


def use_stack(monkeypatch: pytest.MonkeyPatch, info: StackInfo) -> None:
    """Make `tally local` find this stack in every state folder."""
    module = SimpleNamespace(status=lambda _: info)
    monkeypatch.setattr(which_stack, "stack_module", lambda: module)
    monkeypatch.setenv(which_stack.STATE_DIR_ENV, str(info.state_dir))
