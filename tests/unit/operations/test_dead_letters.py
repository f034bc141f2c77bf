"""Dead letters after a fix: which intervals contain them, and one run that replaces these intervals and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fakes import FakeRecord, stage
from support.small_lake import DAY, NOW, TOPIC, SmallLake, day, days
from tallystick.errors import Corrupt, InvalidRequest, OutsideRetention, ReportRejected
from tallystick.format.interval import Request
from tallystick.operations.commit import commit
from tallystick.operations.dead_letters import WantedLetters, read_dead_letters
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.pipeline import DEAD_LETTERS

RUN = "manual__dead"


@pytest.fixture
def small() -> SmallLake:
    """Return a lake in which days 1 to 4 and 6 are committed; days 3 and 5 have no dead letter."""
    small = SmallLake()
    change(small, 3, "dead", "data")
    for number in (1, 2, 3, 4, 5, 6):
        small.run(days(number, number + 1))
    return small


def change(small: SmallLake, number: int, kind: str, into: str) -> None:
    """Let the records of one kind of a day decode as another kind: what a changed declaration does."""
    for partition in small.log.topics[TOPIC].partitions:
        for offset, record in enumerate(partition.records):
            if record.kind == kind and _day(record) == number:
                partition.records[offset] = replace(record, kind=into, value={"n": 7, "kind": "x"})


def _day(record: FakeRecord) -> int:
    return 1 + int((record.at_ms / 1000 - DAY.timestamp()) // 86_400)


def replan(small: SmallLake, *, clear: int = 0, run: str = RUN, **params: str) -> PlanResult:
    """Plan a run with mode=dead_letters, as the Trigger form requests it: without a data interval."""
    return plan(
        small.lake,
        small.log,
        PlanRequest(
            pipeline=small.declared(small.store.uri),
            job_source=small.job,
            request=Request(dag=small.dag, run=run, clear=clear),
            params=parse_params({"mode": "dead_letters", **params}),
            dates=RunDates(data_interval=None, run_after=NOW),
            first=DAY,
        ),
    )


def commit_all(small: SmallLake, planned: PlanResult) -> list[int]:
    """Stage and commit what was planned; return the days."""
    for one in planned.intervals:
        if not one.committed:
            report = stage(small.lake, small.log, one.plan)
            commit(small.lake, small.tables, plan_key=one.plan, report_key=report)
    return [one.interval.start.day for one in planned.intervals]


def dead_days(small: SmallLake) -> list[int]:
    return [i.start.day for i in read_dead_letters(small.lake, WantedLetters()).found_in]


def test_one_run_replaces_the_intervals_with_dead_letters_and_no_others(small: SmallLake) -> None:
    assert dead_days(small) == [1, 2, 4, 6]
    for number in (1, 2, 4):
        change(small, number, "dead", "data")
    assert commit_all(small, replan(small)) == [1, 2, 4, 6]
    assert dead_days(small) == [6]
    entries = small.lake.load_existing().whole_ledger().entries
    assert [e.generation for e in entries] == [2, 2, 1, 2, 1, 2]
    assert sum(e.committed.totals.dead_letters for e in entries if e.committed) == 2
    # The next one looks only at what is left; a repeat of the first request gets the same plans.
    assert commit_all(small, replan(small, run="next")) == [6]
    assert [p.committed for p in replan(small, run="next").intervals] == [True]


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        ("2013-01-02", "2013-01-05", [2, 4]),
        ("2013-01-02T12:00", "2013-01-05", [4]),
        ("2013-01-03", "2013-01-04", []),
    ],
)
def test_with_dates_it_replaces_whole_intervals_between_them(
    small: SmallLake, first: str, last: str, found: list[int]
) -> None:
    assert commit_all(small, replan(small, **{"from": first, "to": last})) == found


def test_a_gap_is_not_filled(small: SmallLake) -> None:
    other = SmallLake()
    other.run(days(1, 2))
    other.run(days(4, 5))
    assert commit_all(other, replan(other)) == [1, 4]
    assert commit_all(SmallLake(), replan(SmallLake())) == []


def test_intervals_that_the_log_no_longer_has_keep_their_rows_and_do_not_block_the_others(
    small: SmallLake,
) -> None:
    boundary = small.lake.load_existing().whole_ledger().boundary(day(4))
    assert boundary is not None
    for partition, position in enumerate(boundary.positions[TOPIC]):
        small.log.expire(TOPIC, partition, before=position.offset)
    planned = replan(small)
    assert commit_all(small, planned) == [4, 6]
    assert planned.left == (days(1, 2), days(2, 3))
    for partition in range(2):
        small.log.expire(TOPIC, partition, before=10_000)
    with pytest.raises(OutsideRetention, match="found a log that begins at"):
        replan(small, run="too late")


def test_a_replacement_that_turns_rows_into_dead_letters_is_refused_by_this_mode_too(
    small: SmallLake,
) -> None:
    change(small, 4, "data", "dead")
    with pytest.raises(ReportRejected, match="would become dead letters"):
        commit_all(small, replan(small))
    assert dead_days(small) == [1, 2, 4, 6]


@pytest.mark.parametrize("name", ["accept_loss", "accept_compaction", "accept_dead_letters"])
def test_nothing_is_accepted_for_many_intervals_at_once(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"mode=dead_letters does not allow {name}=true"):
        parse_params({"mode": "dead_letters", name: True})


# ---------------------------------------------------------------- counting


def test_dead_letters_are_counted_by_kind_with_their_intervals_and_samples(
    small: SmallLake,
) -> None:
    found = read_dead_letters(small.lake, WantedLetters(samples=3))
    [one] = found.kinds
    assert (one.kind, one.field, one.count) == ("json", None, 8)
    assert one.intervals == {days(n, n + 1): 2 for n in (1, 2, 4, 6)}
    assert [s.interval for s in one.samples] == [days(1, 2), days(1, 2), days(2, 3)]
    first = one.samples[0]
    assert (first.topic, first.value, first.reason) == (TOPIC, b"{", "json: not JSON")
    assert (found.intervals, found.records, found.dag) == (6, 35, "small")


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (WantedLetters(kind="json"), 8),
        (WantedLetters(kind="type"), 0),
        (WantedLetters(field="n"), 0),
        (WantedLetters(within=days(2, 5)), 4),
        (WantedLetters(within=days(3, 4)), 0),
        (WantedLetters(within=days(10, 11)), 0),
    ],
)
def test_they_are_counted_by_kind_field_and_time(
    small: SmallLake, wanted: WantedLetters, count: int
) -> None:
    assert read_dead_letters(small.lake, wanted).count == count


def test_only_the_generation_that_readers_see_is_counted(small: SmallLake) -> None:
    change(small, 1, "dead", "data")
    commit_all(small, replan(small))
    assert read_dead_letters(small.lake, WantedLetters(within=days(1, 2))).count == 0
    assert len(small.data_files(DEAD_LETTERS)) > len(dead_days(small)) * 2


def test_a_file_that_is_gone_is_an_error_that_names_it(small: SmallLake) -> None:
    gone = small.data_files(DEAD_LETTERS)[0]
    small.store.delete([gone])
    with pytest.raises(Corrupt, match=gone):
        read_dead_letters(small.lake, WantedLetters())
