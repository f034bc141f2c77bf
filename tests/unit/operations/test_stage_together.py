"""One attempt stages plans of several runs: each run commits its own plan once, whether or not the attempt ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from support.fakes import stage
from support.small_lake import NOW, SmallLake, counting_runtime, day, days, pipeline
from tallystick.errors import RetryLater, Superseded
from tallystick.format import keys
from tallystick.format.claim import Claim
from tallystick.format.interval import Interval, Request
from tallystick.format.plan import Plan
from tallystick.lake import Lake
from tallystick.operations import stage_together
from tallystick.operations.commit import commit
from tallystick.operations.gc import collect
from tallystick.operations.stage import still_granted
from tallystick.operations.stage_together import (
    CLAIM_TIME,
    OtherPlans,
    StageTogether,
    claim,
    read_claim,
)
from tallystick.operations.verify import verify
from tallystick.pipeline import Lookback, Pipeline
from tallystick.protocol import staging
from tallystick.store import Store
from tallystick.tables.reach import IcebergReach
from tallystick_devstack.testing.faults import APPLICABLE, Fault, FaultyStore, Killed, script

FIRST, SECOND, THIRD = days(1, 2), days(2, 3), days(3, 4)
ALL = (FIRST, SECOND, THIRD)
FAULTS = sorted(Fault)


@dataclass
class Runs:
    """Three scheduled runs of one lake, each planned, and their stage tasks without Spark."""

    small: SmallLake = field(default_factory=SmallLake)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plans: dict[Interval, Plan] = {}
        for interval in ALL:
            self.grant(interval)

    def grant(self, interval: Interval, **options: Any) -> Plan:
        (one,) = self.small.plan(interval, **options).intervals
        plan = self.small.lake.plan(one.plan)
        assert plan is not None
        self.plans[interval] = plan
        return plan

    def copy(self) -> Runs:
        copied = object.__new__(Runs)
        copied.small, copied.notes, copied.plans = self.small.copy(), [], dict(self.plans)
        return copied

    def stage(
        self,
        interval: Interval,
        attempt: str,
        *,
        store: Store | None = None,
        fresh: bool = True,
        running: Callable[[Request], bool] = lambda _: False,
        request: Request | None = None,
    ) -> dict[str, str]:
        """Run the stage task of the interval's run, with its driver. Return its XCom: the report of each own plan."""
        plan = self.plans[interval]
        lake = self.small.lake if store is None else Lake(store, self.small.runtime, proven=True)
        together = StageTogether(
            lake=lake,
            request=request or plan.request,
            attempt=attempt,
            fresh=fresh,
            is_running=running,
            note=self.notes.append,
        )
        reports: dict[str, str] = dict(together.reports([plan]))
        if reports:
            return reports
        others = OtherPlans(lake=lake, own=[plan], attempt=attempt, plans_max=8)
        claimed = list(others.claim_more())
        reports[plan.key] = stage(lake, self.small.log, plan.key, attempt=attempt)
        for other in claimed:
            self.stage_other(lake, other, attempt)
        return reports

    def stage_other(self, lake: Lake, plan: Plan, attempt: str) -> None:
        if still_granted(lake, plan.key) is not None:
            key = keys.claimed_report(plan.key, attempt)
            stage(lake, self.small.log, plan.key, attempt=attempt, report_key=key)

    def commit(self, interval: Interval, staged: dict[str, str]) -> None:
        key = self.plans[interval].key
        commit(self.small.lake, self.small.tables, plan_key=key, report_key=staged[key])

    def claims(self) -> dict[Interval, Claim]:
        found = {i: read_claim(self.small.lake, p) for i, p in self.plans.items()}
        return {i: c for i, c in found.items() if c is not None}

    def reports_of(self, interval: Interval) -> list[str]:
        return self.small.keys(f"attempts/{interval.part}/")


PLANNED = Runs()


@pytest.fixture
def runs() -> Runs:
    return PLANNED.copy()


def assert_all_committed_once(runs: Runs, case: str = "") -> None:
    """Every interval has its one commit, and the rows are those of intervals that were staged apart."""
    entries = runs.small.lake.load_existing().whole_ledger().entries
    assert [(e.interval, e.granted) for e in entries] == [(i, None) for i in ALL], case
    proof = verify(runs.small.lake)
    assert proof.proven, (case, proof)


