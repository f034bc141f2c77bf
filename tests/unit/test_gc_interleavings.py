"""C13, call by call: a whole collection between any two requests of a plan or a commit, and the other way round.

The explorer meets these by chance; here each place is tried once, on real table metadata.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from fakes import stage
from small_lake import SmallLake, days
from tallystick.commit import commit
from tallystick.errors import RetryLater, Superseded
from tallystick.gc import Collection, collect
from tallystick.lake import Lake
from tallystick.store import ETag, Listed, Outcome, Store, Stored
from tallystick.tables.reach import IcebergReach
from tallystick.tables.staging import IcebergTables
from tallystick.testing.faults import APPLICABLE, Fault, FaultyStore, Killed, script
from tallystick.verify import verify

WANTED = days(2, 3)
NEXT = days(3, 4)
KEEP, GIVE_UP = None, timedelta(days=-1)  # no grant is given up, or each is
Task = Callable[[SmallLake, Store], object]


def staged_lake() -> tuple[SmallLake, str, str]:
    """A lake with two commits behind it, a replacement staged, and left-overs of a lost attempt at it."""
    small = SmallLake()
    small.run(days(1, 2))
    small.run(WANTED)
    small.job = b"version 2"
    (piece,) = small.plan(WANTED, clear=1).pieces
    stage(small.lake, small.log, piece.plan)
    return small, piece.plan, stage(small.lake, small.log, piece.plan)


STAGED, PLAN_KEY, REPORT_KEY = staged_lake()


class Meanwhile:
    """A store in front of another that does something once, right before the call of that index."""

    def __init__(self, store: Store, index: int, action: Callable[[], object]) -> None:
        self._store, self._index, self._action = store, index, action
        self._lock = threading.Lock()
        self.calls = 0

    def _next(self) -> Store:
        with self._lock:
            due = self.calls == self._index
            self.calls += 1
            if due:
                self._action()
        return self._store

    @property
    def uri(self) -> str:
        return self._store.uri

    def get(self, key: str) -> Stored | None:
        return self._next().get(key)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        return self._next().create(key, body)

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        return self._next().replace(key, body, expected=expected)

    def list(self, prefix: str) -> Iterator[Listed]:
        return self._next().list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self._next().delete(keys)


def commit_over(small: SmallLake, store: Store) -> None:
    lake = Lake(store, small.world, proven=True)
    tables = IcebergTables(store, new_uuid=small.world.uuid, sleep=small.world.sleep)
    commit(lake, tables, plan_key=PLAN_KEY, report_key=REPORT_KEY)


def plan_over(small: SmallLake, store: Store) -> None:
    SmallLake(store=store, log=small.log, world=small.world, job=small.job).plan(NEXT)


def gc_over(cancel_after: timedelta | None) -> Callable[[SmallLake, Store], Collection]:
    def task(small: SmallLake, store: Store) -> Collection:
        lake = Lake(store, small.world, proven=True)
        return collect(
            lake,
            IcebergReach(store),
            delete=True,
            reader_grace=timedelta(0),
            cancel_after=cancel_after,
            batch=4,
            threads=0,
        )

    return task


def count(task: Task) -> int:
    store = Meanwhile(STAGED.copy().store, -1, lambda: None)
    task(STAGED.copy(), store)
    return store.calls


def finish(small: SmallLake, story: str, *, planned: bool = False) -> None:
    """Every run ends by a retry or a clear, the lake is proven, and a last collection leaves nothing."""
    try:
        commit_over(small, small.store)
    except Superseded:
        small.run(WANTED, clear=2)
    if planned:
        small.run(NEXT, clear=1)
    gc_over(KEEP)(small, small.store)
    assert gc_over(KEEP)(small, small.store).total.objects == 0, story
    assert verify(small.lake).proven, story
    entries = small.lake.require().whole_ledger().entries
    wanted = (days(1, 2), WANTED, NEXT) if planned else (days(1, 2), WANTED)
    assert [(e.interval, e.granted) for e in entries] == [(i, None) for i in wanted], story


@pytest.mark.parametrize("cancel_after", [KEEP, GIVE_UP], ids=["keep", "give-up"])
@pytest.mark.parametrize("task", [commit_over, plan_over])
def test_a_collection_between_any_two_calls_of_a_task(
    task: Task, cancel_after: timedelta | None
) -> None:
    calls = count(task)
    assert calls > 5
    for index in range(calls):
        small = STAGED.copy()
        gc = gc_over(cancel_after)
        try:
            task(small, Meanwhile(small.store, index, lambda gc=gc, s=small: gc(s, s.store)))  # type: ignore[misc]
        except Superseded:
            assert cancel_after == GIVE_UP, index  # else nobody took the grant away
        story = f"gc before call {index} of {calls}"
        finish(small, story, planned=task is plan_over)


@pytest.mark.parametrize("cancel_after", [KEEP, GIVE_UP], ids=["keep", "give-up"])
@pytest.mark.parametrize("task", [commit_over, plan_over])
def test_a_task_between_any_two_calls_of_a_collection(
    task: Task, cancel_after: timedelta | None
) -> None:
    gc = gc_over(cancel_after)
    calls = count(gc)
    assert calls > 10
    for index in range(calls):
        small = STAGED.copy()

        def meanwhile(small: SmallLake = small) -> None:
            try:
                task(small, small.store)
            except Superseded:
                assert cancel_after == GIVE_UP

        gc(small, Meanwhile(small.store, index, meanwhile))
        story = f"the task before call {index} of {calls} of gc"
        finish(small, story, planned=task is plan_over)


@pytest.mark.parametrize("fault", sorted(Fault))
def test_a_collection_that_meets_a_fault_at_any_call_harms_nothing(fault: Fault) -> None:
    first = FaultyStore(STAGED.copy().store)
    gc_over(GIVE_UP)(STAGED.copy(), first)
    # A read that fails ends it before anything is deleted; the rest of the calls is what matters.
    fits = [c.verb != "get" and fault in APPLICABLE[c.verb] for c in first.calls]
    tried = [index for index, fitting in enumerate(fits) if fitting]
    for index in tried:
        small = STAGED.copy()
        faulty = FaultyStore(small.store, script({index: fault}))
        try:
            gc_over(GIVE_UP)(small, faulty)
        except (Killed, RetryLater):
            pass
        assert verify(small.lake).proven, f"{fault} at call {index}"
        while faulty.held:
            faulty.release()
        finish(small, f"{fault} at call {index}")
