"""A status of the newest intervals shows what one of all intervals shows, and reads older pages only for their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.large_lake import LargeLake
from support.small_lake import SmallLake, days, good_lake
from tallystick.cli import json_output, status_text
from tallystick.format import keys
from tallystick.format.lookback import LookbackUsed
from tallystick.format.page import Entry
from tallystick.lake import Lake
from tallystick.operations.status import Status, problems, read_status
from tallystick.store import Stored
from tallystick.store.memory import MemoryStore
from unit.operations.test_status_outline import CountingStore, states

ENDLESS = 10**9
PAGE_BYTES = 8_000


def shown(answer: Status, count: int) -> Any:
    """Return all that a person and a program see of the newest `count` intervals and of the whole."""
    found = problems(answer)
    document = json_output.status(answer, problems=found, lag=None, limit=count)
    for grant in document["grants"]:
        grant.pop("age_s")
    text = status_text.status(answer, limit=count, problems=found)
    sums = (answer.totals, answer.generations, answer.count, answer.committed_count, answer.dags)
    return document, text, sums, answer.uncommitted, answer.read_to, answer.committed_to


def both(lake: Lake, count: int) -> tuple[Status, Status]:
    """Return the whole status and that of the newest intervals, after they were found to show the same."""
    whole, newest = read_status(lake), read_status(lake, newest=count)
    assert shown(newest, count) == shown(whole, count)
    return whole, newest


@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize("page_bytes_max", [300, 1000, 256 * 1024])
def test_the_newest_of_a_ledger_with_gaps_and_replacements(page_bytes_max: int, count: int) -> None:
    small: SmallLake = good_lake(MemoryStore("newest"))
    small.lake.page_bytes_max = page_bytes_max
    for state in states(small):
        both(state.lake, count)


def large(**options: Any) -> LargeLake:
    options = {"gap_every": ENDLESS, "page_bytes_max": PAGE_BYTES, **options}
    return LargeLake(intervals=1_200, topics=2, **options)


@pytest.mark.parametrize("count", [1, 50, 1_000, 5_000])
def test_older_pages_without_anything_to_report_are_summed(count: int) -> None:
    whole, newest = both(large().write(MemoryStore("large")), count)
    assert len(whole.pending) == 12
    assert newest.older.count + len(newest.intervals) == len(whole.intervals) == 1_200
    # A page with a pending publication is read: each has about a dozen intervals, and each 97th is pending.
    expected = {1: 950, 50: 900, 1_000: 100, 5_000: 0}[count]
    assert newest.older.count >= expected
    assert newest.older.count == 0 or count < 5_000


def test_each_page_is_read_once() -> None:
    store = CountingStore("large")
    lake = large().write(store)
    pages = len(lake.load_existing().root.pages)
    for count, gap_every in ((10, ENDLESS), (10, 700)):
        store = CountingStore("large")
        lake = large(gap_every=gap_every).write(store)
        store.pages_read()
        read_status(lake, newest=count)
        # Each side of a gap has a boundary that an outline lacks, or not: at most four more reads for one gap.
        assert pages <= store.pages_read() <= pages + (0 if gap_every == ENDLESS else 4)


class MovingStore(MemoryStore):
    """A store in which another process commits, and gc deletes a page, at the first read of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.commit: Callable[[], object] | None = None

    def get(self, key: str) -> Stored | None:
        if self.commit is not None and keys.kind(key) == "page":
            commit, self.commit = self.commit, None
            commit()
            self.delete([key])
        return super().get(key)


@pytest.mark.parametrize("count", [1, 100])
def test_a_page_that_gc_deletes_meanwhile_is_no_damage(count: int) -> None:
    store = MovingStore("moving")
    small = good_lake(store)
    # A lake that keeps no pages, as that of another process.
    lake = Lake(store, small.lake.runtime, proven=True)
    before = read_status(lake, newest=count).version
    store.commit = lambda: small.run(days(4, 5))
    newest, whole = read_status(lake, newest=count), read_status(lake)
    assert store.commit is None
    assert newest.version == whole.version > before
    assert shown(newest, count) == shown(whole, count)


class WithLookback(LargeLake):
    """A lake of which one old interval has a lookback."""

    def _entries(self, uuids: Iterator[str]) -> Iterator[Entry]:
        for number, one in enumerate(super()._entries(uuids)):
            if number == 100:
                assert one.committed is not None
                used = LookbackUsed(since=one.interval.start)
                yield replace(one, committed=replace(one.committed, lookback=used))
            else:
                yield one


class ByHand(LargeLake):
    """A lake whose runs have no schedule."""

    def _entries(self, uuids: Iterator[str]) -> Iterator[Entry]:
        for one in super()._entries(uuids):
            slots = {
                name: replace(slot, request=replace(slot.request, run="manual__1"))
                for name, slot in (("granted", one.granted), ("committed", one.committed))
                if slot is not None
            }
            yield replace(one, **slots)


@pytest.mark.parametrize(
    ("kind", "gap_every"),
    [(LargeLake, 700), (WithLookback, ENDLESS), (ByHand, ENDLESS)],
    ids=["a gap", "a lookback", "no schedule"],
)
def test_every_interval_is_read_if_the_answer_depends_on_it(
    kind: type[LargeLake], gap_every: int
) -> None:
    lake = kind(intervals=1_200, topics=2, gap_every=gap_every, page_bytes_max=PAGE_BYTES)
    whole, newest = both(lake.write(MemoryStore("large")), 10)
    assert newest.intervals == whole.intervals
    assert newest.older.count == 0
