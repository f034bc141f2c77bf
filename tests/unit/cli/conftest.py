"""Fixtures: no lake and no stack of this machine; a good lake in memory."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from support.small_lake import SmallLake, counting_runtime, good_lake
from tallystick.store.memory import MemoryStore
from tallystick.store.open import open_store
from unit.cli.invoke import LAKE


@pytest.fixture(autouse=True)
def _no_lake_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in (
        "TALLYSTICK_LAKE",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL",
        "COLUMNS",
        "FORCE_COLOR",
        "NO_COLOR",
        "TALLYSTICK_AIRFLOW_URL",
        "AIRFLOW__API__BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TALLYSTICK_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def built() -> tuple[SmallLake, int]:
    """Return a lake to be copied, and the first id that it has not used."""
    small = good_lake(MemoryStore(LAKE.removeprefix("memory://")))
    return small, int(small.runtime.uuid(), 16)


@pytest.fixture
def lake(built: tuple[SmallLake, int]) -> Iterator[SmallLake]:
    """Return a good lake in the store that the commands open, a copy for each test."""
    small, next_id = built
    store = open_store(LAKE)
    assert isinstance(store, MemoryStore)
    assert isinstance(small.store, MemoryStore)
    store._objects, store._writes = dict(small.store._objects), small.store._writes
    yield SmallLake(
        store=store,
        log=deepcopy(small.log),
        runtime=counting_runtime(next_id),
        job=small.job,
    )
    store.delete([listed.key for listed in store.list("")])
