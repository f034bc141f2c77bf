"""User actions: the schedule, backfills of every kind, Clear after the commit, Trigger. One pipeline, six scenarios.

Airflow's scheduler, PostgreSQL, Kafka, an S3 server and spark-submit are real. A wrapper records every spark-submit, so
that the tests can count the Spark starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from support.canaries import ENVIRONMENT, all_places, canaries_in, find_canaries, s3_client
from support.user_action_driver import Driver
from support.user_action_project import (
    JOB_FILE,
    KAFKA_PASSWORD,
    PARTITIONS,
    PER_DAY,
    S3_SECRET,
    TOPICS,
    Row,
    day,
    run_without_jvm,
    value,
)
from support.user_action_scenarios import EVERY_TEST, Scenarios, scenario
from tallystick.format.page import Entry
from tallystick.format.record import CommittedInterval
from tallystick.format.root import Root
from tallystick.operations.status import read_log

pytestmark = EVERY_TEST


@dataclass(frozen=True)
class Facts:
    """The state of the lake and the runs at the end of a scenario."""

    driver: Driver
    root: Root
    entries: dict[int, Entry]
    rows: list[Row]
    submits: int
    runs: list[dict[str, Any]]

    @property
    def generations(self) -> dict[int, int]:
        return {d: e.committed.generation for d, e in self.entries.items() if e.committed}


def facts(driver: Driver) -> Facts:
    return Facts(
        driver=driver,
        root=driver.root,
        entries={e.interval.start.day: e for e in driver.entries},
        rows=driver.rows(),
        submits=len(driver.submits),
        runs=driver.api.runs(driver.pipeline),
    )


def run_of(number: int, kind: str) -> str:
    """Return the id of a day's run, which contains the end of the interval."""
    return f"{kind}__{day(number + 1).isoformat()}"


@scenario("january")
def scheduled(driver: Driver) -> Facts:
    """Unpause the DAG, years after its dates: it catches up 4, 5 and 6 January."""
    driver.switch(on=True)
    for number in (4, 5, 6):
        driver.wait_for_appearance(run_of(number, "scheduled"))
        driver.wait(run_of(number, "scheduled"))
    return facts(driver)


def test_catch_up_commits_each_missed_day_once(scheduled: Facts) -> None:
    assert scheduled.generations == {4: 1, 5: 1, 6: 1}
    assert scheduled.rows == scheduled.driver.expected(4, 5)
    committed = scheduled.entries[4].committed
    assert committed is not None
    assert committed.totals.records == PARTITIONS * (PER_DAY - 1)
    assert committed.totals.dead_letters == PARTITIONS


def test_day_without_records_is_committed_and_starts_no_spark(scheduled: Facts) -> None:
    assert scheduled.submits == 2
    log = scheduled.driver.log(run_of(6, "scheduled"), "plan", number=1)
    assert "no Spark will be started" in log


def test_log_shows_counts_and_no_secrets(scheduled: Facts) -> None:
    driver = scheduled.driver
    committed = driver.log(run_of(4, "scheduled"), "commit", number=1)
    assert "38 records, 2 dead letters" in committed
    staged = driver.log(run_of(4, "scheduled"), "stage", number=1)
    assert "table events: 38 rows" in staged
    # The job itself searches its environment, and fails if it finds a canary that it must not have.
    assert "canary" not in " ".join(driver.submits[0]) + staged + committed


def test_page_of_a_run_shows_the_counts_of_its_commit(scheduled: Facts) -> None:
    notes = {str(run["dag_run_id"]): run["note"] for run in scheduled.runs}
    found = re.fullmatch(
        r"tallystick: 38 records, 2 dead letters, version (\d+)", notes[run_of(4, "scheduled")]
    )
    assert found is not None, notes
    assert int(found[1]) <= scheduled.root.version


def test_asset_event_lists_covered_intervals(scheduled: Facts) -> None:
    driver = scheduled.driver
    path = "/assets/events?source_dag_id=january&order_by=timestamp&limit=100"
    events = driver.api.call("GET", path)["asset_events"]
    extras = [e["extra"] for e in events if e["partition_key"] is None]
    assert ["2013-01-04T00:00:00.000Z", "2013-01-05T00:00:00.000Z"] in [
        i for e in extras for i in e["covered"]
    ]
    assert len({e["version"] for e in extras}) >= 2
    fresh = [e for e in extras if e["committed"]["intervals"] > e["committed"]["already"]]
    assert {"records": 38, "dead_letters": 2}.items() <= fresh[0]["totals"].items()
    assert {"events": 38, "dead_letters": 2}.items() <= fresh[0]["committed"]["rows"].items()
    assert fresh[0]["committed"]["bytes"] > 0


