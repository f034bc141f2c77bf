"""Doors: the schedule as the clock strikes, a DAG that is paused, and the gaps filled later by what `tally status` says.

The schedule is of minutes, so that its intervals pass while a test looks on: a day of them is an hour's hours elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from support.door_desk import DEADLINE_S, POLL_S, Desk
from support.door_stories import story
from tallystick.format.page import Entry
from tallystick.operations.status import Gap
from tallystick_devstack.process import wait_until

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(1800),
]
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Paused:
    """What ran before and during a pause, the gap that it left, and what stood there once that was filled."""

    first: Entry
    last_end: datetime
    while_paused: list[str]
    gap: Gap
    inside: tuple[Entry, ...]
    gaps_after: tuple[Gap, ...]


@story("paused")
def paused(desk: Desk) -> Paused:
    """Switch on, off for two minutes, on again; then run the command that `tally status` prints for the gap."""
    run_while_on(desk, 1)
    first, paused_at = desk.entries[0], datetime.now(UTC)
    # The one wait for the clock: what is skipped is what passed while nobody looked.
    resumed = paused_at + 2 * MINUTE
    wait_until(
        lambda: datetime.now(UTC) > resumed, deadline_s=DEADLINE_S, what="two minutes of pause"
    )
    runs = desk.run_ids()
    while_paused = [run for run in runs if end_of(run) > paused_at]
    last_end = end_of(runs[-1])
    run_while_on(desk, len(runs) + 1)
    # A slow machine leaves gaps before the pause too.
    gap = next(h for h in desk.status.gaps if h.interval.start >= last_end)
    desk.switch(on=True)
    desk.doors.airflow_command(*gap.command[1:])

    def left() -> tuple[Gap, ...]:
        return tuple(h for h in desk.status.gaps if h.interval.overlaps(gap.interval))

    wait_until(lambda: not left(), deadline_s=DEADLINE_S, what="no gap", poll_s=POLL_S)
    for run in desk.run_ids():
        if run.startswith("backfill__"):
            desk.wait(run)
    desk.switch(on=False)
    return Paused(
        first=first,
        last_end=last_end,
        while_paused=while_paused,
        gap=gap,
        inside=tuple(e for e in desk.entries if gap.interval.covers(e.interval)),
        gaps_after=left(),
    )


def end_of(run_id: str) -> datetime:
    """The end of a scheduled run's interval, by which Airflow names it."""
    return datetime.fromisoformat(run_id.removeprefix("scheduled__"))


def run_while_on(desk: Desk, count: int) -> None:
    """Have the switch on until that many runs are there and have ended."""
    desk.switch(on=True)
    wait_until(
        lambda: len(desk.run_ids()) >= count,
        deadline_s=DEADLINE_S,
        what=f"run {count}",
        poll_s=POLL_S,
    )
    for run in desk.run_ids():
        desk.wait(run)
    desk.switch(on=False)


def test_schedule_commits_the_interval_that_has_just_passed(paused: Paused) -> None:
    interval = paused.first.interval
    assert interval.end - interval.start == MINUTE
    assert paused.first.committed is not None
    assert paused.first.committed.request.run == f"scheduled__{interval.end.isoformat()}"


def test_paused_dag_runs_nothing_and_the_gap_it_leaves_is_filled_by_the_command_of_status(
    paused: Paused,
) -> None:
    assert paused.while_paused == []
    assert paused.gap.interval.start == paused.last_end
    assert paused.gap.command[:3] == ("airflow", "backfill", "create")
    assert len(paused.inside) == paused.gap.intervals
    assert all(e.committed is not None and e.generation == 1 for e in paused.inside)
    assert paused.gaps_after == ()
