"""Fixtures: no lake and no stack of this machine; a good lake in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.small_lake import SmallLake, good_lake
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
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TALLYSTICK_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def lake() -> Iterator[SmallLake]:
    store = open_store(LAKE)
    assert isinstance(store, MemoryStore)
    store.delete([listed.key for listed in store.list("")])
    yield good_lake(store)
    store.delete([listed.key for listed in store.list("")])
