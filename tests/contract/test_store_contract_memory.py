"""The memory store passes the store contract, including races."""

from __future__ import annotations

import pytest

from tallystick.store.memory import MemoryStore
from tallystick_devstack.testing.store_contract import StoreContract, StoreRaceContract


class TestMemoryStore(StoreContract, StoreRaceContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestMemoryStoreWithContentETags(StoreContract, StoreRaceContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore(content_etags=True)
