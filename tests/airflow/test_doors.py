"""Each door pulled once on the real thing: Airflow's scheduler, PostgreSQL, Kafka, an S3 server, spark-submit.

One stack and one story: the steps build on each other, so each is a fixture that follows the one before, and the tests
state what must hold after it. A wrapper notes every spark-submit, so that "no Spark was started" is seen, not believed.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from canaries import SURROUNDINGS, everything, s3_client, sightings, words_of
from tallystick.lake import Lake
from tallystick.local.airflow_api import AirflowApi
from tallystick.local.parts import LocalStack
from tallystick.local.process import free_port
from tallystick.protocol.ledger import Entry
from tallystick.protocol.root import Root
from tallystick.store.open import open_store
from tallystick.tables.reading import static_table
from tallystick.world import real_world

# kafka-python, PyIceberg and Airflow's clients say things that only their own authors can act on.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(900),
]

REPO = Path(__file__).parents[2]
DAG = "doors"
WAREHOUSE = "s3://lake/doors"
PARTITIONS = 2
PER_DAY = 20  # and partition, one of them broken
DEADLINE_S = 240.0
KAFKA_PASSWORD, S3_SECRET = "canary-of-kafka", "canary-of-s3"

DAG_FILE = """\
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Pipeline, Table
from tallystick.airflow import replay_dag

pipeline = Pipeline(
    name="doors",
    topics=["doors"],
    warehouse="s3://lake/doors",
    job="spark_jobs/doors.py",
    tables=[
        Table("events", columns=[Column("n", "long"), Column("kind", "string")]),
        Table("per_kind", columns=[Column("kind", "string"), Column("n", "long")], keys=["kind"], combine={"n": "sum"}),
    ],
)
dag = replay_dag(
    pipeline,
    schedule="@daily",
    start_date=datetime(2013, 1, 4, tzinfo=UTC),
    end_date=datetime(2013, 1, 6, tzinfo=UTC),
    max_active_runs=2,
    retries=2,
    retry_delay=timedelta(seconds=1),
    spark_binary=str(Path(__file__).parents[1] / "spark-submit"),
    spark_conf={
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(Path(__file__).parents[1] / "events"),
    },
)
"""

JOB_FILE = """\
import os

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.spark import run

FACTOR = 1
own = {"TALLYSTICK_KAFKA_DEFAULT", "AWS_SECRET_ACCESS_KEY"}
assert not [name for name, value in os.environ.items() if "canary" in value and name not in own]
assert own == {name for name, value in os.environ.items() if "canary" in value}


def transform(records: pa.Table) -> dict[str, pa.Table]:
    n = pc.multiply(records["n"], FACTOR)
    events = records.set_column(records.column_names.index("n"), "n", n)
    sums = events.group_by("kind").aggregate([("n", "sum")]).rename_columns(["kind", "n"])
    return {"events": events, "per_kind": sums}


if __name__ == "__main__":
    run(transform)
"""


def day(number: int) -> datetime:
    """Midnight before day `number` of January 2013."""
    return datetime(2013, 1, 1, tzinfo=UTC) + timedelta(days=number - 1)


@dataclass
class Doors:
    """The stack, the project folder, and what the tests look at."""

    stack: LocalStack
    project: Path
    api: AirflowApi
    base: Path
    marks: dict[str, int] = field(default_factory=dict)

    @property
    def submits(self) -> list[list[str]]:
        """The argv of every spark-submit so far."""
        noted = self.project / "calls"
        return [line.split() for line in noted.read_text().splitlines()] if noted.exists() else []

    @property
    def root(self) -> Root:
        return self._lake.require().root

    @property
    def ledger(self) -> dict[int, Entry]:
        """Entries by the day that they begin with."""
        return {e.interval.start.day: e for e in self._lake.require().whole_ledger().entries}

    @property
    def generations(self) -> dict[int, int]:
        return {d: e.committed.generation for d, e in self.ledger.items() if e.committed}

    def sums(self) -> dict[int, int]:
        """The sum of `n` in the table of events, by day of the records' timestamps."""
        metadata = self.root.tables["events"].metadata
        assert metadata is not None
        found: dict[int, int] = {}
        for row in static_table(self._lake.store, metadata).scan().to_arrow().to_pylist():
            found[row["_timestamp"].day] = found.get(row["_timestamp"].day, 0) + row["n"]
        return found

    @property
    def _lake(self) -> Lake:
        return Lake(open_store(WAREHOUSE), real_world())

    def run_id(self, number: int, kind: str) -> str:
        """The run of one day; Airflow names it by the interval's end."""
        return f"{kind}__{day(number + 1).isoformat()}"

    def wait(self, run_id: str, state: str = "success") -> None:
        """Wait for a run's end; where it is another one than wanted, show what the tasks said."""
        run = self.api.wait_for_run(DAG, run_id, deadline_s=DEADLINE_S)
        assert run["state"] == state, "\n".join(
            self.log(run_id, t["task_id"]) for t in self.api.tasks(DAG, run_id)
        )

    def log(self, run_id: str, task: str) -> str:
        """The log of a task's last try; empty where it never ran."""
        tries = self.api.tries(DAG, run_id, task)
        last = int(tries[-1]["try_number"]) if tries else 0
        return self.api.log(DAG, run_id, task, last) if last else ""

    def trigger(self, **conf: Any) -> str:
        return str(self.api.trigger(DAG, conf=conf)["dag_run_id"])