def test_link_of_a_task_opens_its_commit_record(scheduled: Facts) -> None:
    driver = scheduled.driver
    run = run_of(5, "scheduled").replace("+", "%2B")
    links = driver.api.call("GET", f"/dags/january/dagRuns/{run}/taskInstances/commit/links")
    (link,) = links["extra_links"].values()
    assert link.startswith(driver.stack.proxy.url + "/lake/january/commits/")


@scenario("january")
def backfilled(driver: Driver, scheduled: Facts) -> Facts:
    """Backfill 1 to 3 January, before the DAG's start_date, backwards, two at a time.

    From here on no test looks at Spark itself: ten drivers less start a JVM.
    """
    run_without_jvm(driver.stack.project, driver.pipeline)
    driver.backfill(1, 3, backwards=True, max_active_runs=2)
    for number in (1, 2, 3):
        driver.wait(run_of(number, "backfill"))
    return facts(driver)


def test_backfill_backwards_goes_before_the_start_date(backfilled: Facts) -> None:
    assert backfilled.generations == dict.fromkeys(range(1, 7), 1)
    assert backfilled.rows == backfilled.driver.expected(1, 2, 3, 4, 5)
    started = {r["dag_run_id"]: r["start_date"] for r in backfilled.runs}
    assert started[run_of(3, "backfill")] < started[run_of(1, "backfill")]


@dataclass(frozen=True)
class Repeated:
    """The lake before and after clears and backfills of committed days; each backfill's new tries of `plan` by run."""

    before: Facts
    after: Facts
    none: dict[str, int]
    failed: dict[str, int]
    completed: dict[str, int]


@scenario("january")
def repeated(driver: Driver, backfilled: Facts) -> Repeated:
    """Clear each task of one committed day; then backfill committed days, one of them marked failed."""
    run = run_of(4, "scheduled")
    for task in ("commit", "stage", "plan"):
        driver.clear(run, task)
        driver.wait(run)
    runs = {run_of(n, "backfill"): 0 for n in (1, 2, 3)}

    def tries() -> dict[str, int]:
        total = {name: driver.tries(name, "plan") for name in runs}
        new = {name: total[name] - runs[name] for name in runs}
        runs.update(total)
        return new

    tries()
    driver.backfill(1, 3, reprocess="none")
    none = tries()
    driver.api.mark_run(driver.pipeline, run_of(2, "backfill"), "failed")
    driver.backfill(1, 3, reprocess="failed")
    driver.wait(run_of(2, "backfill"))
    failed = tries()
    driver.backfill(3, 3, reprocess="completed")
    driver.wait(run_of(3, "backfill"))
    return Repeated(backfilled, facts(driver), none, failed, tries())


def test_clear_of_each_task_after_the_commit_changes_nothing_and_starts_no_spark(
    repeated: Repeated,
) -> None:
    assert repeated.after.root == repeated.before.root
    assert repeated.after.submits == repeated.before.submits


def test_clear_number_reaches_the_request(repeated: Repeated) -> None:
    driver = repeated.after.driver
    assert "(clear 3)" in driver.log(run_of(4, "scheduled"), "plan", number=2)
    assert "(clear 1)" in driver.log(run_of(3, "backfill"), "plan", number=2)


def test_backfill_that_reprocesses_none_runs_no_day_again(repeated: Repeated) -> None:
    assert set(repeated.none.values()) == {0}


def test_run_marked_failed_by_hand_keeps_its_commit_and_reprocess_failed_runs_it_alone(
    repeated: Repeated,
) -> None:
    again = run_of(2, "backfill")
    assert repeated.failed == {run: int(run == again) for run in repeated.failed}
    assert repeated.after.entries[2] == repeated.before.entries[2]


def test_backfill_that_reprocesses_completed_days_changes_nothing_and_starts_no_spark(
    repeated: Repeated,
) -> None:
    again = run_of(3, "backfill")
    assert repeated.completed == {run: int(run == again) for run in repeated.completed}
    assert repeated.after.root == repeated.before.root


