"""User actions: Clear after a changed declaration, and Clear if the topic no longer has the interval's records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from support.user_action_driver import DEADLINE_S, POLL_S, Driver
from support.user_action_project import (
    DAG_FILE,
    DECLARED_MORE,
    JOB_FILE_MORE,
    PARTITIONS,
    PER_DAY,
    PER_INTERVAL,
    Row,
    day,
)
from support.user_action_scenarios import EVERY_TEST, scenario
from tallystick.format.page import Entry
from tallystick.format.root import Root
from tallystick.tables.reading import static_table
from tallystick_devstack.process import wait_until

pytestmark = EVERY_TEST
RUN = "day_1"


@dataclass(frozen=True)
class Declared:
    """A day before and after a column was added to its table."""

    before: Entry
    after: Entry
    rows_before: list[Row]
    rows: list[Row]
    expected: list[Row]
    twice: list[tuple[int, int | None]]
    root: Root
    published_before: list[tuple[int, int | None]]
    published: list[tuple[int, int | None]]
    seen_per_interval: list[Any]
    events_per_interval: list[tuple[str, int]]


def seen_per_interval(driver: Driver, runs: int) -> list[Any]:
    """Wait until the DAG that runs per interval has `runs` runs, and return what each has seen, the oldest first."""

    def succeeded() -> list[str]:
        found = driver.api.runs(PER_INTERVAL)
        return sorted(str(r["dag_run_id"]) for r in found if r["state"] == "success")

    wait_until(
        lambda: len(succeeded()) >= runs,
        deadline_s=DEADLINE_S,
        what=f"{runs} runs of {PER_INTERVAL}",
        poll_s=POLL_S,
    )
    return sorted(
        (driver.api.xcom(PER_INTERVAL, run, "seen") for run in succeeded()),
        key=lambda seen: seen[0][-1],  # type: ignore[index]
    )


def events_per_interval(driver: Driver) -> list[tuple[str, int]]:
    """Return (partition key, generation) of each event per interval that Airflow has of the run."""
    path = f"/assets/events?source_dag_id=declared&source_run_id={RUN}&limit=100"
    found = driver.api.call("GET", path)["asset_events"]
    return sorted(
        (e["partition_key"], e["extra"]["intervals"][e["partition_key"]]["generation"])
        for e in found
        if e["partition_key"] is not None
    )


def published(driver: Driver) -> list[tuple[int, int | None]]:
    """Return (n, twice) of each row in the only file that readers of the output's folder see."""
    (file,) = (driver.stack.project / "published").glob("*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return sorted((row["n"], row.get("twice")) for row in rows)


@scenario("declared")
def column_added(driver: Driver) -> Declared:
    """Commit a day; declare one more column, which the job returns; clear the day."""
    driver.switch(on=True)
    driver.switch(on=True, dag=PER_INTERVAL)
    driver.trigger(RUN, start=day(1), end=day(2))
    driver.wait(RUN)
    seen_per_interval(driver, 1)
    before, rows_before, published_before = driver.entry(day(1)), driver.rows(), published(driver)
    project = driver.stack.project
    (project / "spark_jobs" / "declared.py").write_text(JOB_FILE_MORE)
    (project / "dags" / "declared.py").write_text(DAG_FILE + DECLARED_MORE)
    driver.clear(RUN, "plan")
    driver.wait(RUN)
    driver.clear(RUN, "commit")
    driver.wait(RUN)
    metadata = driver.root.tables["events"].metadata
    assert metadata is not None
    rows = static_table(driver.lake.store, metadata).scan().to_arrow().to_pylist()
    return Declared(
        before=before,
        after=driver.entry(day(1)),
        rows_before=rows_before,
        rows=driver.rows(),
        expected=driver.expected(1, topic="expiring"),
        twice=[(row["n"], row["twice"]) for row in rows],
        root=driver.root,
        published_before=published_before,
        published=published(driver),
        seen_per_interval=seen_per_interval(driver, 2),
        events_per_interval=events_per_interval(driver),
    )


def test_a_dag_runs_once_per_committed_interval_and_again_when_it_is_replaced(
    column_added: Declared,
) -> None:
    key, interval = "2013-01-01T00:00:00", column_added.after.interval.to_json()
    # The commit task was cleared after the second commit, and emitted nothing that was emitted before.
    assert column_added.events_per_interval == [(key, 1), (key, 2)]
    assert column_added.seen_per_interval == [[[key, interval, 1]], [[key, interval, 2]]]


def test_rows_are_published_once_and_the_file_of_a_replaced_day_is_replaced(
    column_added: Declared,
) -> None:
    count = len(column_added.expected)
    assert column_added.published_before == [(1, None)] * count
    assert column_added.published == [(1, 2)] * count


def test_clear_after_a_column_was_added_replaces_the_day_with_the_column_filled(
    column_added: Declared,
) -> None:
    assert column_added.rows_before == column_added.expected
    assert (column_added.before.generation, column_added.after.generation) == (1, 2)
    assert column_added.rows == column_added.expected
    assert set(column_added.twice) == {(1, 2)}


@dataclass(frozen=True)
class Expired:
    """A clear, with changed code, of a day whose records the topic has lost."""

    log: str
    tries: int
    root: Root
    rows: list[Row]


@scenario("declared")
def expired(driver: Driver, column_added: Declared) -> Expired:
    """Delete most of the day's records from the topic; change the code; clear the day."""
    del column_added
    tries = driver.tries(RUN, "plan")
    admin = AdminClient(driver.stack.kafka)
    deletions = [TopicPartition("expiring", p, PER_DAY - 5) for p in range(PARTITIONS)]
    for deleted in admin.delete_records(deletions).values():
        deleted.result(60)
    job = driver.stack.project / "spark_jobs" / "declared.py"
    job.write_text(JOB_FILE_MORE.replace("FACTOR = 1", "FACTOR = 10"))
    driver.clear(RUN, "plan")
    driver.wait(RUN, "failed")
    return Expired(
        log=driver.log(RUN, "plan"),
        tries=driver.tries(RUN, "plan") - tries,
        root=driver.root,
        rows=driver.rows(),
    )


def test_clear_with_changed_code_of_records_that_the_topic_lost_is_refused_and_keeps_the_commit(
    expired: Expired, column_added: Declared
) -> None:
    assert "outside_retention: expiring[0]: expected offsets [0, 20)" in expired.log
    assert "found a log that begins at 15: 15 offsets are gone. Nothing was changed." in expired.log
    assert expired.tries == 1
    assert expired.root == column_added.root
    assert expired.rows == column_added.rows