def login_with_a_password(stack: LocalStack) -> None:
    """Let Airflow's side come to Kafka as a user, with canaries around it, before the stack starts."""
    port = free_port()
    stack.kafka._users, stack.kafka._users_port = {"me": KAFKA_PASSWORD}, port
    login = {
        "bootstrap_servers": f"127.0.0.1:{port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": KAFKA_PASSWORD,
    }
    stack.airflow._env = {
        **stack.airflow._env,
        **SURROUNDINGS,
        "TALLYSTICK_KAFKA_DEFAULT": json.dumps(login),
    }


def value(number: int, index: int) -> bytes:
    if index == 7:
        return b'{"n": '
    return json.dumps({"n": number, "kind": "ab"[index % 2]}).encode()


def expected_sum(number: int, factor: int = 1) -> int:
    return factor * number * PARTITIONS * (PER_DAY - 1)


def produce(bootstrap: str, days: list[int]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4"}
    )
    for number in days:
        for index in range(PER_DAY):
            at_ms = round((day(number) + timedelta(hours=index)).timestamp() * 1000)
            for partition in range(PARTITIONS):
                producer.produce(
                    "doors", value(number, index), partition=partition, timestamp=at_ms
                )
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    # Not below pytest's own folder: PostgreSQL runs as another user, who must reach it, and socket paths are short.
    base = Path(tempfile.mkdtemp(prefix="tally-doors-"))
    base.chmod(0o711)
    project = base / "project"
    for folder in ("dags", "spark_jobs", "events"):
        (project / folder).mkdir(parents=True)
    (project / "plugins").symlink_to(REPO / "plugins")
    (project / "dags" / "doors.py").write_text(DAG_FILE)
    (project / "spark_jobs" / "doors.py").write_text(JOB_FILE)
    submit = project / "spark-submit"
    real = Path(sys.executable).with_name("spark-submit")
    submit.write_text(f'#!/bin/sh\necho "$@" >> {project}/calls\nexec {real} "$@"\n')
    submit.chmod(0o755)
    state = base / "state"
    state.mkdir(mode=0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tallystick.local.s3.SECRET_KEY", S3_SECRET)
        stack = LocalStack(state, project_dir=project)
        for name, setting in stack.environment().items():
            patch.setenv(name, setting)
        login_with_a_password(stack)
        try:
            stack.start(print)
            topic = NewTopic("doors", PARTITIONS, 1, config={"retention.ms": "-1"})
            admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
            admin.create_topics([topic])["doors"].result(60)
            produce(stack.kafka.bootstrap, [1, 2, 3, 4, 5, 8])
            api = stack.airflow.api()
            api.wait_for_dag(DAG, deadline_s=DEADLINE_S)
            yield Doors(stack=stack, project=project, api=api, base=base)
        finally:
            stack.stop(print)
            shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="module")
def scheduled(doors: Doors) -> Doors:
    """Switch the DAG on: it catches up 4, 5 and 6 January."""
    doors.api.set_paused(DAG, paused=False)
    for number in (4, 5, 6):
        wait_for_appearance(doors, doors.run_id(number, "scheduled"))
        doors.wait(doors.run_id(number, "scheduled"))
    doors.marks["scheduled"] = len(doors.submits)
    return doors


def wait_for_appearance(doors: Doors, run_id: str) -> None:
    from tallystick.local.process import wait_until

    wait_until(
        lambda: run_id in {r["dag_run_id"] for r in doors.api.runs(DAG)},
        deadline_s=DEADLINE_S,
        what=f"run {run_id}",
    )


def test_schedule_commits_each_day_once(scheduled: Doors) -> None:
    assert {4, 5, 6} <= scheduled.generations.keys()
    assert {d: s for d, s in scheduled.sums().items() if d in (4, 5)} == {
        4: expected_sum(4),
        5: expected_sum(5),
    }
    totals = scheduled.ledger[4].committed
    assert totals is not None
    assert (totals.totals.records, totals.totals.dead) == (PARTITIONS * (PER_DAY - 1), PARTITIONS)