@scenario("january")
def eight(driver: Driver, repeated: Repeated) -> Facts:
    """Backfill 7 to 14 January forwards, all eight at once."""
    driver.backfill(7, 14, max_active_runs=8)
    for number in range(7, 15):
        driver.wait(run_of(number, "backfill"))
    return facts(driver)


def test_backfill_forwards_of_eight_intervals_at_once_commits_each_once(eight: Facts) -> None:
    assert eight.generations == dict.fromkeys(range(1, 15), 1)
    assert eight.rows == eight.driver.expected(*range(1, 6), *range(7, 15))
    assert eight.submits == len([number for number in TOPICS["january"] if number < 15])
    names = {run_of(n, "backfill") for n in range(7, 15)}
    runs = [r for r in eight.runs if r["dag_run_id"] in names]
    # Concurrently: the last run started before the first one ended.
    assert max(r["start_date"] for r in runs) < min(r["end_date"] for r in runs)


@scenario("january")
def replaced(driver: Driver, eight: Facts) -> tuple[Facts, Facts]:
    """Deploy a changed job, and clear one day."""
    job = driver.stack.project / "spark_jobs" / "january.py"
    job.write_text(JOB_FILE.replace("FACTOR = 1", "FACTOR = 10"))
    driver.clear(run_of(4, "scheduled"), "plan")
    driver.wait(run_of(4, "scheduled"))
    return eight, facts(driver)


def test_clear_after_a_change_of_code_replaces_that_day_alone(
    replaced: tuple[Facts, Facts],
) -> None:
    before, after = replaced
    assert after.entries[4].generation == 2
    assert {d: e for d, e in after.entries.items() if d != 4} == {
        d: e for d, e in before.entries.items() if d != 4
    }
    driver = after.driver
    assert after.rows == sorted(
        driver.expected(*range(1, 4), 5, *range(7, 15)) + driver.expected(4, factor=10)
    )
    assert after.submits == before.submits + 1


