"""A replay in one process: rows exactly once, also if it is killed at any write and repeated, or meets another run."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from support.fakes import FakeLog, stage
from support.log_reading import ENVIRON, OpenedLog, use_log
from support.small_lake import DAY, NOW, TOPIC, SmallLake, days, pipeline
from tallystick.errors import InvalidPipeline, JobChanged, ScratchFull, Superseded
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.lake import Lake
from tallystick.operations.commit import commit
from tallystick.operations.plan import PlanRequest
from tallystick.operations.release import release
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.operations.verify import verify
from tallystick.pipeline import DEAD_LETTERS, Lookback, Pipeline
from tallystick.spark.in_one_process import ReplayResult, replay
from tallystick.store import Store
from tallystick.tables.reading import static_table
from tallystick_devstack.testing.faults import Call, Fault, FaultyStore, Killed

SPAN = days(1, 4)
Place = tuple[int, int]


def transform(records: pa.Table) -> dict[str, pa.Table]:
    """Return every record, and the sum of n per kind."""
    sums = records.group_by("kind").aggregate([("n", "sum")]).rename_columns(["kind", "n"])
    return {"events": records, "per_kind": sums}


@pytest.fixture
def small() -> SmallLake:
    return SmallLake()


@pytest.fixture
def opened(small: SmallLake, monkeypatch: pytest.MonkeyPatch) -> OpenedLog:
    return use_log(monkeypatch, small.log)


def run(
    small: SmallLake,
    interval: Interval = SPAN,
    *,
    name: str = "tally__span",
    store: Store | None = None,
    opened: OpenedLog,
    job: Callable[[pa.Table], Any] = transform,
    declared: Pipeline | None = None,
    **params: Any,
) -> ReplayResult:
    """Replay an interval as a new process does, with a lake of its own."""
    at = {"from": interval.start.isoformat(), "to": interval.end.isoformat()}
    request = PlanRequest(
        pipeline=declared or pipeline(small.store.uri),
        job_source=small.job,
        request=Request(dag="small", run=name, clear=0),
        params=parse_params({**at, **params}),
        dates=RunDates(data_interval=None, run_after=NOW),
        first=DAY,
    )
    lake = Lake(store or small.store, small.runtime, proven=True)
    return replay(lake, request, job, open_log=opened, open_registry=pytest.fail, environ=ENVIRON)


def states(result: ReplayResult) -> list[tuple[str, Interval]]:
    return [(one.state, one.interval) for one in result.intervals]


def rows(small: SmallLake, table: str) -> list[Mapping[str, Any]]:
    metadata = small.lake.load_existing().root.tables[table].metadata
    if metadata is None:
        return []
    return list(static_table(small.store, metadata).scan().to_arrow().to_pylist())


def offsets(log: FakeLog, interval: Interval, kind: str) -> Counter[Place]:
    """Return the partition and offset of each record of an interval: in this log, time never goes back."""
    first, last = (round(at.timestamp() * 1000) for at in (interval.start, interval.end))
    return Counter(
        (number, offset)
        for number, partition in enumerate(log.topics[TOPIC].partitions)
        for offset, record in enumerate(partition.records)
        if record.kind == kind and first <= record.at_ms < last
    )


def assert_exactly_once(small: SmallLake, interval: Interval = SPAN) -> None:
    """Assert that the lake has each record of the interval once: a row or a dead letter; and that it is proven."""
    for table, kind in (("events", "data"), (DEAD_LETTERS, "dead")):
        found = Counter((r["_kafka_partition"], r["_offset"]) for r in rows(small, table))
        assert found == offsets(small.log, interval, kind)
    sums: Counter[str] = Counter()
    for row in rows(small, "events"):
        sums[row["kind"]] += row["n"]
    found_sums: Counter[str] = Counter()
    for row in rows(small, "per_kind"):
        found_sums[row["kind"]] += row["n"]
    assert found_sums == sums
    proof = verify(small.lake, deep=True)
    assert proof.proven, [finding for check in proof.checks for finding in check.findings]


# ---------------------------------------------------------------- the result


def test_a_span_is_committed_and_a_repeat_finds_it_without_kafka(
    small: SmallLake, opened: OpenedLog
) -> None:
    first = run(small, opened=opened)
    assert states(first) == [("committed", SPAN)]
    assert first.complete
    (one,) = first.intervals
    assert one.rows == {DEAD_LETTERS: 6, "events": 15, "per_kind": 2}
    assert one.totals is not None
    assert (one.totals.records, one.totals.dead_letters, one.totals.aborted) == (15, 6, 2)
    assert (one.version, one.generation) == (first.version, 1)
    assert_exactly_once(small)
    before, connections = small.root(), opened.opened
    again = run(small, opened=opened)
    assert states(again) == [("already", SPAN)]
    assert (again.complete, again.intervals[0].version) == (True, one.version)
    assert small.root() == before
    assert opened.opened == connections, "a span that is committed needs no broker"


def test_gaps_between_committed_intervals_are_committed_in_order_of_time(
    small: SmallLake, opened: OpenedLog
) -> None:
    small.run(days(2, 3))
    result = run(small, opened=opened)
    assert states(result) == [
        ("committed", days(1, 2)),
        ("already", days(2, 3)),
        ("committed", days(3, 4)),
    ]
    versions = [one.version for one in result.intervals if one.state == "committed"]
    assert versions == sorted(v for v in versions if v is not None)
    assert_exactly_once(small)


def test_an_empty_interval_is_committed_by_its_plan(small: SmallLake, opened: OpenedLog) -> None:
    assert states(run(small, days(5, 6), opened=opened)) == [("committed", days(5, 6))]
    assert states(run(small, days(5, 6), opened=opened)) == [("already", days(5, 6))]


def test_what_another_run_holds_is_not_committed_until_it_commits(
    small: SmallLake, opened: OpenedLog
) -> None:
    (theirs,) = small.plan(days(2, 3)).intervals
    result = run(small, opened=opened)
    assert [state for state, _ in states(result)] == ["committed", "held", "committed"]
    assert not result.complete
    assert result.intervals[1].request == Request(
        dag="small", run=f"scheduled__{days(2, 3).start.isoformat()}", clear=0
    )
    report = stage(small.lake, small.log, theirs.plan)
    commit(small.lake, small.tables, plan_key=theirs.plan, report_key=report)
    assert run(small, opened=opened).complete
    assert_exactly_once(small)


def test_take_over_cancels_the_grant_of_another_run(small: SmallLake, opened: OpenedLog) -> None:
    (theirs,) = small.plan(days(2, 3)).intervals
    result = run(small, opened=opened, take_over=True)
    assert result.complete
    report = stage(small.lake, small.log, theirs.plan)
    with pytest.raises(Superseded):
        commit(small.lake, small.tables, plan_key=theirs.plan, report_key=report)
    assert_exactly_once(small)


def test_a_replacement_replaces_once_and_the_same_run_again_does_nothing(
    small: SmallLake, opened: OpenedLog
) -> None:
    run(small, opened=opened)
    small.job = b"version 2"
    left = run(small, opened=opened)
    assert [(one.state, one.other_code) for one in left.intervals] == [("already", True)]
    for state in ("committed", "already"):
        result = run(small, opened=opened, name="tally__again", mode="replace")
        (one,) = result.intervals
        assert (one.state, one.generation, one.other_code) == (state, 2, False)
    assert_exactly_once(small)


def test_a_replacement_that_another_run_has_is_reported_as_held(
    small: SmallLake, opened: OpenedLog
) -> None:
    run(small, opened=opened)
    small.plan(SPAN, run="theirs", mode="replace")
    kept = run(small, opened=opened, name="third")
    assert (kept.complete, states(kept)) == (True, [("already", SPAN)])
    result = run(small, opened=opened, name="ours", mode="replace")
    assert (result.complete, states(result)) == (False, [("held", SPAN)])
    assert result.intervals[0].request == Request(dag="small", run="theirs", clear=0)


def test_a_replacement_that_another_run_commits_meanwhile_is_not_held_any_more(
    small: SmallLake, opened: OpenedLog
) -> None:
    run(small, days(1, 2), opened=opened)
    run(small, days(2, 3), opened=opened, name="second")
    (theirs,) = small.plan(days(2, 3), run="theirs", mode="replace").intervals
    reports: list[str] = []

    def meanwhile(records: pa.Table) -> dict[str, pa.Table]:
        if not reports:
            reports.append(stage(small.lake, small.log, theirs.plan))
            commit(small.lake, small.tables, plan_key=theirs.plan, report_key=reports[0])
        return transform(records)

    result = run(small, days(1, 3), opened=opened, name="ours", mode="replace", job=meanwhile)
    assert states(result) == [("committed", days(1, 2)), ("already", days(2, 3))]
    assert [one.generation for one in result.intervals] == [2, 2]
    assert_exactly_once(small, days(1, 3))


@pytest.mark.parametrize("moment", ["after the plan", "while it is staged"])
def test_a_plan_that_loses_its_grant_does_not_end_the_others(
    small: SmallLake, opened: OpenedLog, moment: str
) -> None:
    small.run(days(2, 3))
    lost: list[Interval] = []

    def lose(at: str) -> None:
        if moment == at and not lost:
            lost.append(days(1, 2))
            release(small.lake, days(1, 2))

    def losing(records: pa.Table) -> dict[str, pa.Table]:
        lose("while it is staged")
        return transform(records)

    opened.closed = lambda: lose("after the plan")
    result = run(small, opened=opened, job=losing)
    assert states(result) == [
        ("gap", days(1, 2)),
        ("already", days(2, 3)),
        ("committed", days(3, 4)),
    ]
    assert (result.complete, len(result.lost)) == (False, 1)
    # The same run gets nothing again: it may be a late copy. Another run fills the gap.
    with pytest.raises(Superseded):
        run(small, opened=opened)
    assert run(small, opened=opened, name="tally__other").complete
    assert_exactly_once(small)


# ---------------------------------------------------------------- refusals


def test_a_pipeline_that_an_arrow_job_cannot_write_is_refused_before_anything_is_written(
    small: SmallLake, opened: OpenedLog
) -> None:
    declared = replace(
        pipeline(small.store.uri),
        lookback=Lookback(tables=["events"], back=None, uncommitted="stale"),
    )
    with pytest.raises(InvalidPipeline, match="lookback"):
        run(small, opened=opened, declared=declared)
    assert (small.keys(""), opened.opened) == ([], 0)


def test_a_job_that_changed_since_an_unfinished_run_stages_nothing_until_it_is_taken_over(
    small: SmallLake, opened: OpenedLog
) -> None:
    with pytest.raises(InvalidPipeline):
        run(small, opened=opened, job=lambda _: None)
    small.job = b"version 2"
    before = small.keys("")
    with pytest.raises(JobChanged):
        run(small, opened=opened)
    assert small.keys("") == before
    assert run(small, opened=opened, name="tally__take_over", take_over=True).complete
    assert_exactly_once(small)


def test_a_full_disk_is_an_error_to_retry(small: SmallLake, opened: OpenedLog) -> None:
    at = {"from": "2013-01-01", "to": "2013-01-02"}
    request = PlanRequest(
        pipeline=pipeline(small.store.uri),
        job_source=small.job,
        request=Request(dag="small", run="full", clear=0),
        params=parse_params(at),
        dates=RunDates(data_interval=None, run_after=NOW),
        first=DAY,
    )

    def full(*_: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "/scratch")

    with pytest.raises(ScratchFull, match="/scratch"):
        replay(
            small.lake,
            request,
            transform,
            open_log=opened,
            open_registry=pytest.fail,
            environ=ENVIRON,
            staging=full,
        )
    assert run(small, days(1, 2), name="full", opened=opened).complete


# ---------------------------------------------------------------- crashes


def kill_after(chosen: Callable[[Call], bool], fault: Fault = Fault.KILL_AFTER) -> Any:
    """Return a plan with one fault, at the first chosen write."""
    fired: list[Call] = []

    def plan(call: Call) -> Fault | None:
        if fired or call.verb not in ("create", "replace") or not chosen(call):
            return None
        fired.append(call)
        return fault

    return plan


def nth_swap(number: int) -> Callable[[Call], bool]:
    """Return a condition for the swap with this number: the first grants, the second commits."""
    seen: list[Call] = []

    def chosen(call: Call) -> bool:
        if call.verb == "replace":
            seen.append(call)
        return call.verb == "replace" and len(seen) == number

    return chosen


CRASH_POINTS: Mapping[str, tuple[Callable[[], Callable[[Call], bool]], Fault]] = {
    "after the first root": (lambda: lambda call: call.key == keys.ROOT, Fault.KILL_AFTER),
    "after a plan was written": (
        lambda: lambda call: call.key.startswith("plans/"),
        Fault.KILL_AFTER,
    ),
    "after the plan was granted": (lambda: nth_swap(1), Fault.KILL_AFTER),
    "after an upload": (lambda: lambda call: "/data/" in call.key, Fault.KILL_AFTER),
    "after the report": (
        lambda: lambda call: call.key.startswith(keys.ATTEMPTS_PREFIX),
        Fault.KILL_AFTER,
    ),
    "after metadata of a table": (lambda: lambda call: "/metadata/" in call.key, Fault.KILL_AFTER),
    "before the swap": (lambda: nth_swap(2), Fault.KILL_BEFORE),
    "after the swap": (lambda: nth_swap(2), Fault.KILL_AFTER),
    "the reply of the swap is lost": (lambda: nth_swap(2), Fault.LOSE_REPLY),
    "the swap is lost": (lambda: nth_swap(2), Fault.DROP),
    "the swap is late": (lambda: nth_swap(2), Fault.DELAY),
}


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_replay_that_was_killed_is_completed_exactly_once_by_a_repeat(
    small: SmallLake, opened: OpenedLog, point: str
) -> None:
    chosen, fault = CRASH_POINTS[point]
    faulty = FaultyStore(small.store, kill_after(chosen(), fault))
    try:
        run(small, opened=opened, store=faulty)
    except Killed:
        assert fault in (Fault.KILL_AFTER, Fault.KILL_BEFORE)
    assert len(faulty.fired) == 1, "the crash point was reached"
    result = run(small, opened=opened)
    while faulty.held:
        faulty.release()
    assert result.complete
    assert_exactly_once(small)
    assert states(run(small, opened=opened)) == [("already", SPAN)]
    assert_exactly_once(small)


def test_a_kill_after_any_write_of_a_replay_leaves_a_lake_that_a_repeat_completes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def writes(store: FaultyStore) -> list[Call]:
        return [call for call in store.calls if call.verb in ("create", "replace")]

    small = SmallLake()
    whole = FaultyStore(small.store)
    run(small, days(1, 2), opened=use_log(monkeypatch, small.log), store=whole)
    count = len(writes(whole))
    assert count > 10
    for number in range(count):
        small = SmallLake()
        opened = use_log(monkeypatch, small.log)
        left = iter(range(count))
        faulty = FaultyStore(
            small.store, kill_after(lambda _, left=left, number=number: next(left) == number)
        )
        with pytest.raises(Killed):
            run(small, days(1, 2), opened=opened, store=faulty)
        assert run(small, days(1, 2), opened=opened).complete
        assert_exactly_once(small, days(1, 2))


@pytest.mark.parametrize("other", ["tally__span", "scheduled__other"])
def test_two_replays_of_a_span_at_the_same_time_commit_it_once(
    small: SmallLake, opened: OpenedLog, other: str
) -> None:
    """The second one runs as a whole while the first calls its job: with the same run, or with another."""
    inner: list[ReplayResult] = []

    def interrupted(records: pa.Table) -> dict[str, pa.Table]:
        if not inner:
            inner.append(run(small, opened=opened, name=other))
        return transform(records)

    outer = run(small, opened=opened, job=interrupted)
    if other == "tally__span":
        assert (states(inner[0]), states(outer)) == ([("committed", SPAN)], [("already", SPAN)])
    else:
        assert (states(inner[0]), states(outer)) == ([("held", SPAN)], [("committed", SPAN)])
    assert outer.complete
    assert_exactly_once(small)