def test_day_without_records_starts_no_spark(scheduled: Doors) -> None:
    assert scheduled.marks["scheduled"] == 2
    assert "no Spark will be started" in scheduled.log(scheduled.run_id(6, "scheduled"), "plan")


def test_log_tells_the_story_without_secrets(scheduled: Doors) -> None:
    story = scheduled.log(scheduled.run_id(4, "scheduled"), "commit")
    assert "38 records, 2 dead letters" in story
    staged = scheduled.log(scheduled.run_id(4, "scheduled"), "stage")
    assert "table events: 38 rows" in staged
    # The job itself looks through its environment, and fails where it finds a canary that is not its own.
    assert "canary" not in " ".join(scheduled.submits[0]) + staged + story


def test_asset_event_lists_what_is_covered(scheduled: Doors) -> None:
    events = scheduled.api.call("GET", "/assets/events?limit=100")["asset_events"]
    told = [e["extra"] for e in events if e["source_dag_id"] == DAG]
    assert ["2013-01-04T00:00:00.000Z", "2013-01-05T00:00:00.000Z"] in [
        i for e in told for i in e["covered"]
    ]
    assert len({e["version"] for e in told}) >= 2


def test_link_of_a_task_opens_its_commit_record(scheduled: Doors) -> None:
    run = scheduled.run_id(4, "scheduled").replace("+", "%2B")
    links = scheduled.api.call("GET", f"/dags/{DAG}/dagRuns/{run}/taskInstances/commit/links")
    (link,) = links["extra_links"].values()
    assert link.startswith(scheduled.stack.s3.endpoint + "/lake/doors/commits/")


@pytest.fixture(scope="module")
def backfilled(scheduled: Doors) -> Doors:
    """Backfill 1 to 3 January, before the DAG's start_date, backwards, two at a time."""
    made = scheduled.api.create_backfill(DAG, day(1), day(3), backwards=True, max_active_runs=2)
    scheduled.api.wait_for_backfill(int(made["id"]), deadline_s=DEADLINE_S)
    for number in (1, 2, 3):
        scheduled.wait(scheduled.run_id(number, "backfill"))
    scheduled.marks["backfilled"] = len(scheduled.submits)
    return scheduled


def test_backfill_goes_before_the_start_date(backfilled: Doors) -> None:
    assert backfilled.generations == dict.fromkeys(range(1, 7), 1)
    sums = backfilled.sums()
    assert sums == {d: expected_sum(d) for d in range(1, 6)}


@pytest.fixture(scope="module")
def cleared(backfilled: Doors) -> tuple[Doors, Root]:
    """Clear each task of one day with its downstream, as the button does, and let a backfill run another again."""
    before = backfilled.root
    run = backfilled.run_id(4, "scheduled")
    for task in ("commit", "stage", "plan"):
        backfilled.api.clear_tasks(DAG, run, [task])
        backfilled.wait(run)
    made = backfilled.api.create_backfill(DAG, day(3), day(3), reprocess="completed")
    backfilled.api.wait_for_backfill(int(made["id"]), deadline_s=DEADLINE_S)
    backfilled.wait(backfilled.run_id(3, "backfill"))
    return backfilled, before


def test_clear_of_each_task_changes_nothing_and_starts_no_spark(
    cleared: tuple[Doors, Root],
) -> None:
    doors, before = cleared
    assert doors.root == before
    assert len(doors.submits) == doors.marks["backfilled"]


def test_clear_number_reaches_the_request(cleared: tuple[Doors, Root]) -> None:
    doors, _ = cleared
    assert "(clear 3)" in doors.log(doors.run_id(4, "scheduled"), "plan")
    assert "(clear 1)" in doors.log(doors.run_id(3, "backfill"), "plan")


@pytest.fixture(scope="module")
def replaced(cleared: tuple[Doors, Root]) -> Doors:
    """Deploy a changed job, and clear one day."""
    doors, _ = cleared
    (doors.project / "spark_jobs" / "doors.py").write_text(
        JOB_FILE.replace("FACTOR = 1", "FACTOR = 10")
    )
    run = doors.run_id(4, "scheduled")
    doors.api.clear_tasks(DAG, run, ["plan"])
    doors.wait(run)
    return doors


