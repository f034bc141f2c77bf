"""The outline of a ledger has what its status needs, and a cache of it reads only what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from support.large_lake import LargeLake
from support.small_lake import SmallLake, days, good_lake
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations.release import release
from tallystick.operations.status import StatusCache, read_status
from tallystick.store import Stored
from tallystick.store.memory import MemoryStore


class CountingStore(MemoryStore):
    """A store that keeps the keys that were read."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.read: list[str] = []

    def get(self, key: str) -> Stored | None:
        self.read.append(key)
        return super().get(key)

    def pages_read(self) -> int:
        """Return how many ledger pages were read since the last call."""
        count = sum(keys.kind(key) == "page" for key in self.read)
        self.read.clear()
        return count


@pytest.fixture
def small() -> SmallLake:
    return good_lake(CountingStore("outline"))


STEPS: list[Callable[[SmallLake], object]] = [
    lambda lake: lake.run(days(4, 5)),
    lambda lake: release(lake.lake, days(6, 7)),
    lambda lake: lake.run(days(9, 10)),
    lambda lake: lake.run(days(2, 3), run="manual__1", mode="replace"),
    lambda lake: lake.run(days(12, 14)),
    lambda lake: lake.run(days(7, 8)),
]


def states(small: SmallLake) -> Iterator[SmallLake]:
    """Yield the lake after each of several steps: gaps arise, move and are filled, an interval is replaced."""
    yield small
    for step in STEPS:
        step(small)
        yield small


@pytest.mark.parametrize("page_bytes_max", [300, 1000, 256 * 1024])
def test_every_boundary_is_the_ledgers_also_where_the_outline_lacks_it(
    small: SmallLake, page_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.lake.page_bytes_max = page_bytes_max
    cache = StatusCache()
    for lake in states(small):
        snapshot = lake.lake.load_existing()
        whole, seen = snapshot.whole_ledger(), cache.ledger(snapshot)
        assert seen.entries == whole.entries
        assert (seen.first, seen.last) == (whole.boundaries[0], whole.boundaries[-1])
        assert [seen.boundary(b.at) for b in whole.boundaries] == list(whole.boundaries)
        for boundary in whole.boundaries:
            assert seen.boundary(boundary.at + timedelta(milliseconds=1)) is None
            assert seen.boundary(boundary.at - timedelta(milliseconds=1)) is None
        assert seen.boundary(whole.boundaries[0].at - timedelta(days=400)) is None


def test_a_cached_status_is_the_status(small: SmallLake) -> None:
    small.lake.page_bytes_max = 300
    cache = StatusCache()
    for lake in states(small):
        assert read_status(lake.lake, cache=cache) == read_status(lake.lake)


def test_a_second_status_reads_no_page_and_a_later_one_only_new_pages(small: SmallLake) -> None:
    store = small.store
    assert isinstance(store, CountingStore)
    small.lake.page_bytes_max = 300
    small.run(days(4, 5))
    cache = StatusCache()
    lake = Lake(store, small.lake.runtime, proven=True)
    pages = len(lake.load_existing().root.pages)
    assert pages > 2
    store.pages_read()
    read_status(lake, cache=cache)
    assert store.pages_read() == pages
    read_status(lake, cache=cache)
    assert store.pages_read() == 0
    small.run(days(9, 10))
    store.pages_read()
    read_status(lake, cache=cache)
    assert 0 < store.pages_read() < pages


def test_the_status_of_a_large_ledger_needs_few_of_its_boundaries() -> None:
    lake = LargeLake(intervals=1_200, topics=3, partitions=2).write(MemoryStore("large"))
    snapshot = lake.load_existing()
    pages = [snapshot.page_outline(ref.key) for ref in snapshot.root.pages]
    assert sum(len(page.edges) for page in pages) < 40
    status = read_status(lake)
    assert len(status.gaps) == 2
    assert {gap.offsets for gap in status.gaps} == {600}
    assert {gap.intervals for gap in status.gaps} == {1}
    assert len(status.grants) == 3
    assert status.read_to == dict.fromkeys(status.topics, (119_700, 119_700))
