"""A cleared refresh: no grant of its previous try is left, because no other run may take one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from support.fakes import stage
from support.small_lake import DAY, NOW, TOPIC, SmallLake, day, days, pipeline
from tallystick.errors import OutsideRetention
from tallystick.format.interval import Request
from tallystick.operations.commit import commit
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.pipeline import Lookback, Pipeline

RUN = "manual__refresh"


def with_lookback(warehouse: str) -> Pipeline:
    """Return the small pipeline with a lookback of two days."""
    back = Lookback(tables=["per_kind"], back=timedelta(days=2))
    return replace(pipeline(warehouse), lookback=back)


@pytest.fixture
def small() -> SmallLake:
    """Return a lake in which day 2 was committed last: days 3 and 4 are stale."""
    small = SmallLake(declared=with_lookback)
    for number in (1, 3, 4, 2):
        small.run(days(number, number + 1))
    return small


def refresh(small: SmallLake, clear: int) -> PlanResult:
    """Plan a refresh of all that is stale."""
    return plan(
        small.lake,
        small.log,
        PlanRequest(
            pipeline=small.declared(small.store.uri),
            job_source=small.job,
            request=Request(dag=small.dag, run=RUN, clear=clear),
            params=parse_params({"mode": "refresh"}),
            dates=RunDates(data_interval=None, run_after=NOW),
            first=DAY,
        ),
    )


def expire(small: SmallLake, before: int) -> None:
    """Expire the records before a day."""
    boundary = small.lake.load_existing().whole_ledger().boundary(day(before))
    assert boundary is not None
    for partition, position in enumerate(boundary.positions[TOPIC]):
        small.log.expire(TOPIC, partition, before=position.offset)


def granted(small: SmallLake) -> list[int]:
    """Return the days that are granted to the refresh."""
    entries = small.lake.load_existing().whole_ledger().entries
    return [e.interval.start.day for e in entries if e.granted and e.granted.request.run == RUN]


def test_a_grant_that_the_log_no_longer_allows_is_withdrawn(small: SmallLake) -> None:
    refresh(small, 0)
    assert granted(small) == [3, 4]
    expire(small, before=4)
    again = refresh(small, 1)
    assert [p.interval for p in again.intervals] == [days(4, 5)]
    assert again.left == (days(3, 4),)
    assert [interval for interval, _ in again.cancelled] == [days(3, 4)]
    for planned in again.intervals:
        commit(
            small.lake,
            small.tables,
            plan_key=planned.plan,
            report_key=stage(small.lake, small.log, planned.plan),
        )
    assert granted(small) == []


def test_a_refresh_that_can_replace_nothing_withdraws_its_grants_and_names_an_alternative(
    small: SmallLake,
) -> None:
    refresh(small, 0)
    expire(small, before=5)
    with pytest.raises(OutsideRetention) as refused:
        refresh(small, 1)
    assert "mode=replace and accept_loss=true" in refused.value.hint
    assert granted(small) == []


@pytest.mark.parametrize("mode", ["refresh", "dead_letters"])
def test_a_grant_that_was_never_committed_is_withdrawn_by_a_refresh_of_its_run(mode: str) -> None:
    """A refresh fills no gap, and a grant that it leaves would keep others from filling it."""
    small = SmallLake()
    small.plan(days(1, 2), run=RUN)
    planned = small.plan(days(1, 2), run=RUN, clear=1, mode=mode)
    assert (planned.intervals, [i for i, _ in planned.cancelled]) == ((), [days(1, 2)])
    later = small.plan(days(1, 2), run="other")
    assert [p.interval for p in later.intervals] == [days(1, 2)]
