"""Stale intervals are found without reading the whole ledger, with the same result as from the whole ledger."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from support.small_lake import counting_runtime
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.lookback import LookbackUsed, UsedInterval
from tallystick.format.offsets import Position
from tallystick.format.page import Boundary, Committed, Entry, Totals
from tallystick.format.root import first_root
from tallystick.lake import Lake, Snapshot
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.staleness import stale
from tallystick.store.memory import MemoryStore

DAY = datetime(2020, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURS, BACK = 120, 6
CODE = "a" * 64
# Hours whose rows were replaced since by other runs: intervals that looked back at them are stale.
CHANGED = {30, 31, 77}


def _hour(number: int) -> Interval:
    return Interval(start=DAY + number * HOUR, end=DAY + (number + 1) * HOUR)


def _entry(number: int, uuid: str) -> Entry:
    interval = _hour(number)
    since = max(DAY, interval.start - BACK * HOUR)
    lookback_interval = Interval(start=since, end=interval.start) if number else None
    seen = (
        UsedInterval(interval=lookback_interval, fingerprint=CODE, records=10 * min(number, BACK)),
    )
    committed = Committed(
        plan=keys.plan(interval.start, interval.end, uuid),
        request=Request(dag="d", run=f"r{number}", clear=0),
        generation=1,
        fingerprint=CODE,
        record=keys.record(number + 2, uuid),
        totals=Totals(records=11 if number in CHANGED else 10),
        lookback=LookbackUsed(since=since, seen=seen if number else ()),
    )
    return Entry(interval=interval, generation=1, granted=None, committed=committed, served=())


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    """Return a lake of many pages, each of a few hours."""
    ids = (f"{number:032x}" for number in itertools.count(1))
    ledger = Ledger((), {})
    for number in range(HOURS + 1):
        at = DAY + number * HOUR
        ledger.set_boundary(Boundary(at=at, positions={"events": (Position(offset=10 * number),)}))
    for number in range(HOURS):
        ledger.put(_entry(number, next(ids)))
    index, pages = ledger.flush(ids, bytes_max=4_000)
    memory = MemoryStore("stale-among")
    for key, page in pages.items():
        memory.create(key, page.encode())
    root = replace(first_root("p", next(ids)), pages=index, version=HOURS + 2)
    memory.create(keys.ROOT, root.encode())
    assert len(pages) > 15
    return memory


def _snapshot(store: MemoryStore) -> Snapshot:
    return Lake(store, counting_runtime(), proven=True).load_existing()


def test_each_interval_is_as_stale_as_in_the_whole_ledger(store: MemoryStore) -> None:
    snapshot = _snapshot(store)
    whole = stale(snapshot.whole_ledger().entries)
    assert set(whole) == {
        _hour(n) for changed in CHANGED for n in range(changed + 1, changed + BACK + 1)
    }
    for number in range(HOURS):
        interval = _hour(number)
        expected = {interval: whole[interval]} if interval in whole else {}
        assert snapshot.stale_among([interval]) == expected
    assert snapshot.stale_among([_hour(3), _hour(33), _hour(99)]) == {_hour(33): whole[_hour(33)]}


def test_only_the_pages_of_the_interval_and_of_its_lookback_are_read(store: MemoryStore) -> None:
    snapshot = _snapshot(store)
    snapshot.stale_among([_hour(100)])
    read = set(snapshot.lake._pages)
    reached = [
        ref.key
        for ref in snapshot.root.pages
        if ref.until >= _hour(100 - BACK).start and ref.since <= _hour(100).end
    ]
    assert read >= set(reached)
    assert len(read - set(reached)) <= 2  # the boundaries on either side
    assert len(read) < len(snapshot.root.pages) / 3
