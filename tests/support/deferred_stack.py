"""A whole stack whose stage tasks are deferred: Airflow with a triggerer that tests kill, and a simulated Spark master.

The drivers are processes that run the job's real code over the real engine, Kafka and S3, without a JVM.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.spark_master import SimulatedMaster, simulated_master
from tallystick.lake import Lake
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick_devstack.kafka_login import confluent_words
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.process import ChildProcess

REPO = Path(__file__).parents[2]
DAG = "held"
LAKE = "s3://lake/held"
START = datetime(2013, 1, 1, tzinfo=UTC)
RECORDS, PARTITIONS = 6, 2
SLOTS = 4
_DAG_FILE = """\
from datetime import UTC, datetime, timedelta

from tallystick import Column, Pipeline, Table
from tallystick.airflow import replay_dag

pipeline = Pipeline(
    name="held",
    topics=["held"],
    warehouse="s3://lake/held",
    job="spark_jobs/held.py",
    tables=[Table("events", columns=[Column("n", "long")])],
)
start = datetime(2013, 1, 1, tzinfo=UTC)
held = replay_dag(
    pipeline,
    schedule="@hourly",
    start_date=start,
    end_date=start + timedelta(hours={hours} - 1),
    deferrable=True,
    max_active_runs={hours},
    max_active_stages=None,
    retries=3,
    retry_delay=timedelta(seconds=1),
)
"""
_JOB_FILE = """\
from support.no_spark import run


def transform(records):
    return {"events": records}


if __name__ == "__main__":
    run(transform)
"""


@dataclass
class DeferredStack:
    """The running stack. `sent`: the offsets that were produced, by (partition, offset), with their numbers."""

    local: LocalStack
    master: SimulatedMaster
    hours: int
    base: Path
    sent: dict[tuple[int, int], int] = field(default_factory=dict)
    triggerers: int = 0
    triggerer: ChildProcess | None = None

    def start_triggerer(self) -> None:
        """Start a triggerer."""
        self.triggerers += 1
        self.triggerer = ChildProcess(
            [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"],
            name="Airflow's triggerer",
            log_path=self.base / f"triggerer-{self.triggerers}.log",
            env=self.local.airflow.environment(),
            cwd=self.base,
        )

    def kill_triggerer(self) -> None:
        """Kill the triggerer as a power failure does, and start another one."""
        assert self.triggerer is not None
        self.triggerer.kill()
        self.start_triggerer()

    def states(self, task: str = "stage") -> Counter[str]:
        """Return the number of task instances of all runs in each state."""
        found: Counter[str] = Counter()
        offset = 0
        while True:
            page = self.local.airflow.api().call(
                "GET",
                f"/dags/{DAG}/dagRuns/~/taskInstances?task_id={task}&limit=100&offset={offset}",
            )
            found.update(
                str(one["state"]) for one in page["task_instances"] if one["task_id"] == task
            )
            offset += 100
            if offset >= page["total_entries"]:
                return found

    def lineage(self) -> list[dict[str, Any]]:
        """Return the OpenLineage events of commit tasks that succeeded."""
        files = (self.base / "lineage").iterdir()
        events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [
            e
            for e in events
            if e["eventType"] == "COMPLETE" and e["job"]["name"] == f"{DAG}.commit"
        ]

    def produce(self) -> None:
        """Send RECORDS records of each hour to each partition."""
        words = confluent_words(self.local.kafka.client_settings())
        topic = NewTopic(DAG, PARTITIONS, 1, config={"retention.ms": "-1"})
        admin = AdminClient(dict(words))
        admin.create_topics([topic])[DAG].result(60)
        producer = Producer({**words, "enable.idempotence": True})

        def acknowledged(error: object, message: object) -> None:
            assert error is None, error
            place = message.partition(), message.offset()  # type: ignore[attr-defined]
            self.sent[place] = json.loads(message.value())["n"]  # type: ignore[attr-defined]

        for hour in range(self.hours):
            for index in range(RECORDS):
                at = START + timedelta(hours=hour, minutes=index)
                for partition in range(PARTITIONS):
                    producer.produce(
                        DAG,
                        value=json.dumps({"n": 100 * hour + index}).encode(),
                        partition=partition,
                        timestamp=int(at.timestamp() * 1000),
                        on_delivery=acknowledged,
                    )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert len(self.sent) == self.hours * RECORDS * PARTITIONS

    def lake(self) -> Lake:
        """Open the lake."""
        return Lake(open_store(LAKE), system_runtime(), proven=True)


@contextmanager
def deferred_stack(hours: int) -> Iterator[DeferredStack]:
    """Run the stack. No driver starts before the test gives the master cores."""
    # Not below pytest's folder: PostgreSQL runs as another user, who must reach it, and socket paths must be short.
    base = Path(tempfile.mkdtemp(prefix="tally-held-"))
    base.chmod(0o711)
    project, state = base / "project", base / "state"
    for folder in (
        *(project / name for name in ("dags", "spark_jobs", "plugins")),
        base / "lineage",
    ):
        folder.mkdir(parents=True)
    state.mkdir(mode=0o711)
    (project / "dags" / "held.py").write_text(_DAG_FILE.replace("{hours}", str(hours)))
    job = project / "spark_jobs" / "held.py"
    job.write_text(_JOB_FILE)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        stack = LocalStack(state, project_dir=project, parts=("kafka", "s3", "postgres", "airflow"))
        for name, setting in stack.environment().items():
            patch.setenv(name, setting)
        master = SimulatedMaster(
            command=[sys.executable, str(job)],
            env={
                **stack.environment(),
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join([str(REPO / "plugins"), str(REPO / "tests")]),
            },
            cores=0,
        )
        running.enter_context(simulated_master(master))
        connection = {
            "conn_type": "spark",
            "host": "spark://simulated:7077",
            "extra": {"rest_url": master.url},
        }
        stack.airflow._env |= {
            "PYTHONPATH": os.pathsep.join([str(REPO / "plugins"), str(REPO / "tests")]),
            # A new triggerer takes over the triggers of a dead one after seconds, not half a minute.
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
            "AIRFLOW__SCHEDULER__MAX_DAGRUNS_TO_CREATE_PER_LOOP": "50",
            # A file per event.
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(base / "lineage" / "event")}
            ),
        }
        settings = stack.airflow.environment

        def with_master() -> dict[str, str]:
            return settings() | {
                "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
                "AIRFLOW__CORE__EXECUTOR": "support.preloaded_executor.PreloadedExecutor",
                "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
            }

        patch.setattr(stack.airflow, "environment", with_master)
        found = DeferredStack(local=stack, master=master, hours=hours, base=base)
        try:
            stack.start(print)
            found.produce()
            found.start_triggerer()
            stack.airflow.api().wait_for_dag(DAG, deadline_s=300)
            yield found
        finally:
            if found.triggerer is not None:
                found.triggerer.kill()
            stack.stop(print)
            if not os.environ.get("TEST_DEFERRED_KEEP"):
                shutil.rmtree(base, ignore_errors=True)
