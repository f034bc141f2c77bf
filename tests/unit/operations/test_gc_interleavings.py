"""C13, call by call: a whole collection between any two requests of a plan or a commit, and the reverse.

The explorer finds these by chance; here each position is tried once, on real table metadata.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from support.fakes import stage
from support.small_lake import NOW, SmallLake, days, good_lake, with_short_history
from tallystick.errors import Corrupt, RetryLater, Superseded
from tallystick.format import keys
from tallystick.lake import Lake, Snapshot, Update
from tallystick.operations.commit import commit
from tallystick.operations.gc import Collection, collect
from tallystick.operations.verify import verify
from tallystick.store import ETag, Listed, Outcome, Store, Stored
from tallystick.store.memory import MemoryStore
from tallystick.tables.reach import IcebergReach
from tallystick.tables.staging import IcebergTables
from tallystick_devstack.testing.faults import APPLICABLE, Fault, FaultyStore, Killed, script

REPLACED = days(2, 3)
NEXT = days(3, 4)
KEEP, CANCEL = None, timedelta(days=-1)  # no grant is cancelled, or every grant is
Task = Callable[[SmallLake, Store], object]


def staged_lake() -> tuple[SmallLake, str, str]:
    """Return a lake with two commits, a staged replacement, and the leftovers of a lost attempt at it."""
    small = SmallLake()
    small.run(days(1, 2))
    small.run(REPLACED)
    small.job = b"version 2"
    (planned_day,) = small.plan(REPLACED, clear=1).intervals
    stage(small.lake, small.log, planned_day.plan)
    return small, planned_day.plan, stage(small.lake, small.log, planned_day.plan)


STAGED, PLAN_KEY, REPORT_KEY = staged_lake()


class Meanwhile:
    """A wrapper of a store that runs an action once, right before the call with that index."""

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


def count_calls(task: Task) -> int:
    store = Meanwhile(STAGED.copy().store, -1, lambda: None)
    task(STAGED.copy(), store)
    return store.calls


def finish(small: SmallLake, case: str, *, planned: bool = False) -> None:
    """End every run by a retry or a clear; then the lake is proven and a last collection finds nothing."""
    try:
        commit_over(small, small.store)
    except Superseded:
        small.run(REPLACED, clear=2)
    if planned:
        small.run(NEXT, clear=1)
    gc_over(KEEP)(small, small.store)
    assert gc_over(KEEP)(small, small.store).total.objects == 0, case
    assert verify(small.lake).proven, case
    entries = small.lake.load_existing().whole_ledger().entries
    expected = (days(1, 2), REPLACED, NEXT) if planned else (days(1, 2), REPLACED)
    assert [(e.interval, e.granted) for e in entries] == [(i, None) for i in expected], case


@pytest.mark.parametrize("cancel_after", [KEEP, CANCEL], ids=["keep", "cancel"])
@pytest.mark.parametrize("task", [commit_over, plan_over])
def test_a_collection_between_any_two_calls_of_a_task(
    task: Task, cancel_after: timedelta | None
) -> None:
    calls = count_calls(task)
    assert calls > 5
    for index in range(calls):
        small = STAGED.copy()
        gc = gc_over(cancel_after)
        try:
            task(small, Meanwhile(small.store, index, lambda gc=gc, s=small: gc(s, s.store)))  # type: ignore[misc]
        except Superseded:
            assert cancel_after == CANCEL, index  # otherwise the grant was not cancelled
        case = f"gc before call {index} of {calls}"
        finish(small, case, planned=task is plan_over)


@pytest.mark.parametrize("cancel_after", [KEEP, CANCEL], ids=["keep", "cancel"])
@pytest.mark.parametrize("task", [commit_over, plan_over])
def test_a_task_between_any_two_calls_of_a_collection(
    task: Task, cancel_after: timedelta | None
) -> None:
    gc = gc_over(cancel_after)
    calls = count_calls(gc)
    assert calls > 10
    for index in range(calls):
        small = STAGED.copy()

        def meanwhile(small: SmallLake = small) -> None:
            try:
                task(small, small.store)
            except Superseded:
                assert cancel_after == CANCEL

        gc(small, Meanwhile(small.store, index, meanwhile))
        case = f"the task before call {index} of {calls} of gc"
        finish(small, case, planned=task is plan_over)


@pytest.mark.parametrize("fault", sorted(Fault))
def test_a_collection_that_meets_a_fault_at_any_call_harms_nothing(fault: Fault) -> None:
    first = FaultyStore(STAGED.copy().store)
    gc_over(CANCEL)(STAGED.copy(), first)
    # A read that fails ends gc before anything is deleted, so the other calls are tried.
    fits = [c.verb != "get" and fault in APPLICABLE[c.verb] for c in first.calls]
    tried = [index for index, fits_here in enumerate(fits) if fits_here]
    for index in tried:
        small = STAGED.copy()
        faulty = FaultyStore(small.store, script({index: fault}))
        try:
            gc_over(CANCEL)(small, faulty)
        except (Killed, RetryLater):
            pass
        assert verify(small.lake).proven, f"{fault} at call {index}"
        while faulty.held:
            faulty.release()
        finish(small, f"{fault} at call {index}")


# ---------------------------------------------------------------- single positions


def test_a_collection_right_after_a_lost_reply_causes_no_false_error_in_the_writer() -> None:
    """A create was applied and its reply lost; gc deletes the object between the writer's second try and its read."""
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


