"""The crash table, call by call: after a fault at any single request, the next run completes the work exactly once.

For each fault and each call index: the task meets the fault, a new process runs the task other, and late writes land
afterwards. The lake must then be the same as without the fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from support.fakes import stage
from support.small_lake import SmallLake, days
from tallystick.errors import RetryLater
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations.commit import commit
from tallystick.store import Store
from tallystick.tables.reading import live_files
from tallystick.tables.staging import IcebergTables
from tallystick_devstack.testing.faults import APPLICABLE, Fault, FaultyStore, Killed, script

FAULTS = sorted(Fault)
REPLACED = days(2, 3)


def staged_lake() -> tuple[SmallLake, str, str]:
    """Return a lake with a staged replacement, and the plan key and report key of the replacement."""
    small = SmallLake()
    small.run(days(1, 2))
    small.run(REPLACED)
    small.job = b"version 2"
    (planned_day,) = small.plan(REPLACED, clear=1).intervals
    return small, planned_day.plan, stage(small.lake, small.log, planned_day.plan)


STAGED, PLAN_KEY, REPORT_KEY = staged_lake()


def commit_over(small: SmallLake, store: Store) -> None:
    lake = Lake(store, small.runtime, proven=True)
    tables = IcebergTables(store, small.runtime)
    commit(lake, tables, plan_key=PLAN_KEY, report_key=REPORT_KEY)


def plan_over(small: SmallLake, store: Store) -> None:
    other = SmallLake(store=store, log=small.log, runtime=small.runtime, job=small.job)
    other.plan(days(3, 4))


def run_with_fault(
    task: Callable[[SmallLake, Store], None], small: SmallLake, faulty: FaultyStore
) -> None:
    """Run a task that may be killed or raise RetryLater; any other error is a defect."""
    try:
        task(small, faulty)
    except (Killed, RetryLater):
        pass


def calls_of(task: Callable[[SmallLake, Store], None]) -> list[str]:
    small = STAGED.copy()
    faulty = FaultyStore(small.store)
    task(small, faulty)
    return [call.verb for call in faulty.calls]


def indexes(task: Callable[[SmallLake, Store], None], fault: Fault) -> list[int]:
    return [i for i, verb in enumerate(calls_of(task)) if fault in APPLICABLE[verb]]  # type: ignore[index]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_commit_that_meets_a_fault_at_any_call_is_published_once(fault: Fault) -> None:
    tried = indexes(commit_over, fault)
    assert tried
    for index in tried:
        small = STAGED.copy()
        faulty = FaultyStore(small.store, script({index: fault}))
        run_with_fault(commit_over, small, faulty)
        commit_over(small, small.store)
        while faulty.held:
            faulty.release()
        commit_over(small, small.store)
        assert faulty.fired, index
        assert_published_once(small, f"{fault} at call {index}")


def assert_published_once(small: SmallLake, case: str) -> None:
    root = json.loads(_body(small, keys.ROOT))
    commits: list[str] = []
    key = root["record"]
    while key is not None:
        record = json.loads(_body(small, key))
        commits += [c["plan"] for c in record["intervals"]]
        key = record["parent"]
    assert commits.count(PLAN_KEY) == 1, case
    assert len(commits) == 3, case
    report = json.loads(_body(small, REPORT_KEY))
    for table, known in root["tables"].items():
        live = sorted(f.key for f in live_files(small.store, known["metadata"]))
        assert len(live) == len(set(live)), case
        staged = sorted(f["key"] for f in report["files"] if f["table"] == table)
        assert [k for k in live if f"/{REPLACED.part}/" in k] == staged, case


def _body(small: SmallLake, key: str) -> bytes:
    found = small.store.get(key)
    assert found is not None, key
    return found.body


@pytest.mark.parametrize("fault", FAULTS)
def test_a_plan_that_meets_a_fault_at_any_call_is_granted_once(fault: Fault) -> None:
    tried = indexes(plan_over, fault)
    assert tried
    for index in tried:
        small = STAGED.copy()
        faulty = FaultyStore(small.store, script({index: fault}))
        run_with_fault(plan_over, small, faulty)
        first = small.plan(days(3, 4))
        while faulty.held:
            faulty.release()
        assert small.plan(days(3, 4)).intervals == first.intervals, f"{fault} at call {index}"
        entry = (
            small.lake.load_existing().ledger(days(3, 4).start, days(3, 4).end).entry(days(3, 4))
        )
        assert entry is not None
        assert entry.granted is not None
        assert [p.plan for p in first.intervals] == [entry.granted.plan], f"{fault} at call {index}"
        assert entry.generation == 1, f"{fault} at call {index}"


def test_a_writer_deletes_nothing_at_any_fault() -> None:
    for fault in FAULTS:
        for index in indexes(commit_over, fault):
            small = STAGED.copy()
            before = {listed.key for listed in small.store.list("")}
            faulty = FaultyStore(small.store, script({index: fault}))
            run_with_fault(commit_over, small, faulty)
            assert before <= {listed.key for listed in small.store.list("")}
            assert "delete" not in {call.verb for call in faulty.calls}
