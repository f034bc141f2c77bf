"""`as_of`: the last commit at or before a version or an instant, as far as gc has kept it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from support.small_lake import NOW, SmallLake, days, with_short_history
from tallystick.errors import Corrupt, InvalidRequest
from tallystick.operations.gc import collect
from tallystick.operations.status import AsOf, LakeTables, past, read_log, read_tables
from tallystick.store import Stored
from tallystick.store.memory import MemoryStore
from tallystick.tables.reach import IcebergReach

HOUR = timedelta(hours=1)


class Counting(MemoryStore):
    """A store that remembers the keys that are read."""

    def __init__(self) -> None:
        super().__init__(now=lambda: NOW)
        self.read: list[str] = []

    def get(self, key: str) -> Stored | None:
        self.read.append(key)
        return super().get(key)

    def records_read(self) -> int:
        return sum(key.startswith("commits/") for key in self.read)


def at(small: SmallLake, now: datetime) -> None:
    """Set the clock of the lake."""
    small.runtime = replace(small.runtime, now=lambda: now)
    small.lake.runtime = small.runtime


def committed_at(*times: datetime) -> SmallLake:
    """Return a lake with a commit at each of these times, in this order, of one day after the other."""
    small = SmallLake(store=Counting())
    for number, now in enumerate(times, start=1):
        at(small, now)
        small.run(days(1, 2) if number == 1 else days(number + 7, number + 8))
    return small


def versions(small: SmallLake) -> list[int]:
    """Return the versions of the commits, oldest first."""
    return [line.version for line in reversed(read_log(small.lake, limit=None).commits)]


def read(small: SmallLake, as_of: AsOf) -> LakeTables:
    return read_tables(small.lake, count=False, as_of=as_of)


# ---------------------------------------------------------------- instants


def test_an_instant_reads_the_last_commit_at_or_before_it() -> None:
    small = committed_at(NOW, NOW + HOUR, NOW + 2 * HOUR)
    first, second, third = versions(small)
    moment = timedelta(milliseconds=1)
    assert read(small, NOW).version == first
    assert read(small, NOW + HOUR - moment).version == first
    assert read(small, NOW + HOUR).version == second
    assert read(small, NOW + 2 * HOUR).version == third
    assert read(small, NOW + timedelta(days=400)).version == third
    for version in (first, second, third):
        line = next(c for c in read_log(small.lake, limit=None).commits if c.version == version)
        assert read(small, line.committed_at) == read(small, version)


def test_an_instant_with_an_offset_is_the_same_as_in_utc() -> None:
    small = committed_at(NOW, NOW + 2 * HOUR)
    there = (NOW + HOUR).astimezone(timezone(timedelta(hours=-7)))
    assert there.date() < NOW.date()
    assert read(small, there) == read(small, NOW + HOUR)


def test_the_chain_determines_the_order_if_the_clocks_of_committers_differ() -> None:
    """The second commit is by a machine whose clock is an hour ahead. The third one has its rows, too."""
    small = committed_at(NOW, NOW + HOUR + timedelta(minutes=2), NOW + timedelta(minutes=5))
    first, second, third = versions(small)
    assert read(small, NOW + timedelta(minutes=4)).version == first
    assert read(small, NOW + timedelta(minutes=10)).version == third
    assert read(small, NOW + 2 * HOUR).version == third
    assert second not in {read(small, NOW + timedelta(minutes=m)).version for m in range(130)}


def test_an_instant_without_an_offset_is_refused() -> None:
    small = committed_at(NOW)
    with pytest.raises(
        InvalidRequest, match="expected an instant with an offset, found 2024-05-01T00:00:00 "
    ):
        read(small, NOW.replace(tzinfo=None))


def test_an_instant_before_the_first_commit_is_refused_with_the_time_of_that_commit() -> None:
    small = committed_at(NOW, NOW + HOUR)
    (first, _) = versions(small)
    with pytest.raises(InvalidRequest) as refused:
        read(small, datetime(2024, 4, 30, 12, tzinfo=UTC))
    assert "by 2024-04-30T12:00:00+00:00" in refused.value.message
    assert (
        f"the first commit is version {first}, at 2024-05-01T00:00:00.000Z" in refused.value.message
    )


def test_a_lake_without_any_commit_has_no_past() -> None:
    small = SmallLake()
    small.plan(days(1, 2))
    with pytest.raises(InvalidRequest, match=r"nothing was committed to memory://\S+ by 2024-"):
        read(small, NOW)


# ---------------------------------------------------------------- the walk along the chain


def test_each_commit_after_the_one_that_is_found_costs_one_request() -> None:
    small = committed_at(*(NOW + n * HOUR for n in range(5)))
    assert isinstance(small.store, Counting)
    for steps, version in enumerate(reversed(versions(small)), start=1):
        small.store.read.clear()
        assert read(small, version).version == version
        assert small.store.records_read() == steps


def test_a_record_that_is_gone_is_corrupt_and_not_the_end_of_the_chain() -> None:
    small = committed_at(NOW, NOW + HOUR, NOW + 2 * HOUR)
    first, second, _ = versions(small)
    (gone,) = [key for key in small.keys("commits/") if f"{second:012d}" in key]
    small.store.delete([gone])
    with pytest.raises(Corrupt, match="the chain of commits names this record"):
        read(small, first)


# ---------------------------------------------------------------- collected versions


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """Return a lake of ten commits, an hour apart; gc has kept those that were current in the last 2.5 hours."""
    monkeypatch.setattr(past, "FIRST_CHECK", 1)
    small = SmallLake(store=Counting(), declared=with_short_history)
    for number in range(10):
        at(small, NOW + number * HOUR)
        small.job = f"version {number}".encode()
        small.run(days(1, 2), clear=number)
    collect(
        small.lake,
        IcebergReach(small.store),
        delete=True,
        reader_grace=timedelta(hours=2, minutes=30),
        cancel_after=None,
    )
    return small


def test_a_version_that_gc_has_collected_is_refused_with_the_oldest_that_can_be_read(
    collected: SmallLake,
) -> None:
    every = versions(collected)
    oldest = every[-4]
    readable = [version for version in every if version >= oldest]
    assert [read(collected, version).version for version in readable] == readable
    for version in every[:-4]:
        with pytest.raises(InvalidRequest) as refused:
            read(collected, version)
        assert f"The oldest version that can be read is {oldest}." in refused.value.message
        assert f"version {version}" in refused.value.message
        assert "gc has collected tables/" in refused.value.message


def test_an_instant_whose_version_gc_has_collected_is_refused_likewise(
    collected: SmallLake,
) -> None:
    oldest = versions(collected)[-4]
    assert read(collected, NOW + 6 * HOUR).version == oldest
    with pytest.raises(InvalidRequest) as refused:
        read(collected, NOW + 2 * HOUR)
    assert "(2024-05-01T02:00:00+00:00 was requested)" in refused.value.message
    assert f"The oldest version that can be read is {oldest}." in refused.value.message


def test_the_walk_ends_at_twice_what_gc_has_kept_also_if_the_chain_is_longer(
    collected: SmallLake,
) -> None:
    assert isinstance(collected.store, Counting)
    kept, every = 4, versions(collected)
    for wanted in (every[0], 1, NOW - HOUR):
        collected.store.read.clear()
        with pytest.raises(InvalidRequest, match="can no longer be read"):
            read(collected, wanted)
        assert kept < collected.store.records_read() <= 2 * kept
    assert len(every) > 2 * kept
