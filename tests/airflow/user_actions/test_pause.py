"""User actions: the schedule in real time, a paused DAG, and its gaps, filled later by the command of `tally status`.

The DAG is scheduled every minute, so that intervals end while a test waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from support.user_action_driver import DEADLINE_S, POLL_S, Driver
from support.user_action_scenarios import EVERY_TEST, scenario
from tallystick.format.page import Entry
from tallystick.operations.status import Gap
from tallystick_devstack.process import wait_until

pytestmark = EVERY_TEST
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Paused:
    """The runs before and during a pause, the gap that it left, and the ledger after the gap was filled."""

    first: Entry
    last_end: datetime
    while_paused: list[str]
    gap: Gap
    inside: tuple[Entry, ...]
    gaps_after: tuple[Gap, ...]


@scenario("paused")
def paused(driver: Driver) -> Paused:
    """Unpause, pause for two minutes, unpause; then run the command that `tally status` prints for the gap."""
    run_while_on(driver, 1)
    first, paused_at = driver.entries[0], datetime.now(UTC)
    # The only wait for the clock: the skipped intervals are those that end during the pause.
    resumed = paused_at + 2 * MINUTE
    wait_until(
        lambda: datetime.now(UTC) > resumed, deadline_s=DEADLINE_S, what="two minutes of pause"
    )
    runs = driver.run_ids()
    while_paused = [run for run in runs if end_of(run) > paused_at]
    last_end = end_of(runs[-1])
    parse_again(driver)
    run_while_on(driver, len(runs) + 1)
    # On a slow machine there are gaps before the pause, too.
    gap = next(h for h in driver.status.gaps if h.interval.start >= last_end)
    driver.switch(on=True)
    driver.stack.airflow_command(*gap.command[1:])

    def remaining() -> tuple[Gap, ...]:
        return tuple(h for h in driver.status.gaps if h.interval.overlaps(gap.interval))

    wait_until(lambda: not remaining(), deadline_s=DEADLINE_S, what="no gap", poll_s=POLL_S)
    for run in driver.run_ids():
        if run.startswith("backfill__"):
            driver.wait(run)
    driver.switch(on=False)
    return Paused(
        first=first,
        last_end=last_end,
        while_paused=while_paused,
        gap=gap,
        inside=tuple(e for e in driver.entries if gap.interval.covers(e.interval)),
        gaps_after=remaining(),
    )


def end_of(run_id: str) -> datetime:
    """Return the end of a scheduled run's interval, which is part of its id."""
    return datetime.fromisoformat(run_id.removeprefix("scheduled__"))


def parse_again(driver: Driver) -> None:
    """Let Airflow parse the DAG file, as it does every 30 s by default: then it skips the intervals of the pause."""
    touched_at = datetime.now(UTC)
    (driver.stack.project / "dags" / "january.py").touch()

    def is_parsed() -> bool:
        parsed = driver.api.call("GET", f"/dags/{driver.pipeline}")["last_parsed_time"]
        return datetime.fromisoformat(parsed) > touched_at

    wait_until(is_parsed, deadline_s=DEADLINE_S, what="a parse of the DAG's file", poll_s=POLL_S)


def run_while_on(driver: Driver, count: int) -> None:
    """Unpause the DAG until `count` runs exist and have ended; pause it again."""
    driver.switch(on=True)
    wait_until(
        lambda: len(driver.run_ids()) >= count,
        deadline_s=DEADLINE_S,
        what=f"run {count}",
        poll_s=POLL_S,
    )
    for run in driver.run_ids():
        driver.wait(run)
    driver.switch(on=False)


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
