"""Refusals of commit and stage: the lake afterwards, and the errors if objects are missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.fakes import stage
from support.small_lake import TOPIC, SmallLake, days
from tallystick.errors import Corrupt, JobChanged, ReportRejected, Superseded
from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.lake import Lake
from tallystick.operations.commit import CommitResult, commit
from tallystick.operations.stage import still_granted, to_stage
from tallystick.store import ETag, Outcome, Store
from tallystick_devstack.testing.faults import Call, Fault, FaultyStore

DAY_2 = days(2, 3)


def compacted_lake() -> SmallLake:
    """Return a lake in which day 2 is committed, and compaction has removed one of its records since."""
    small = SmallLake()
    small.log.topics[TOPIC].compacted = True
    small.run(days(1, 2))
    small.run(DAY_2)
    partition = small.log.topics[TOPIC].partitions[0]
    offset = next(o for o, r in enumerate(partition.records) if o > 2 and r.kind == "data")
    partition.records[offset] = replace(partition.records[offset], kind="absent")
    small.job = b"version 2"
    return small


def entry_of(small: SmallLake) -> Entry:
    entry = small.lake.load_existing().ledger(DAY_2.start, DAY_2.end).entry(DAY_2)
    assert entry is not None
    return entry


def staged_again(small: SmallLake) -> tuple[str, str]:
    (planned,) = small.plan(DAY_2, clear=1).intervals
    return planned.plan, stage(small.lake, small.log, planned.plan)


def commit_over(small: SmallLake, store: Store, plan: str, report: str) -> CommitResult:
    lake = Lake(store, small.runtime, proven=True)
    return commit(lake, small.tables, plan_key=plan, report_key=report)


# ---------------------------------------------------------------- a replacement with fewer records


def test_a_replacement_with_fewer_records_is_refused_and_withdraws_its_grant() -> None:
    small = compacted_lake()
    before = entry_of(small)
    plan, report = staged_again(small)
    with pytest.raises(
        ReportRejected, match=r"at least 7 records .* found 6 in .* mode=replace"
    ) as refused:
        commit_over(small, small.store, plan, report)
    assert "accept_compaction=true" in refused.value.hint
    after = entry_of(small)
    assert (after.committed, after.granted) == (before.committed, None)
    with pytest.raises(Superseded):
        commit_over(small, small.store, plan, report)
    (done,) = small.run(DAY_2, run="other", mode="replace", accept_compaction=True)
    assert (done.totals.records + done.totals.dead_letters, done.totals.absent) == (6, 1)


def test_the_refusal_is_raised_although_the_reply_of_its_swap_was_lost() -> None:
    small = compacted_lake()
    plan, report = staged_again(small)
    lost = iter([Fault.LOSE_REPLY])

    def once(call: Call) -> Fault | None:
        return next(lost, None) if (call.verb, call.key) == ("replace", keys.ROOT) else None

    faulty = FaultyStore(small.store, once)
    with pytest.raises(ReportRejected, match="the grant is withdrawn"):
        commit_over(small, faulty, plan, report)
    assert [fired.fault for fired in faulty.fired] == [Fault.LOSE_REPLY]
    assert entry_of(small).granted is None


def test_a_refusal_whose_swap_loses_to_a_take_over_raises_superseded() -> None:
    small = compacted_lake()
    plan, report = staged_again(small)

    class TakesOver:
        left = 1

        def __getattr__(self, name: str) -> Any:
            return getattr(small.store, name)

        def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
            if self.left:
                self.left = 0
                small.plan(DAY_2, run="other", mode="replace", take_over=True)
            return small.store.replace(key, body, expected=expected)

    store: Any = TakesOver()
    with pytest.raises(Superseded, match="is now held by small / other"):
        commit_over(small, store, plan, report)


# ---------------------------------------------------------------- a replacement that turns rows into dead letters


def undecodable_lake(rows: int = 1, *, compacted: bool = False) -> SmallLake:
    """Return a lake in which day 2 is committed. `rows` of its records no longer decode; compaction may remove one."""
    small = compacted_lake() if compacted else SmallLake()
    if not compacted:
        small.run(days(1, 2))
        small.run(DAY_2)
        small.job = b"version 2"
    records = small.log.topics[TOPIC].partitions[1].records
    offsets = [o for o, r in enumerate(records) if o > 3 and r.kind == "data"]
    for offset in offsets[:rows]:
        records[offset] = replace(records[offset], kind="dead")
    return small


@pytest.mark.parametrize("clear", [True, False])
def test_a_replacement_that_turns_rows_into_dead_letters_is_refused_unless_they_are_accepted(
    clear: bool,
) -> None:
    """Both for a clear with changed code and for a trigger. The hint names the parameter of the trigger."""
    small = undecodable_lake()
    before = entry_of(small)
    assert before.committed is not None
    assert (before.committed.totals.records, before.committed.totals.dead_letters) == (5, 2)
    tables = small.root()["tables"]
    request = {"clear": 1} if clear else {"run": "other", "mode": "replace"}
    with pytest.raises(ReportRejected) as refused:
        small.run(DAY_2, **request)
    assert "found 4 and 3 in the replacement" in refused.value.message
    assert "expected 5 records and 2 dead letters" in refused.value.message
    assert "the log of `stage` has the reasons" in refused.value.hint
    assert "mode=replace and accept_dead_letters=true" in refused.value.hint
    after = entry_of(small)
    assert (after.committed, after.granted) == (before.committed, None)
    assert small.root()["tables"] == tables
    (done,) = small.run(DAY_2, run="third", mode="replace", accept_dead_letters=True)
    assert (done.totals.records, done.totals.dead_letters) == (4, 3)
    # In the other direction: dead letters that become rows again need no parameter.
    for partition in small.log.topics[TOPIC].partitions:
        for offset, record in enumerate(partition.records):
            if record.kind == "dead" and record.value:
                partition.records[offset] = replace(record, kind="data")
    (repaired,) = small.run(DAY_2, run="fourth", mode="replace")
    assert (repaired.totals.records, repaired.totals.dead_letters) == (5, 2)


def test_rows_that_are_gained_do_not_compensate_for_rows_that_become_dead_letters() -> None:
    small = SmallLake()
    first, second = small.log.topics[TOPIC].partitions
    offset = next(o for o, r in enumerate(first.records) if o > 2 and r.kind == "data")
    first.records[offset] = replace(first.records[offset], kind="dead")
    small.run(days(1, 2))
    small.run(DAY_2)
    first.records[offset] = replace(first.records[offset], kind="data")
    offset = next(o for o, r in enumerate(second.records) if o > 3 and r.kind == "data")
    second.records[offset] = replace(second.records[offset], kind="dead")
    # The totals of records and dead letters are the same as before.
    with pytest.raises(ReportRejected, match=r": at least 1 row\(s\) would become dead letters"):
        small.run(DAY_2, run="other", mode="replace")


@pytest.mark.parametrize(
    ("accepted", "named"),
    [
        ({}, ["accept_compaction=true or accept_loss=true", "as well as accept_dead_letters=true"]),
        # An accepted parameter is named again: without it the next refusal would be for that one.
        (
            {"accept_dead_letters": True},
            ["accept_compaction=true or accept_loss=true as well as accept_dead_letters=true."],
        ),
        ({"accept_compaction": True}, ["accept_dead_letters=true, accept_compaction=true."]),
        ({"accept_loss": True}, ["accept_dead_letters=true, accept_loss=true."]),
    ],
)
def test_a_replacement_with_fewer_records_and_more_dead_letters_needs_both_parameters(
    accepted: dict[str, bool], named: list[str]
) -> None:
    small = undecodable_lake(compacted=True)
    with pytest.raises(ReportRejected) as refused:
        small.run(DAY_2, run="other", mode="replace", **accepted)
    for parameter in named:
        assert parameter in refused.value.hint
    both = {"accept_dead_letters": True, "accept_compaction": True}
    (done,) = small.run(DAY_2, run="third", mode="replace", **both)
    assert (done.totals.records, done.totals.dead_letters, done.totals.absent) == (3, 3, 1)


def test_a_first_commit_may_contain_only_dead_letters() -> None:
    """No row can be lost by it: the run logs a warning, and its dead letters can be replaced later."""
    small = SmallLake()
    for partition in small.log.topics[TOPIC].partitions:
        for offset, record in enumerate(partition.records):
            if record.kind == "data":
                partition.records[offset] = replace(record, kind="dead")
    (done,) = small.run(DAY_2)
    assert (done.totals.records, done.totals.dead_letters) == (0, 7)


def test_a_replacement_with_as_many_records_is_published() -> None:
    small = SmallLake()
    small.run(DAY_2)
    small.job = b"version 2"
    (done,) = small.run(DAY_2, clear=1)
    assert (done.generation, done.already) == (2, False)


# ---------------------------------------------------------------- missing objects


def changed_lake() -> tuple[SmallLake, tuple[str, str]]:
    """Return a lake in which day 2 was committed with the returned plan and report; the job has changed since."""
    small = SmallLake()
    (planned,) = small.plan(DAY_2).intervals
    first = (planned.plan, stage(small.lake, small.log, planned.plan))
    commit_over(small, small.store, *first)
    small.job = b"version 2"
    return small, first


@pytest.mark.parametrize("gone", ["plan", "report", "both"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_committed_plan_stays_committed_without_its_objects(gone: str, replaced: bool) -> None:
    small, (plan, report) = changed_lake()
    if replaced:
        small.run(DAY_2, clear=1)
    result = commit_over(small, small.store, plan, report)
    small.store.delete({"plan": [plan], "report": [report], "both": [plan, report]}[gone])
    assert commit_over(small, small.store, plan, report) == result
    assert (result.already, result.generation) == (True, 1)
    assert result.replaced_by == (2 if replaced else None)
    assert still_granted(small.lake, plan) is None


def test_the_totals_of_a_replaced_plan_are_its_own() -> None:
    small, (plan, report) = changed_lake()
    first = commit_over(small, small.store, plan, report).totals
    partition = small.log.topics[TOPIC].partitions[0]
    offset = next(o for o, r in enumerate(partition.records) if o > 2 and r.kind == "aborted")
    partition.records[offset] = replace(partition.records[offset], kind="dead")
    (second,) = small.run(DAY_2, clear=1)
    assert second.totals != first
    assert commit_over(small, small.store, plan, report).totals == first


@pytest.mark.parametrize("gone", ["plan", "report"])
def test_a_grant_whose_object_was_deleted_is_refused_by_the_commit(gone: str) -> None:
    small = SmallLake()
    (planned,) = small.plan(DAY_2).intervals
    report = stage(small.lake, small.log, planned.plan)
    small.store.delete([planned.plan if gone == "plan" else report])
    with pytest.raises(ReportRejected, match=r"is gone, and plan .* is granted and not committed"):
        commit_over(small, small.store, planned.plan, report)


def test_a_missing_plan_cannot_be_staged() -> None:
    small = SmallLake()
    (planned,) = small.plan(DAY_2).intervals
    small.store.delete([planned.plan])
    with pytest.raises(Corrupt, match="is granted and is gone"):
        still_granted(small.lake, planned.plan)


def test_a_plan_whose_grant_was_cancelled_and_collected_is_superseded() -> None:
    small = SmallLake()
    (planned,) = small.plan(DAY_2).intervals
    report = stage(small.lake, small.log, planned.plan)
    small.run(DAY_2, run="other", take_over=True)
    small.store.delete([planned.plan])
    with pytest.raises(Superseded, match="cancelled and collected"):
        commit_over(small, small.store, planned.plan, report)


def test_a_record_of_another_plan_is_corrupt() -> None:
    small, _ = changed_lake()
    plan, report = staged_again(small)
    committed = entry_of(small).committed
    assert committed is not None
    small.change(committed.record, lambda r: r["intervals"][0].update(plan=plan))
    with pytest.raises(Corrupt, match="found plan"):
        commit_over(small, small.store, plan, report)


# ---------------------------------------------------------------- a run with several plans


def two_gaps() -> tuple[SmallLake, list[str], str]:
    """Return a lake with a run that was granted days 1 and 3, its plans, and the fingerprint of its job."""
    small = SmallLake()
    small.run(DAY_2)
    plans = [p.plan for p in small.plan(days(1, 4), run="wide").intervals]
    found = small.lake.plan(plans[0])
    assert found is not None
    return small, plans, found.fingerprint


def test_a_gap_that_was_taken_over_does_not_block_the_others() -> None:
    small, plans, fingerprint = two_gaps()
    small.run(days(1, 2), run="other", take_over=True)
    left = to_stage(small.lake, plans, fingerprint=fingerprint)
    assert [p.key for p in left.plans] == plans[1:]
    assert [plans[0] in error.message for error in left.lost] == [True]


def test_a_run_that_lost_all_of_its_gaps_is_superseded() -> None:
    small, plans, fingerprint = two_gaps()
    small.run(days(1, 4), run="other", take_over=True)
    with pytest.raises(Superseded, match="no longer granted"):
        to_stage(small.lake, plans, fingerprint=fingerprint)


def test_a_changed_job_stages_nothing_of_a_run() -> None:
    small, plans, _ = two_gaps()
    with pytest.raises(JobChanged):
        to_stage(small.lake, plans, fingerprint="f" * 64)
