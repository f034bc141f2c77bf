"""A lake without a root: it has not begun, or its root is gone; only a command cannot know which, and looks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.small_lake import SmallLake, counting_runtime, days, pipeline
from tallystick.errors import NothingPlanned, RootVanished, SettingsError
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.store import Listed
from tallystick.store.memory import MemoryStore


def command_lake(store: MemoryStore) -> Lake:
    """Return the lake as a command opens it, perhaps before the first run."""
    return Lake(store, counting_runtime(), proven=True, begun=False)


def test_an_empty_prefix_has_not_begun() -> None:
    with pytest.raises(NothingPlanned, match="nothing has been planned at memory://memory yet"):
        command_lake(MemoryStore()).load_existing()


def test_for_a_task_an_empty_prefix_is_a_root_that_is_gone() -> None:
    """The plan of its run has created the root before."""
    with pytest.raises(RootVanished):
        Lake(MemoryStore(), counting_runtime(), proven=True).load_existing()


@pytest.mark.parametrize("prefix", keys.LAKE_PREFIXES)
def test_with_any_object_of_a_lake_the_root_is_gone(prefix: str) -> None:
    store = MemoryStore()
    store.create(f"{prefix}one", b"{}")
    with pytest.raises(RootVanished):
        command_lake(store).load_existing()


@pytest.mark.parametrize("key", [f"{keys.PROBE_PREFIX}{1:032x}", "notes/readme.txt", "plans"])
def test_objects_of_no_lake_do_not_count(key: str) -> None:
    store = MemoryStore()
    store.create(key, b"{}")
    with pytest.raises(NothingPlanned):
        command_lake(store).load_existing()


def test_every_object_of_a_lake_lies_below_one_of_the_prefixes() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    others = [key for key in small.keys("") if key != keys.ROOT]
    assert others
    assert [key for key in others if not key.startswith(keys.LAKE_PREFIXES)] == []


def test_each_prefix_of_the_keys_counts_except_those_of_scratch_objects() -> None:
    found = {value for name, value in vars(keys).items() if name.endswith("_PREFIX")}
    assert found - {keys.PROBE_PREFIX, keys.ROOM_PREFIX} == set(keys.LAKE_PREFIXES)


def test_a_root_that_disappears_after_it_was_read_is_gone() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    assert isinstance(small.store, MemoryStore)
    lake = command_lake(small.store)
    lake.load_existing()
    small.store.delete(small.keys(""))
    with pytest.raises(RootVanished):
        lake.load_existing()


def test_without_the_right_to_list_nothing_is_known() -> None:
    class Unlisted(MemoryStore):
        def list(self, prefix: str) -> Iterator[Listed]:
            raise SettingsError("listing is denied.", hint="allow it.")

    with pytest.raises(RootVanished):
        command_lake(Unlisted()).load_existing()


@pytest.mark.parametrize("begun", [True, False])
def test_a_first_root_is_never_created_over_an_old_lake(begun: bool) -> None:
    """The guard of writers does not depend on how the lake was opened."""
    small = SmallLake()
    small.run(days(1, 2))
    small.store.delete([keys.ROOT])
    lake = Lake(small.store, counting_runtime(900), proven=True, begun=begun)
    with pytest.raises(RootVanished, match=r"root\.json does not exist, but .* does"):
        lake.open(pipeline(small.store.uri).name)
    assert small.store.get(keys.ROOT) is None
