"""The swap loop at its deadlines: an applied swap is not reported as lost, and an unknown outcome is not forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.small_lake import SmallLake, days
from tallystick.errors import InvalidRequest, OutcomeUnknown, SettingsError, SwapContended
from tallystick.format import canonical, keys
from tallystick.lake import CONTENDED_S, Lake, NoUpdate, Snapshot, Update
from tallystick.store import ETag, NotApplied, Outcome, Store, Unknown
from tallystick.store.memory import MemoryStore
from tallystick.store.tries import UNKNOWN_S
from tallystick_devstack.testing.faults import Call, Fault, FaultyStore

Step = Callable[[Snapshot], Update[str] | NoUpdate[str]]


@dataclass
class Clock:
    """A clock that only the test advances."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def lake_over(small: SmallLake, store: Store, clock: Clock) -> Lake:
    def sleep(pause_s: float) -> None:
        clock.now_s += max(pause_s, 1.0)

    return Lake(store, replace(small.runtime, monotonic_s=clock, sleep=sleep), proven=True)


def at_root(*faults: Fault) -> Callable[[Call], Fault | None]:
    """Fail the first writes of the root, in this order."""
    left = iter(faults)

    def plan(call: Call) -> Fault | None:
        return next(left, None) if (call.verb, call.key) == ("replace", keys.ROOT) else None

    return plan


def committed_lake() -> SmallLake:
    small = SmallLake()
    small.run(days(1, 2))
    return small


def once(snapshot: Snapshot) -> Update[str] | NoUpdate[str]:
    """Update only the version, once: no update if the root is newer than the first one."""
    if snapshot.root.version > 3:
        return NoUpdate(value="found")
    ledger = snapshot.ledger(days(1, 2).start, days(1, 2).end)
    return Update(
        tables=snapshot.root.tables, topics=snapshot.root.topics, ledger=ledger, value="swapped"
    )


def test_an_applied_swap_whose_reply_was_lost_is_found_after_the_deadline() -> None:
    small, clock = committed_lake(), Clock()
    assert small.lake.load_existing().root.version == 3

    def slow(snapshot: Snapshot) -> Update[str] | NoUpdate[str]:
        clock.now_s += CONTENDED_S
        return once(snapshot)

    faulty = FaultyStore(small.store, at_root(Fault.LOSE_REPLY))
    assert lake_over(small, faulty, clock).swap(slow) == "found"
    assert small.lake.load_existing().root.version == 4


def test_swaps_that_other_writers_win_end_as_contended() -> None:
    small, clock = committed_lake(), Clock()
    lake = lake_over(small, small.store, clock)

    def loses(snapshot: Snapshot) -> Update[str] | NoUpdate[str]:
        clock.now_s += CONTENDED_S / 3
        # Another writer changes the root between this read and this swap, each time.
        small.lake.swap(lambda other: replace_version(other, snapshot.root.version))
        return replace_version(snapshot, snapshot.root.version)

    with pytest.raises(SwapContended, match=r"^2 swaps of .* were lost to other writers"):
        lake.swap(loses)


def replace_version(snapshot: Snapshot, known: int) -> Update[str] | NoUpdate[str]:
    if snapshot.root.version > known:
        return NoUpdate(value="moved")
    ledger = snapshot.ledger(days(1, 2).start, days(1, 2).end)
    return Update(
        tables=snapshot.root.tables, topics=snapshot.root.topics, ledger=ledger, value="swapped"
    )


def test_an_unknown_outcome_is_retried_while_the_store_is_unavailable_and_then_resolved() -> None:
    small, clock = committed_lake(), Clock()
    away = (Fault.UNAVAILABLE,) * 20
    faulty = FaultyStore(small.store, at_root(Fault.LOSE_REPLY, *away))
    assert lake_over(small, faulty, clock).swap(once) == "found"
    assert small.lake.load_existing().root.version == 4


def test_an_outcome_that_is_unknown_at_the_deadline_is_raised_and_nothing_is_deleted() -> None:
    small, clock = committed_lake(), Clock()
    before = small.keys("")
    faulty = FaultyStore(small.store, at_root(Fault.DROP, *(Fault.UNAVAILABLE,) * 500))
    with pytest.raises(OutcomeUnknown, match=r"is unknown after \d+ tries"):
        lake_over(small, faulty, clock).swap(once)
    assert clock.now_s >= UNKNOWN_S
    assert set(before) <= set(small.keys(""))
    assert small.lake.load_existing().root.version == 3


def test_a_refusal_does_not_hide_an_earlier_unknown_outcome() -> None:
    small, clock = committed_lake(), Clock()

    class Expired:
        """A store whose credentials expire between the first try, whose reply is lost, and the second."""

        def __init__(self) -> None:
            self.answers = self._answers()

        def __getattr__(self, name: str) -> Any:
            return getattr(small.store, name)

        def _answers(self) -> Iterator[Outcome]:
            yield Unknown(because="reset")
            raise SettingsError("the token expired.", hint="renew it.")

        def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
            return next(self.answers)

    store: Any = Expired()
    with pytest.raises(OutcomeUnknown, match="the token expired"):
        lake_over(small, store, clock).swap(once)


def test_an_object_that_is_too_large_to_be_read_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = committed_lake()
    monkeypatch.setattr("tallystick.lake.lake.BODY_BYTES_MAX", 1000)
    key = keys.plan(days(1, 2).start, days(1, 2).end, small.runtime.uuid())
    small.lake.put_new(key, b"x" * 1000)
    with pytest.raises(InvalidRequest, match=r"expected at most 1000 bytes, found 1001"):
        small.lake.put_new(key.replace("plans", "other"), b"x" * 1001)
    assert canonical.BODY_BYTES_MAX == 64 << 20


def test_pages_that_the_root_no_longer_names_leave_the_cache() -> None:
    small = SmallLake(store=MemoryStore("pages"))
    for number in (1, 2, 3, 4):
        small.run(days(number, number + 1))
    small.lake.load_existing().whole_ledger()
    assert set(small.lake._pages) == {ref.key for ref in small.lake.load_existing().root.pages}


class Denying(MemoryStore):
    """A store that answers that every fresh key exists, and then has no object there."""

    creates = 0

    def create(self, key: str, body: bytes | Path) -> Outcome:
        self.creates += 1
        assert self.creates < 10_000, "put_new does not end"
        return NotApplied(because="exists")


def test_a_store_that_contradicts_itself_ends_as_outcome_unknown() -> None:
    clock = Clock()
    lake = lake_over(SmallLake(), Denying(), clock)
    with pytest.raises(OutcomeUnknown, match="but a read found none"):
        lake.put_new(keys.page("0" * 32), b"{}")
    assert clock.now_s >= UNKNOWN_S