class BeforeSwap(Meanwhile):
    """A wrapper of a store that runs an action once, right before the root is swapped."""

    def _next(self) -> Store:
        return self._store

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        if not self.calls:
            self.calls = 1
            self._action()
        return super().replace(key, body, expected=expected)


def test_a_grant_committed_before_gc_could_cancel_it_is_not_reported_as_cancelled() -> None:
    small = STAGED.copy()
    store = BeforeSwap(small.store, 0, lambda: commit_over(small, small.store))
    assert gc_over(CANCEL)(small, store).cancelled == ()
    assert verify(small.lake).proven


def test_a_grant_cancelled_by_a_swap_of_unknown_outcome_is_reported() -> None:
    small = STAGED.copy()
    before = FaultyStore(STAGED.copy().store)
    gc_over(CANCEL)(STAGED.copy(), before)
    (swap,) = (call.index for call in before.calls if call.verb == "replace")
    lost = FaultyStore(small.store, script({swap: Fault.LOSE_REPLY}))
    assert [c.plan for c in gc_over(CANCEL)(small, lost).cancelled] == [PLAN_KEY]


class ChangingRoot(Meanwhile):
    """A wrapper of a store: the root changes each time a commit record is read, as on a busy lake."""

    def _next(self) -> Store:
        return self._store

    def get(self, key: str) -> Stored | None:
        if keys.kind(key) == "record":
            self.calls += 1
            assert self.calls < 500, "gc does not end"
            self._action()
        return self._store.get(key)


def with_changing_root(small: SmallLake) -> ChangingRoot:
    def no_change(snapshot: Snapshot) -> Update[None]:
        return Update(
            tables=snapshot.root.tables,
            topics=snapshot.root.topics,
            ledger=snapshot.around(()),
            value=None,
        )

    lake = Lake(small.store, small.runtime, proven=True)
    return ChangingRoot(small.store, 0, lambda: lake.swap(no_change))


def test_a_root_that_was_set_back_is_detected_although_it_changes_all_the_time() -> None:
    small = STAGED.copy()
    assert isinstance(small.store, MemoryStore)
    then = small.store._objects[keys.ROOT]
    for clear in (3, 4):
        small.job += b"!"
        small.run(days(1, 2), clear=clear)
    small.store._objects[keys.ROOT] = then
    for clear in (3, 4, 5):
        small.job += b"?"
        small.run(REPLACED, clear=clear)
    with pytest.raises(Corrupt, match="the root was set back"):
        gc_over(KEEP)(small, with_changing_root(small))


def test_a_commit_into_a_damaged_table_ends_although_the_root_changes_all_the_time() -> None:
    small = STAGED.copy()
    metadata = small.lake.load_existing().root.tables["events"].metadata
    assert metadata is not None
    small.store.delete([metadata])
    with pytest.raises(Corrupt, match="does not exist"):
        commit_over(small, with_changing_root(small))


@pytest.fixture
def short_history() -> SmallLake:
    """Return a lake whose current metadata does not name the tables of two older versions."""
    small = good_lake(MemoryStore(now=lambda: NOW), declared=with_short_history)
    for clear in (1, 2):
        small.job += b"!"
        small.run(days(3, 4), clear=clear)
    return small


def test_a_collection_with_a_shorter_grace_may_delete_old_versions_while_this_one_marks(
    short_history: SmallLake,
) -> None:
    """The other collection has swapped and marked before; its deletions are applied before each call of this one."""
    small = short_history

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
        other = RecordsDeletions(copy.store, -1, lambda: None)
        gc_over(KEEP)(copy, other)
        assert other.keys
        with_grace(
            Meanwhile(copy.store, index, lambda s=copy, d=other: s.store.delete(d.keys))  # type: ignore[misc]
        )
        assert verify(copy.lake).proven, index


class RecordsDeletions(Meanwhile):
    """A wrapper of a store that records deletions instead of applying them."""

    def __init__(self, store: Store, index: int, action: Callable[[], object]) -> None:
        super().__init__(store, index, action)
        self.keys: list[str] = []

    def delete(self, keys: Iterable[str]) -> None:
        self.keys += keys
