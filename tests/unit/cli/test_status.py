"""The answer of `status`: intervals, gaps with the exact command for each, grants, losses."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.small_lake import NOW, TOPIC, SmallLake, counting_runtime, day, days, good_lake
from tallystick.errors import Corrupt, RootVanished
from tallystick.format.interval import Interval
from tallystick.operations.release import release
from tallystick.operations.run_request import parse_params
from tallystick.operations.status import read_log, read_status, read_tables
from tallystick.operations.status.gaps import Gap


def backfill(first: str, last: str, dag: str = "small") -> tuple[str, ...]:
    return (
        *("airflow", "backfill", "create", "--dag-id", dag),
        *("--from-date", f"{first}T00:00:00+00:00", "--to-date", f"{last}T00:00:00+00:00"),
        *("--reprocess-behavior", "completed"),
    )


def gaps(small: SmallLake) -> list[Gap]:
    return list(read_status(small.lake).gaps)


def test_intervals_have_their_state_and_owner() -> None:
    answer = read_status(good_lake().lake)
    found = [
        (entry.interval.start.day, entry.state, entry.generation, entry.owner.clear)
        for entry in answer.intervals
    ]
    assert found == [
        (1, "committed", 1, 0),
        (2, "committed", 2, 1),
        (3, "committed", 1, 0),
        (5, "committed", 1, 0),
        (6, "granted", 1, 0),
    ]
    assert (answer.totals.records, answer.totals.dead_letters, answer.totals.offsets) == (15, 6, 25)
    assert answer.every == timedelta(days=1)


def test_a_pending_replacement_shows_both_its_rows_and_its_grant() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.job = b"version 2"
    small.plan(days(1, 2), clear=1)
    answer = read_status(small.lake)
    (entry,) = answer.intervals
    (grant,) = answer.grants
    assert (entry.state, entry.generation, entry.totals and entry.totals.records) == (
        "replacing",
        1,
        5,
    )
    assert (grant.generation, grant.replaces, grant.request.clear) == (2, True, 1)


def test_a_gap_of_whole_intervals_is_filled_by_a_backfill() -> None:
    assert gaps(good_lake()) == [
        Gap(
            interval=days(4, 5),
            intervals=1,
            command=backfill("2013-01-04", "2013-01-04"),
            offsets=7,
        )
    ]


def test_the_last_date_of_a_backfill_is_the_start_of_the_last_interval() -> None:
    small = SmallLake()
    small.run(days(6, 7))
    small.run(days(1, 2))
    assert gaps(small) == [
        Gap(
            interval=days(2, 6),
            intervals=4,
            command=backfill("2013-01-02", "2013-01-05"),
            offsets=25,
        )
    ]


def test_a_gap_that_cuts_intervals_is_filled_by_its_exact_dates() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.run(days(3, 4))
    small.run(days(2, 3), run="manual__1", **{"from": "2013-01-02", "to": "2013-01-02T06:00"})
    (gap,) = gaps(small)
    assert gap.interval == Interval(start=day(2) + timedelta(hours=6), end=day(3))
    assert gap.intervals is None
    assert gap.command[:5] == ("airflow", "dags", "trigger", "small", "--conf")
    assert json.loads(gap.command[5]) == {
        "from": "2013-01-02T06:00:00Z",
        "to": "2013-01-03T00:00:00Z",
    }


def test_without_a_scheduled_run_gaps_are_filled_by_their_exact_dates() -> None:
    small = SmallLake()
    small.run(days(1, 2), run="manual__1")
    small.run(days(3, 4), run="manual__2")
    (gap,) = gaps(small)
    assert (gap.intervals, gap.command[2]) == (None, "trigger")
    assert read_status(small.lake).every is None


def test_the_command_of_a_gap_fills_it() -> None:
    """The conf of the trigger command is parsed as the params of a run."""
    small = SmallLake()
    small.run(days(1, 2), run="manual__1")
    small.run(days(3, 4), run="manual__2")
    conf: dict[str, Any] = json.loads(gaps(small)[0].command[-1])
    small.run(days(2, 3), run="manual__3", **conf)
    assert gaps(small) == []


def test_a_cancelled_grant_leaves_a_gap() -> None:
    small = SmallLake()
    small.plan(days(1, 4))
    small.run(days(2, 3), run="other", take_over=True)
    assert [gap.interval for gap in gaps(small)] == [days(1, 2), days(3, 4)]


def test_a_granted_interval_is_no_gap() -> None:
    small = SmallLake()
    small.plan(days(1, 2))
    answer = read_status(small.lake)
    assert (answer.gaps, len(answer.grants), answer.grants[0].replaces) == ((), 1, False)


def test_the_dag_of_the_nearest_interval_is_named() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.dag = "other"
    small.run(days(6, 7))
    small.run(days(4, 5))
    commands = [gap.command for gap in gaps(small)]
    assert commands[1] == backfill("2013-01-05", "2013-01-05", dag="other")


def test_losses_are_listed() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.log.expire(TOPIC, 0, before=6)
    small.run(days(2, 3), accept_loss=True)
    answer = read_status(small.lake)
    assert [(entry.interval, entry.totals and entry.totals.lost) for entry in answer.lost] == [
        (days(2, 3), 3)
    ]


def test_losses_of_a_compacted_replacement_are_listed() -> None:
    """The topic was compacted after the commit, and the replacement has the fewer records that were left."""
    small = SmallLake()
    small.run(days(1, 2))
    compact(small)
    small.run(days(1, 2), run="manual__1", mode="replace", accept_compaction=True)
    (replaced,) = read_status(small.lake).fewer
    assert (replaced.interval, replaced.before, replaced.now) == (days(1, 2), 7, 3)
    # After a second replacement, the number of records of the first commit is still listed.
    small.run(days(1, 2), run="manual__2", mode="replace")
    assert [(f.before, f.now) for f in read_status(small.lake).fewer] == [(7, 3)]


def test_a_topic_that_was_compacted_before_its_first_commit_has_no_loss() -> None:
    small = SmallLake()
    compact(small)
    small.run(days(1, 2))
    small.run(days(1, 2), run="manual__1", mode="replace")
    answer = read_status(small.lake)
    assert (answer.totals.absent, answer.fewer) == (4, ())


def compact(small: SmallLake) -> None:
    """Remove two records of day 1 of each partition as the cleaner does, not the first: a boundary skips absent ones."""
    topic = small.log.topics[TOPIC]
    topic.compacted = True
    for partition in topic.partitions:
        partition.records[1:3] = [replace(r, kind="absent") for r in partition.records[1:3]]


# ---------------------------------------------------------------- grants


def aging(**passed: float) -> SmallLake:
    """Return a lake in which day 1 was granted some time ago."""
    clock = [NOW]
    small = SmallLake(runtime=replace(counting_runtime(), now=lambda: clock[0]))
    small.plan(days(1, 2))
    clock[0] += timedelta(**passed)
    return small


@pytest.mark.parametrize(("hours", "stuck"), [(0, False), (23.9, False), (24, True), (80, True)])
def test_a_grant_has_its_age_and_an_old_grant_may_be_stuck(hours: float, stuck: bool) -> None:
    (grant,) = read_status(aging(hours=hours).lake).grants
    assert (grant.planned_at, grant.age, grant.stuck) == (NOW, timedelta(hours=hours), stuck)


def test_the_release_command_of_a_grant_ends_it() -> None:
    small = aging(days=3)
    (grant,) = read_status(small.lake).grants
    assert grant.release[:3] == ("tally", "release", "memory://memory")
    words = dict(itertools.pairwise(grant.release))
    params = parse_params({"from": words["--from"], "to": words["--to"]})
    assert params.start is not None
    assert params.end is not None
    release(small.lake, Interval(start=params.start, end=params.end))
    assert read_status(small.lake).grants == ()


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_grant_whose_plan_cannot_be_read_does_not_hide_the_rest(how: str) -> None:
    small = good_lake()
    (grant,) = read_status(small.lake).grants
    if how == "gone":
        small.store.delete([grant.plan])
    else:
        small.overwrite(grant.plan, b"{")
    answer = read_status(small.lake)
    (grant,) = answer.grants
    assert (grant.age, grant.stuck, len(answer.intervals)) == (None, True, 5)


def ended(small: SmallLake) -> list[tuple[Interval, int, list[str]]]:
    found = read_status(small.lake).cancelled
    return [(grant.interval, grant.count, [r.run for r in grant.requests]) for grant in found]


def test_grants_that_committed_or_are_current_have_not_ended() -> None:
    assert ended(good_lake()) == []


def test_a_grant_that_was_taken_over_is_listed_until_its_new_owner_commits() -> None:
    small = SmallLake()
    small.plan(days(1, 2), run="first")
    small.plan(days(1, 2), run="second", take_over=True)
    assert ended(small) == [(days(1, 2), 1, ["first"])]
    small.run(days(1, 2), run="third", take_over=True)
    assert ended(small) == []


def test_a_released_replacement_is_listed_and_the_committed_rows_stay() -> None:
    small = SmallLake()
    small.run(days(1, 2), run="first")
    small.plan(days(1, 2), run="second", mode="replace")
    assert ended(small) == []
    release(small.lake, days(1, 2))
    small.plan(days(1, 2), run="third", mode="replace")
    assert ended(small) == [(days(1, 2), 1, ["second"])]
    release(small.lake, days(1, 2))
    assert ended(small) == [(days(1, 2), 2, ["second", "third"])]


def test_a_released_grant_that_left_a_gap_is_not_listed() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.plan(days(2, 3), run="second")
    release(small.lake, days(2, 3))
    assert (ended(small), [h.interval for h in gaps(small)]) == ([], [days(2, 3)])


# ---------------------------------------------------------------- odd lakes, log, tables


def test_a_lake_before_its_first_plan_is_empty() -> None:
    small = SmallLake()
    small.lake.open("small")
    answer = read_status(small.lake)
    assert (answer.first, answer.intervals, answer.gaps, answer.every) == (None, (), (), None)


def test_no_lake_is_an_error() -> None:
    with pytest.raises(RootVanished, match=r"memory://memory/root\.json does not exist"):
        read_status(SmallLake().lake)


def test_the_log_is_the_chain_newest_first() -> None:
    answer = read_log(good_lake().lake, limit=100)
    assert [line.version for line in answer.commits] == [10, 8, 7, 5, 3]
    replaced = answer.commits[0].intervals[0].replaces
    assert replaced == answer.commits[2].record
    assert answer.before is None


def test_the_log_stops_at_its_limit_and_names_the_record_before() -> None:
    answer = read_log(good_lake().lake, limit=2)
    assert len(answer.commits) == 2
    assert answer.before == read_log(good_lake().lake, limit=3).commits[2].record


def test_a_log_with_a_missing_record_is_an_error() -> None:
    small = good_lake()
    small.store.delete([small.keys("commits/")[2]])
    with pytest.raises(
        Corrupt, match="the chain of commits names this record, and it does not exist"
    ):
        read_log(small.lake, limit=100)


def test_tables_have_their_location_and_their_counts() -> None:
    small = good_lake()
    by_name = {table.name: table for table in read_tables(small.lake).tables}
    assert {name: (t.rows, t.files) for name, t in by_name.items()} == {
        "events": (15, 6),
        "per_kind": (6, 3),
        "dead_letters": (6, 6),
    }
    metadata = small.root()["tables"]["events"]["metadata"]
    assert by_name["events"].metadata == f"memory://memory/{metadata}"


def test_tables_without_rows_have_no_metadata() -> None:
    small = SmallLake()
    small.plan(days(1, 2))
    answer = read_tables(small.lake)
    assert {table.metadata for table in answer.tables} == {None}
    assert {table.rows for table in answer.tables} == {0}
