"""A commit that moves complete entries to the page before the newest one may end at any write, and be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from bench.parts.commits import append_hour, interval
from support.fakes import FakeLog, stage
from support.small_lake import TOPIC, SmallLake
from tallystick.format.root import Root
from tallystick.lake import Lake
from tallystick.operations.commit import commit
from tallystick.operations.verify import verify
from tallystick.store import ETag, Listed, Outcome, Store, Stored
from tallystick.tables.staging import IcebergTables

PAGE_BYTES_MAX = 16_000
COMMITTED, WAITING = 12, 8


class ProcessEnded(BaseException):
    """The end of a process, which no code of it can catch as an error."""


class EndingStore:
    """A store whose process ends at the write number `ends_at`, before it is sent or after it has taken place."""

    def __init__(self, store: Store, ends_at: int, *, is_applied: bool) -> None:
        self.store, self.is_applied = store, is_applied
        self.left = ends_at

    @property
    def uri(self) -> str:
        return self.store.uri

    def get(self, key: str) -> Stored | None:
        return self.store.get(key)

    def list(self, prefix: str) -> Iterator[Listed]:
        return self.store.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self.store.delete(keys)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        self._before()
        outcome = self.store.create(key, body)
        self._after()
        return outcome

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        self._before()
        outcome = self.store.replace(key, body, expected=expected)
        self._after()
        return outcome

    def _before(self) -> None:
        self.left -= 1
        if self.left == 0 and not self.is_applied:
            raise ProcessEnded

    def _after(self) -> None:
        if self.left == 0:
            raise ProcessEnded


def _lake(small: SmallLake, store: Store) -> Lake:
    return Lake(store, small.runtime, proven=True, page_bytes_max=PAGE_BYTES_MAX)


def _committed(small: SmallLake, store: Store, plan: str, report: str) -> Root:
    """Commit as a new process does; return the root after it."""
    lake = _lake(small, store)
    commit(lake, IcebergTables(store, small.runtime), plan_key=plan, report_key=report)
    return lake.load_existing().root


def _joins(before: Root, after: Root) -> bool:
    """Return True if the page before the newest one was replaced, and the number of pages is the same."""
    return len(before.pages) == len(after.pages) > 1 and before.pages[-2] != after.pages[-2]


@pytest.fixture(scope="module")
def joining() -> tuple[SmallLake, str, str]:
    """Return a lake with a plan and a report, the commit of which moves entries.

    Entries that wait for their commit stay in the newest page, so it is a commit after several plans.
    """
    log = FakeLog()
    log.create(TOPIC)
    small = SmallLake(log=log)
    small.lake = _lake(small, small.store)
    for hour in range(COMMITTED):
        append_hour(log, hour)
        small.run(interval(hour))
    waiting = []
    for hour in range(COMMITTED, COMMITTED + WAITING):
        append_hour(log, hour)
        (planned,) = small.plan(interval(hour)).intervals
        waiting.append((planned.plan, stage(small.lake, log, planned.plan)))
    for plan, report in waiting:
        before = small.copy()
        root = small.lake.load_existing().root
        if _joins(root, _committed(small, small.store, plan, report)):
            return before, plan, report
    pytest.fail("no commit moved entries to the page before the newest one")


def _writes(small: SmallLake, plan: str, report: str) -> int:
    counted = EndingStore(small.copy().store, 0, is_applied=False)
    _committed(small, counted, plan, report)
    return -counted.left


@pytest.mark.parametrize("is_applied", [False, True])
def test_a_commit_that_ends_at_any_write_is_repeated_with_the_same_result(
    joining: tuple[SmallLake, str, str], is_applied: bool
) -> None:
    small, plan, report = joining
    expected = _entries(small.copy(), plan, report)
    writes = _writes(small, plan, report)
    assert writes >= 5  # two pages, the record and the root, and those of the tables
    for ends_at in range(1, writes + 1):
        again = small.copy()
        old = _lake(again, again.store).load_existing()
        with pytest.raises(ProcessEnded):
            _committed(
                small, EndingStore(again.store, ends_at, is_applied=is_applied), plan, report
            )
        # A reader of the root before the commit still finds each of its pages.
        assert len(old.whole_ledger().entries) == COMMITTED + WAITING
        assert _entries(again, plan, report) == expected, ends_at
        assert verify(_lake(again, again.store), deep=True).proven, ends_at


def _entries(small: SmallLake, plan: str, report: str) -> list[tuple[str, str]]:
    """Commit, and return each interval of the ledger with its committed plan."""
    root = _committed(small, small.store, plan, report)
    pages = _lake(small, small.store).load_existing().whole_ledger()
    assert len(root.pages) == 2
    return [(str(e.interval), e.committed.plan) for e in pages.entries if e.committed is not None]