def test_clear_after_a_change_replaces_that_day_alone(replaced: Doors) -> None:
    assert replaced.generations == {1: 1, 2: 1, 3: 1, 4: 2, 5: 1, 6: 1}
    assert replaced.sums() == {d: expected_sum(d, 10 if d == 4 else 1) for d in range(1, 6)}
    assert len(replaced.submits) == replaced.marks["backfilled"] + 1


def open_transaction(bootstrap: str, number: int) -> Producer:
    """Send one record in a transaction, and leave it open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "doors"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(
        "doors", value(number, 0), partition=0, timestamp=round(day(number).timestamp() * 1000)
    )
    assert producer.flush(60) == 0
    return producer


@pytest.fixture(scope="module")
def triggered(replaced: Doors) -> tuple[Doors, dict[str, str]]:
    """Three presses of the Trigger button: without dates, with a span to replace, with a parameter that is none.

    While the first is pressed, a transaction is open: its run has to wait for what comes before it.
    """
    open_one = open_transaction(replaced.stack.kafka.bootstrap, 9)
    runs = {
        "new": replaced.trigger(),
        "replace": replaced.trigger(
            mode="replace", **{"from": day(1).isoformat(), "to": day(3).isoformat()}
        ),
        "mistyped": replaced.trigger(form="2013-01-01"),
    }
    replaced.api.wait_for_task(
        DAG, runs["new"], "plan", states={"up_for_reschedule"}, deadline_s=DEADLINE_S
    )
    open_one.commit_transaction(60)
    for name, run in runs.items():
        replaced.wait(run, "failed" if name == "mistyped" else "success")
    return replaced, runs


def test_trigger_without_dates_takes_all_that_is_new(
    triggered: tuple[Doors, dict[str, str]],
) -> None:
    doors, _ = triggered
    entry = doors.ledger[7]
    assert (entry.interval.start, entry.committed is not None) == (day(7), True)
    assert doors.sums()[8] == expected_sum(8, 10)


def test_open_transaction_is_waited_for_without_a_retry(
    triggered: tuple[Doors, dict[str, str]],
) -> None:
    doors, runs = triggered
    assert doors.sums()[9] == 9 * 10
    assert len(doors.api.tries(DAG, runs["new"], "plan")) == 1


def test_trigger_with_a_span_replaces_whoever_committed_it(
    triggered: tuple[Doors, dict[str, str]],
) -> None:
    doors, runs = triggered
    assert [doors.generations[d] for d in (1, 2, 3)] == [2, 2, 1]
    assert doors.sums()[1] == expected_sum(1, 10)
    attempts = [argv for argv in doors.submits if argv.count("--plan") == 2]
    assert len(attempts) == 1
    assert "replaces plans/" in doors.log(runs["replace"], "plan")


def test_unknown_parameter_fails_at_once_without_a_retry(
    triggered: tuple[Doors, dict[str, str]],
) -> None:
    doors, runs = triggered
    assert len(doors.api.tries(DAG, runs["mistyped"], "plan")) == 1
    assert "parameter 'form' is not known" in doors.log(runs["mistyped"], "plan")


def test_every_offset_is_accounted_for_once(triggered: tuple[Doors, dict[str, str]]) -> None:
    doors, _ = triggered
    committed = [e.committed.totals for e in doors.ledger.values() if e.committed]
    in_transaction, marker = 1, 1
    assert sum(t.offsets for t in committed) == 6 * PARTITIONS * PER_DAY + in_transaction + marker
    assert sum(t.dead for t in committed) == 6 * PARTITIONS
    assert sum(t.control for t in committed) == marker


def test_no_secret_is_found_anywhere(triggered: tuple[Doors, dict[str, str]]) -> None:
    """After every door: twelve canaries, and none outside the files that keep them."""
    doors, _ = triggered
    stack = doors.stack
    kept = json.loads((stack.airflow.state_dir / "secrets.json").read_text())
    canaries = {
        "Kafka's password": KAFKA_PASSWORD,
        "the S3 key": S3_SECRET,
        **{f"Airflow's {name}": value for name, value in kept.items()},
        **words_of(SURROUNDINGS),
    }
    assert len(canaries) == 12
    places = list(
        everything(
            doors.base,
            database=stack.airflow.database,
            s3=s3_client(stack.s3.endpoint, stack.environment()),
            submits=doors.submits,
        )
    )
    names = [place for place, _ in places]
    # The search is awake: it goes where secrets would be.
    for wanted in (
        "argv of process",
        "/events/",
        "table xcom",
        "table serialized_dag",
        "s3://lake/doors/plans/",
    ):
        assert any(wanted in name for name in names), wanted
    assert any("attempt=" in name and name.endswith(".log") for name in names)
    assert sightings({"the topic": "doors"}, iter(places))
    assert sightings(canaries, iter(places)) == []
