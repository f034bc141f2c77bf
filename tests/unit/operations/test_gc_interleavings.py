"""C13, call by call: a whole collection between any two requests of a plan or a commit, and the other way round.

The explorer meets these by chance; here each place is tried once, on real table metadata.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.table import TableProperties

from support.fakes import stage
from support.small_lake import NOW, SmallLake, days, good_lake
from tallystick.errors import Corrupt, RetryLater, Superseded
from tallystick.format import keys
from tallystick.lake import Lake, Snapshot, Update
from tallystick.operations.commit import commit
from tallystick.operations.gc import Collection, collect
from tallystick.operations.verify import verify
from tallystick.store import ETag, Listed, Outcome, Store, Stored
from tallystick.store.memory import MemoryStore
from tallystick.tables import snapshots, staging
from tallystick.tables.reach import IcebergReach
from tallystick.tables.staging import IcebergTables
from tallystick_devstack.testing.faults import APPLICABLE, Fault, FaultyStore, Killed, script

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
    (piece,) = small.plan(WANTED, clear=1).intervals
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
    lake = Lake(store, small.runtime, proven=True)
    tables = IcebergTables(store, small.runtime)
    commit(lake, tables, plan_key=PLAN_KEY, report_key=REPORT_KEY)


def plan_over(small: SmallLake, store: Store) -> None:
    SmallLake(store=store, log=small.log, runtime=small.runtime, job=small.job).plan(NEXT)


def gc_over(cancel_after: timedelta | None) -> Callable[[SmallLake, Store], Collection]:
    def task(small: SmallLake, store: Store) -> Collection:
        lake = Lake(store, small.runtime, proven=True)
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
    entries = small.lake.load_existing().whole_ledger().entries
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


# ---------------------------------------------------------------- narrower places


def test_a_collection_right_after_a_lost_reply_leaves_the_writer_no_false_alarm() -> None:
    """A create landed and its reply was lost; gc takes the object between the writer's second try and its look."""
    first = FaultyStore(STAGED.copy().store)
    commit_over(STAGED.copy(), first)
    creates = [call.index for call in first.calls if call.verb == "create"]
    assert len(creates) > 10
    for index in creates:
        small = STAGED.copy()
        faulty = FaultyStore(small.store, script({index: Fault.LOSE_REPLY}))
        gc = gc_over(KEEP)
        commit_over(small, Meanwhile(faulty, index + 2, lambda gc=gc, s=small: gc(s, s.store)))  # type: ignore[misc]
        finish(small, f"gc after the second try of call {index}")


class Before(Meanwhile):
    """Does something once, right before the root is swapped."""

    def _next(self) -> Store:
        return self._store

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        if not self.calls:
            self.calls = 1
            self._action()
        return super().replace(key, body, expected=expected)


def test_a_grant_that_was_committed_before_gc_could_give_it_up_is_not_told_as_given_up() -> None:
    small = STAGED.copy()
    store = Before(small.store, 0, lambda: commit_over(small, small.store))
    assert gc_over(GIVE_UP)(small, store).cancelled == ()
    assert verify(small.lake).proven


def test_a_grant_that_was_given_up_by_a_swap_of_unknown_outcome_is_told() -> None:
    small = STAGED.copy()
    before = FaultyStore(STAGED.copy().store)
    gc_over(GIVE_UP)(STAGED.copy(), before)
    (swap,) = (call.index for call in before.calls if call.verb == "replace")
    lost = FaultyStore(small.store, script({swap: Fault.LOSE_REPLY}))
    assert [c.plan for c in gc_over(GIVE_UP)(small, lost).cancelled] == [PLAN_KEY]


class Moving(Meanwhile):
    """The root moves whenever a commit record is read, as on a busy lake."""

    def _next(self) -> Store:
        return self._store

    def get(self, key: str) -> Stored | None:
        if keys.kind(key) == "record":
            self.calls += 1
            assert self.calls < 500, "it goes on for ever"
            self._action()
        return self._store.get(key)


def moving(small: SmallLake) -> Moving:
    def untouched(snapshot: Snapshot) -> Update[None]:
        return Update(
            tables=snapshot.root.tables,
            topics=snapshot.root.topics,
            ledger=snapshot.around(()),
            value=None,
        )

    lake = Lake(small.store, small.runtime, proven=True)
    return Moving(small.store, 0, lambda: lake.swap(untouched))


def test_a_lake_that_moves_all_the_time_is_still_told_to_be_set_back() -> None:
    small = STAGED.copy()
    assert isinstance(small.store, MemoryStore)
    then = small.store._objects[keys.ROOT]
    for clear in (3, 4):
        small.job += b"!"
        small.run(days(1, 2), clear=clear)
    small.store._objects[keys.ROOT] = then
    for clear in (3, 4, 5):
        small.job += b"?"
        small.run(WANTED, clear=clear)
    with pytest.raises(Corrupt, match="the root was set back"):
        gc_over(KEEP)(small, moving(small))


def test_a_commit_into_a_damaged_table_ends_although_the_root_moves_all_the_time() -> None:
    small = STAGED.copy()
    metadata = small.lake.load_existing().root.tables["events"].metadata
    assert metadata is not None
    small.store.delete([metadata])
    with pytest.raises(Corrupt, match="is gone"):
        commit_over(small, moving(small))


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """Two versions whose tables the metadata of now does not name: one snapshot and one older file are listed."""
    kept = {**staging.TABLE_PROPERTIES, TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "1"}
    monkeypatch.setattr(staging, "TABLE_PROPERTIES", kept)
    monkeypatch.setattr(staging, "expire", partial(snapshots.expire, keep=1))
    small = good_lake(MemoryStore(now=lambda: NOW))
    for clear in (1, 2):
        small.job += b"!"
        small.run(days(3, 4), clear=clear)
    return small


def test_a_collection_with_a_shorter_grace_may_take_old_versions_while_this_one_marks(
    forgetful: SmallLake,
) -> None:
    """The other one has swapped and marked before; its deletions land before each call of this one."""
    small = forgetful

    def with_grace(store: Store) -> Collection:
        return collect(
            Lake(store, small.runtime, proven=True),
            IcebergReach(store),
            delete=True,
            reader_grace=timedelta(days=1),
            cancel_after=None,
            threads=0,
        )

    calls = Meanwhile(small.copy().store, -1, lambda: None)
    with_grace(calls)
    for index in range(0, calls.calls, 5):
        copy = small.copy()
        doomed = Withheld(copy.store, -1, lambda: None)
        gc_over(KEEP)(copy, doomed)
        assert doomed.keys
        with_grace(
            Meanwhile(copy.store, index, lambda s=copy, d=doomed: s.store.delete(d.keys))  # type: ignore[misc]
        )
        assert verify(copy.lake).proven, index


class Withheld(Meanwhile):
    """Notes what is to be deleted."""

    def __init__(self, store: Store, index: int, action: Callable[[], object]) -> None:
        super().__init__(store, index, action)
        self.keys: list[str] = []

    def delete(self, keys: Iterable[str]) -> None:
        self.keys += keys
