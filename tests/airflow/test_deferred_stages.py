"""Stage tasks that hold no slot, on a real Airflow: many wait at once, the triggerer dies, runs are cleared and killed.

The Spark master is simulated; tests/spark/test_standalone_drivers.py compares it with a real one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from support.deferred_stack import DAG, SLOTS, START, DeferredStack, deferred_stack
from tallystick.format import keys
from tallystick.operations.status import read_status
from tallystick.operations.verify import verify
from tallystick.tables.reading import static_table
from tallystick_devstack.process import wait_until

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(3600),
]
HOURS = int(os.environ.get("TEST_DEFERRED_STAGES", "6"))
KILLS = int(os.environ.get("TEST_DEFERRED_KILLS", "2"))
DEADLINE_S = 1800.0


@pytest.fixture(scope="module")
def stack() -> Iterator[DeferredStack]:
    with deferred_stack(HOURS) as running:
        yield running


def test_stages_wait_without_slots_and_each_is_committed_once_although_triggerers_die(
    stack: DeferredStack,
) -> None:
    """All wait at once, then the triggerer is killed again and again, one run is cleared, and one driver is killed."""
    assert HOURS > SLOTS
    api, master = stack.local.airflow.api(), stack.master
    api.set_paused(DAG, paused=False)
    wait_until(
        lambda: stack.states()["deferred"] == HOURS,
        deadline_s=DEADLINE_S,
        what=f"{HOURS} deferred stage tasks",
        poll_s=2,
    )
    assert master.states() == {"SUBMITTED": HOURS}

    # Clear: the driver of the deferred task is killed, and the next try submits another one.
    first = f"scheduled__{(START.replace(hour=1)).isoformat()}"
    api.clear_tasks(DAG, first, ["stage"])
    wait_until(
        lambda: master.states() == {"SUBMITTED": HOURS, "KILLED": 1},
        deadline_s=DEADLINE_S,
        what="another driver",
        poll_s=1,
    )

    # A driver that the cluster kills is no task's end: it is retried.
    with master._lock:
        victim = next(d for d in master.drivers.values() if d.state == "SUBMITTED")
        victim.state = "KILLED"
    for number in range(KILLS):
        stack.kill_triggerer()
        master.add_cores(1 if number < 2 else 0)
        done = sum(master.states().get(s, 0) for s in ("FINISHED", "FAILED"))
        enough = min(HOURS, done + max(1, HOURS // max(1, KILLS)))
        wait_until(
            lambda enough=enough: master.states().get("FINISHED", 0) >= enough,  # type: ignore[misc]
            deadline_s=DEADLINE_S,
            what=f"{enough} finished drivers after kill {number + 1}",
            poll_s=1,
        )
    wait_until(
        lambda: stack.states("commit")["success"] == HOURS,
        deadline_s=DEADLINE_S,
        what=f"{HOURS} commits",
        poll_s=2,
    )
    assert_each_record_once(stack)
    assert_lineage_has_each_offset_once(stack)
    assert_every_driver_accounted_for(stack)


def assert_each_record_once(stack: DeferredStack) -> None:
    """Compare the table with what was produced, row by row, and prove the lake."""
    lake = stack.lake()
    status = read_status(lake)
    assert [(one.interval.start.hour, one.state) for one in status.intervals] == [
        (hour % 24, "committed") for hour in range(HOURS)
    ]
    assert (status.gaps, status.grants) == ((), ())
    metadata = lake.load_existing().root.tables["events"].metadata
    assert metadata is not None
    rows = static_table(lake.store, metadata).scan().to_arrow().to_pylist()
    found = Counter((row["_kafka_partition"], row["_offset"]) for row in rows)
    assert found == Counter(list(stack.sent))
    assert {(r["_kafka_partition"], r["_offset"]): r["n"] for r in rows} == stack.sent
    assert verify(lake, deep=True).proven


def assert_lineage_has_each_offset_once(stack: DeferredStack) -> None:
    """Assert that the OpenLineage events name each offset once, and each snapshot of the table with the one before it."""
    wait_until(
        lambda: len(stack.lineage()) >= HOURS,
        deadline_s=DEADLINE_S,
        what=f"{HOURS} events of commits",
        poll_s=1,
    )
    offsets: Counter[tuple[int, int]] = Counter()
    snapshots: dict[str, str | None] = {}
    rows = 0
    for event in stack.lineage():
        assert event["run"]["facets"]["tallystick_commit"]["isWhole"]
        (topic,) = event["inputs"]
        assert (topic["namespace"].split("://")[0], topic["name"]) == ("kafka", DAG)
        for one in topic["inputFacets"]["tallystick_offsets"]["ranges"]:
            offsets.update((one["partition"], n) for n in range(one["start"], one["end"]))
        table = next(o for o in event["outputs"] if o["name"].endswith("/events"))
        facets = table["outputFacets"]
        snapshots[facets["tallystick_snapshots"]["after"]] = facets["tallystick_snapshots"].get(
            "before"
        )
        rows += facets["outputStatistics"]["rowCount"]
    assert offsets == Counter(list(stack.sent))
    assert rows == len(stack.sent)
    # Each snapshot follows another one of these, except the first.
    assert len(snapshots) == HOURS
    before = list(snapshots.values())
    assert before.count(None) == 1
    assert len(set(before)) == HOURS
    assert {one for one in before if one is not None} < set(snapshots)


def assert_every_driver_accounted_for(stack: DeferredStack) -> None:
    """Every driver has ended, and every committed report is of one of them; the others staged nothing that counts."""
    states = stack.master.states()
    assert set(states) <= {"FINISHED", "FAILED", "KILLED"}, states
    assert states["FINISHED"] >= HOURS
    attempts = {
        d.arguments[d.arguments.index("--attempt") + 1]: d.state
        for d in stack.master.drivers.values()
    }
    assert len(attempts) == len(stack.master.drivers)
    committed = {
        report.attempt: report.plan
        for entry in stack.lake().load_existing().whole_ledger().entries
        if entry.committed is not None
        for record in [stack.lake().record(entry.committed.record)]
        if record is not None
        for one in record.intervals
        if one.report is not None
        for report in [stack.lake().report(one.report)]
        if report is not None
    }
    assert len(committed) == HOURS
    assert {attempts[attempt] for attempt in committed} == {"FINISHED"}
    assert len({keys.plan_parts(plan) for plan in committed.values()}) == HOURS
    print(
        f"{HOURS} stages on {SLOTS} slots, {stack.triggerers} triggerers: drivers {states}, "
        f"{len(attempts) - HOURS} of them staged nothing that was committed"
    )