def open_transaction(kafka: Mapping[str, str], number: int) -> Producer:
    """Send one record in a transaction, and leave it open."""
    producer = Producer({**kafka, "transactional.id": "january"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(
        "january", value(number, 0), partition=0, timestamp=round(day(number).timestamp() * 1000)
    )
    assert producer.flush(60) == 0
    return producer


@dataclass(frozen=True)
class Triggered:
    """The lake before and after four presses of the Trigger button, and the commits in between."""

    before: Facts
    after: Facts
    commits: list[tuple[CommittedInterval, ...]]


@scenario("january")
def triggered(driver: Driver, replaced: tuple[Facts, Facts]) -> Triggered:
    """Press Trigger without dates, to replace ten days, with dates that cut through a day, with an unknown parameter.

    A transaction is open during the first press: that run has to wait for its end.
    """
    _, before = replaced
    transaction = open_transaction(driver.stack.kafka, 16)
    driver.trigger("new")
    driver.trigger("ten", mode="replace", start=day(5), end=day(15))
    driver.trigger("cut", mode="replace", start=day(1), end=day(3, 12))
    driver.trigger("mistyped", form="2013-01-01")
    driver.wait_for_task("new", "plan", "up_for_reschedule")
    transaction.commit_transaction(60)
    for run in ("new", "ten"):
        driver.wait(run)
    for run in ("cut", "mistyped"):
        driver.wait(run, "failed")
    commits = read_log(driver.lake, limit=100).commits
    since = [c.intervals for c in commits if c.version > before.root.version]
    return Triggered(before, facts(driver), since)


def test_trigger_without_dates_commits_all_new_records(triggered: Triggered) -> None:
    entry = triggered.after.entries[15]
    assert (entry.interval.start, entry.committed is not None) == (day(15), True)
    driver = triggered.after.driver
    assert set(driver.expected(15, factor=10)) <= set(triggered.after.rows)


def test_plan_waits_for_an_open_transaction_without_a_retry(triggered: Triggered) -> None:
    assert [n for _, _, n in triggered.after.rows].count(16 * 10) == 1
    assert triggered.after.driver.tries("new", "plan") == 1


def test_replace_of_ten_intervals_is_one_swap_for_each_that_has_records_and_changes_nothing_else(
    triggered: Triggered,
) -> None:
    before, after = triggered.before, triggered.after
    ten = set(range(5, 15))
    assert {d: after.generations[d] for d in ten} == dict.fromkeys(ten, 2)
    assert [after.entries[d] for d in range(1, 5)] == [before.entries[d] for d in range(1, 5)]
    swaps = [swap for swap in triggered.commits if any(c.request.run == "ten" for c in swap)]
    assert sorted(c.interval.start.day for swap in swaps for c in swap) == sorted(ten)
    # Those without records need no stage, and are committed together by `plan`.
    days = [sorted(c.interval.start.day for c in swap) for swap in swaps]
    assert sorted(days) == [[5], [6, 9, 10, 11, 12], [7], [8], [13], [14]]
    assert after.submits == before.submits + 2  # one for the ten, one for the new records
    driver = after.driver
    rows = driver.expected(1, 2, 3) + driver.expected(4, 5, *range(7, 16), factor=10)
    assert [row for row in after.rows if row[2] != 16 * 10] == sorted(rows)


def test_cut_through_an_interval_is_refused_with_the_two_nearest_boundaries(
    triggered: Triggered,
) -> None:
    log = triggered.after.driver.log("cut", "plan")
    assert "splits the committed interval [2013-01-03T00:00:00.000Z" in log
    assert "move that end to 2013-01-03T00:00:00.000Z or to 2013-01-04T00:00:00.000Z" in log
    assert triggered.after.generations[1] == 1


def test_unknown_parameter_fails_at_once_without_a_retry(triggered: Triggered) -> None:
    driver = triggered.after.driver
    assert driver.tries("mistyped", "plan") == 1
    assert "parameter 'form' is not allowed" in driver.log("mistyped", "plan")


def test_page_of_a_failed_run_shows_the_error_and_the_next_step(triggered: Triggered) -> None:
    driver = triggered.after.driver
    note = str(driver.api.run("january", "mistyped")["note"])
    assert note.startswith("tallystick: plan: invalid_request: parameter 'form' is not allowed")
    assert " Next: " in note
    error = driver.api.xcom("january", "mistyped", "plan", "error")
    assert isinstance(error, dict)
    assert error["kind"] == "invalid_request"
    assert error["hint"] in note
    assert "when-a-task-fails.md#invalid_request" in driver.log("mistyped", "plan")


def test_every_offset_is_accounted_for_once(triggered: Triggered) -> None:
    committed = [e.committed.totals for e in triggered.after.entries.values() if e.committed]
    days, in_transaction, marker = len(TOPICS["january"]), 1, 1
    offsets = days * PARTITIONS * PER_DAY
    assert sum(t.offsets for t in committed) == offsets + in_transaction + marker
    assert sum(t.dead_letters for t in committed) == days * PARTITIONS
    assert sum(t.control for t in committed) == marker


def test_history_of_a_scenario_shows_ledger_runs_and_last_log_lines(
    triggered: Triggered, scenarios: Scenarios
) -> None:
    history = scenarios.history(["triggered"])
    assert "committed by january / ten" in history
    assert "january mistyped: failed (plan failed, stage upstream_failed" in history
    assert "parameter 'form' is not allowed" in history
    assert f"{triggered.after.submits} spark-submit(s)" in history


def test_no_secret_is_found_anywhere_after_every_user_action(
    triggered: Triggered, scenarios: Scenarios
) -> None:
    """None of the twelve canaries is outside the files that store secrets."""
    scenarios.wait_for_all()
    stack = triggered.after.driver.stack
    local = stack.local
    logins = json.loads((local.airflow.state_dir / "secrets.json").read_text())
    canaries = {
        "Kafka's password": KAFKA_PASSWORD,
        "the S3 key": S3_SECRET,
        **{f"Airflow's {name}": value for name, value in logins.items()},
        **canaries_in(ENVIRONMENT),
    }
    assert len(canaries) == 12
    places = list(
        all_places(
            stack.base,
            database=local.airflow.database,
            s3=s3_client(local.s3.endpoint, local.environment()),
            submits=stack.submits,
        )
    )
    names = [place for place, _ in places]
    # The search is effective: it reads the places where secrets could be.
    for wanted in (
        "argv of process",
        "/events/",
        "table xcom",
        "table serialized_dag",
        "s3://lake/january/plans/",
    ):
        assert any(wanted in name for name in names), wanted
    assert any("attempt=" in name and name.endswith(".log") for name in names)
    assert find_canaries({"the topic": "january"}, iter(places))
    assert find_canaries(canaries, iter(places)) == []