def test_one_attempt_stages_the_plans_of_all_runs_and_each_run_commits_its_own(runs: Runs) -> None:
    staged = {FIRST: runs.stage(FIRST, "leader")}
    for interval in (SECOND, THIRD):
        staged[interval] = runs.stage(interval, f"own-{interval.part}")
        assert staged[interval] == {
            runs.plans[interval].key: keys.claimed_report(runs.plans[interval].key, "leader")
        }
    for interval in reversed(ALL):
        runs.commit(interval, staged[interval])
    assert {c.attempt for c in runs.claims().values()} == {"leader"}
    assert all(len(runs.reports_of(i)) == 1 for i in ALL)
    assert_all_committed_once(runs)


def test_a_run_waits_for_a_running_task_until_its_report_is_there(runs: Runs) -> None:
    lake, plan = runs.small.lake, runs.plans[SECOND]
    claim(lake, plan, runs.plans[FIRST].request, "leader")
    waits: list[float] = []

    def stage_at_last(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 7:
            runs.stage_other(lake, plan, "leader")

    runs.small.lake.runtime = replace(lake.runtime, sleep=stage_at_last)
    asked: list[Request] = []

    def running(request: Request) -> bool:
        asked.append(request)
        return True

    staged = runs.stage(SECOND, "own", running=running)
    assert staged == {plan.key: keys.claimed_report(plan.key, "leader")}
    assert len(waits) == 7
    assert set(asked) == {runs.plans[FIRST].request}
    assert 1 < len(asked) < len(waits)


def test_a_run_waits_no_longer_than_the_claim(runs: Runs) -> None:
    lake = runs.small.lake
    claim(lake, runs.plans[SECOND], runs.plans[FIRST].request, "leader")
    clock = [NOW]

    def pass_time(_: float) -> None:
        clock[0] += timedelta(minutes=1)

    lake.runtime = replace(lake.runtime, now=lambda: clock[0], sleep=pass_time)
    staged = runs.stage(SECOND, "own", running=lambda _: True)
    assert "/own-" in staged[runs.plans[SECOND].key]
    assert NOW + CLAIM_TIME <= clock[0] <= NOW + 2 * CLAIM_TIME


@pytest.mark.parametrize("cleared", [False, True])
def test_a_retry_or_a_clear_stages_anew_although_there_is_a_report(
    runs: Runs, cleared: bool
) -> None:
    runs.stage(FIRST, "leader")
    request = replace(runs.plans[SECOND].request, clear=1) if cleared else None
    staged = runs.stage(SECOND, "own", fresh=cleared, request=request)
    assert "/own-" in staged[runs.plans[SECOND].key]
    runs.commit(SECOND, staged)
    assert "staged anew" in runs.notes[-1]


def test_a_retry_of_the_attempt_that_claimed_stages_its_own_plan_alone(runs: Runs) -> None:
    runs.stage(FIRST, "leader")
    before = len(runs.reports_of(SECOND))
    staged = runs.stage(FIRST, "retry", fresh=False)
    assert "/retry-" in staged[runs.plans[FIRST].key]
    assert len(runs.reports_of(SECOND)) == before


@pytest.mark.parametrize("fault", FAULTS)
def test_an_attempt_that_meets_a_fault_at_any_call_costs_no_run_its_commit(fault: Fault) -> None:
    """Kill, or any fault of a request, anywhere in an attempt that stages for others; then the runs go on alone."""
    run = PLANNED.copy()
    counting = FaultyStore(run.small.store)
    run.stage(FIRST, "leader", store=counting)
    # Uploads of data files are the same calls as in every other attempt.
    calls = [call for call in counting.calls if "/data/" not in call.key]
    tried = [call.index for call in calls if fault in APPLICABLE[call.verb]]
    assert len(tried) > 5
    for index in tried:
        case = f"{fault} at call {index}"
        runs = PLANNED.copy()
        faulty = FaultyStore(runs.small.store, script({index: fault}))
        try:
            first = runs.stage(FIRST, "leader", store=faulty)
        except (Killed, RetryLater):
            first = runs.stage(FIRST, "retry", fresh=False)
        second = runs.stage(SECOND, "own-2")
        while faulty.held:
            faulty.release()
        third = runs.stage(THIRD, "own-3")
        for interval, staged in zip(ALL, (first, second, third), strict=True):
            runs.commit(interval, staged)
        assert faulty.fired, case
        assert_all_committed_once(runs, case)


def test_an_attempt_that_was_declared_dead_changes_no_commit(runs: Runs) -> None:
    lake, plan = runs.small.lake, runs.plans[SECOND]
    claim(lake, plan, runs.plans[FIRST].request, "zombie")
    staged = {SECOND: runs.stage(SECOND, "own")}
    runs.commit(SECOND, staged[SECOND])
    before = runs.small.root()
    stage(
        lake,
        runs.small.log,
        plan.key,
        attempt="zombie",
        report_key=keys.claimed_report(plan.key, "zombie"),
    )
    assert runs.small.root() == before
    for interval in (FIRST, THIRD):
        runs.commit(interval, runs.stage(interval, f"own-{interval.part}"))
    assert_all_committed_once(runs)


def test_two_attempts_at_the_same_time_claim_no_plan_twice(runs: Runs) -> None:
    lake = runs.small.lake
    for interval in (FIRST, THIRD):
        claim(lake, runs.plans[interval], runs.plans[interval].request, f"own-{interval.part}")
    claimed = [
        OtherPlans(lake=lake, own=[runs.plans[i]], attempt=f"own-{i.part}", plans_max=8)
        for i in (FIRST, THIRD)
    ]
    turns = [one.claim_more() for one in claimed]
    for turn in (*turns, *turns):
        next(turn, None)
    assert [plan for one in claimed for plan in one.claimed] == [runs.plans[SECOND]]


def test_a_plan_that_was_taken_over_is_not_staged_for_its_run_and_not_committed(
    runs: Runs,
) -> None:
    claimed = OtherPlans(
        lake=runs.small.lake, own=[runs.plans[FIRST]], attempt="leader", plans_max=8
    )
    assert len(list(claimed.claim_more())) == 2
    old = runs.plans[SECOND]
    runs.grant(SECOND, run="taker", take_over=True)
    with pytest.raises(Superseded):
        runs.stage_other(runs.small.lake, old, "leader")
    assert not runs.reports_of(SECOND)
    report = stage(runs.small.lake, runs.small.log, old.key, attempt="leader")
    with pytest.raises(Superseded):
        commit(runs.small.lake, runs.small.tables, plan_key=old.key, report_key=report)
    runs.commit(SECOND, runs.stage(SECOND, "taker"))


def test_gc_between_keeps_the_claim_and_the_report_of_a_granted_plan(runs: Runs) -> None:
    runs.stage(FIRST, "leader")
    before = [runs.small.keys(prefix) for prefix in ("claims/", "attempts/", "tables/")]
    assert all(before)
    gc(runs)
    assert [runs.small.keys(prefix) for prefix in ("claims/", "attempts/", "tables/")] == before
    for interval in (SECOND, THIRD):
        staged = runs.stage(interval, "own")
        gc(runs)
        runs.commit(interval, staged)
    gc(runs)
    # The claims of committed plans are no longer needed, their reports are.
    assert runs.small.keys("claims/") == [keys.claim(runs.plans[FIRST].key)]
    assert all(len(runs.reports_of(i)) == 1 for i in ALL)


def gc(runs: Runs) -> None:
    reach = IcebergReach(runs.small.store)
    collect(runs.small.lake, reach, delete=True, reader_grace=timedelta(0), cancel_after=None)


@pytest.mark.parametrize(
    "damage",
    ["claim is no JSON", "claim of another plan", "report is no JSON", "report of another plan"],
)
def test_a_damaged_claim_or_report_is_not_used(runs: Runs, damage: str) -> None:
    runs.stage(FIRST, "leader")
    plan, other = runs.plans[SECOND], runs.plans[THIRD]
    if "no JSON" in damage:
        damaged = (
            keys.claim(plan.key) if "claim" in damage else keys.claimed_report(plan.key, "leader")
        )
        runs.small.overwrite(damaged, b"{")
    elif "claim" in damage:
        runs.small.change(keys.claim(plan.key), lambda c: c.update(plan=other.key))
    else:
        runs.small.change(
            keys.claimed_report(plan.key, "leader"), lambda r: r.update(plan=other.key)
        )
    staged = runs.stage(SECOND, "own")
    assert "/own-" in staged[plan.key]
    runs.commit(SECOND, staged)


def test_a_store_that_does_not_answer_makes_a_run_stage_by_itself(runs: Runs) -> None:
    plan = runs.plans[SECOND]
    together = StageTogether(
        lake=Lake(
            FaultyStore(runs.small.store, script({0: Fault.UNAVAILABLE})),
            runs.small.runtime,
            proven=True,
        ),
        request=plan.request,
        attempt="own",
        fresh=True,
        is_running=lambda _: True,
        note=runs.notes.append,
    )
    assert together.reports([plan]) == {}
    assert "not waiting" in runs.notes[-1]


@pytest.mark.parametrize("large", ["own", "other"])
def test_a_large_interval_is_staged_alone(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, large: str
) -> None:
    sizes = {i: staging.offsets(p) for i, p in runs.plans.items()}
    assert sizes[SECOND] > sizes[FIRST]  # day 2 has an aborted transaction
    monkeypatch.setattr(staging, "OFFSETS_MAX", sizes[SECOND] - 1)
    own = runs.plans[SECOND if large == "own" else FIRST]
    others = OtherPlans(lake=runs.small.lake, own=[own], attempt="leader", plans_max=8)
    assert runs.plans[SECOND] not in list(others.claim_more())
    assert SECOND not in runs.claims()
    if large == "own":
        assert not others.claimed


def test_all_plans_of_others_together_are_limited(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = runs.plans[FIRST]
    sizes = [staging.offsets(runs.plans[i]) for i in (SECOND, THIRD)]
    monkeypatch.setattr(staging, "OFFSETS_MAX", sum(sizes) - 1)
    others = OtherPlans(lake=runs.small.lake, own=[own], attempt="leader", plans_max=8)
    assert list(others.claim_more()) == [runs.plans[SECOND]]
    monkeypatch.undo()
    few = OtherPlans(lake=runs.small.lake, own=[own], attempt="other", plans_max=1)
    assert list(few.claim_more()) == [runs.plans[THIRD]]
    assert list(few.claim_more()) == []


def test_another_dag_and_a_changed_job_are_left_alone(runs: Runs) -> None:
    small = runs.small
    later = SmallLake(store=small.store, log=small.log, runtime=small.runtime, dag="another")
    later.plan(days(4, 5))
    changed = SmallLake(store=small.store, log=small.log, runtime=small.runtime, job=b"version 2")
    changed.plan(days(6, 7))
    others = OtherPlans(lake=small.lake, own=[runs.plans[FIRST]], attempt="leader", plans_max=8)
    assert {p.interval for p in others.claim_more()} == {SECOND, THIRD}


def test_what_is_planned_while_the_attempt_runs_is_found_by_the_next_search(runs: Runs) -> None:
    others = OtherPlans(
        lake=runs.small.lake, own=[runs.plans[FIRST]], attempt="leader", plans_max=8
    )
    assert len(list(others.claim_more())) == 2
    assert list(others.claim_more()) == []
    late = runs.grant(days(4, 5))
    assert list(others.claim_more()) == [late]


def test_a_long_interval_searches_a_year_around_it(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = runs.grant(Interval(start=day(7), end=NOW.replace(year=2023)))
    monkeypatch.setattr(
        stage_together, "AROUND", 10_000
    )  # ten years as often are more than a datetime holds
    others = OtherPlans(lake=runs.small.lake, own=[long], attempt="leader", plans_max=8)
    assert {p.interval for p in others.claim_more()} == set(ALL)


def looking_back(warehouse: str) -> Pipeline:
    base = pipeline(warehouse)
    return Pipeline(
        name=base.name,
        topics=base.topics,
        warehouse=base.warehouse,
        job=base.job,
        tables=base.tables,
        lookback=Lookback(tables=["events"], back=timedelta(days=1)),
    )


def test_intervals_of_a_job_with_a_lookback_are_staged_apart() -> None:
    runs = Runs(small=SmallLake(runtime=counting_runtime(), declared=looking_back))
    others = OtherPlans(
        lake=runs.small.lake, own=[runs.plans[SECOND]], attempt="leader", plans_max=8
    )
    assert list(others.claim_more()) == []
    assert not runs.claims()
