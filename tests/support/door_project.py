"""The project of the door tests: DAG files, one job source for all pipelines, and the records of its topics.

Every pipeline has a lake root and a job file of its own, so that what is pressed on one touches no other.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

REPO = Path(__file__).parents[2]
PARTITIONS = 2
PER_DAY = 20  # and partition, one of them broken, one each hour until 20:00
BROKEN = 7
# Told to Airflow's side alone, and looked for everywhere else.
KAFKA_PASSWORD, S3_SECRET = "canary-of-kafka", "canary-of-s3"

# Topic -> the days of January 2013 that have records.
TOPICS = {"doors": [*range(1, 6), *range(7, 16)], "short": [1], "expiring": [1]}

DAG_FILE = """\
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Pipeline, Table
from tallystick.airflow import replay_dag

HERE = Path(__file__).parents[1]


def pipeline(name, topic, lake=None, added=()):
    return Pipeline(
        name=name,
        topics=[topic],
        warehouse=f"s3://lake/{lake or name}",
        job=f"spark_jobs/{name}.py",
        tables=[
            Table("events", columns=[Column("n", "long"), Column("kind", "string"), *added]),
            Table(
                "per_kind",
                columns=[Column("kind", "string"), Column("n", "long")],
                keys=["kind"],
                combine={"n": "sum"},
            ),
        ],
    )


def dag(of, schedule=None, first=1, last=1, dag_id=None, conf=None, **settings):
    return replay_dag(
        of,
        dag_id=dag_id,
        schedule=schedule,
        start_date=datetime(2013, 1, first, tzinfo=UTC),
        end_date=datetime(2013, 1, last, tzinfo=UTC) if last else None,
        retries=2,
        retry_delay=timedelta(seconds=1),
        spark_binary=str(HERE / "spark-submit"),
        spark_conf=conf,
        **settings,
    )


"""

DAGS = """\
doors = dag(
    pipeline("doors", "doors"),
    "@daily",
    4,
    6,
    max_active_runs=2,
    conf={"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(HERE / "events")},
)
paused = dag(pipeline("paused", "short"), "* * * * *", last=None, catchup=False, max_active_runs=1)
beside = dag(pipeline("beside", "short"), "@daily")
# Another DAG of the same pipeline, and another pipeline that was given the same lake by mistake.
twin = dag(pipeline("beside", "short"), "@daily", dag_id="beside_twin")
stranger = dag(pipeline("stranger", "short", lake="beside"))
# Pressed in a browser. Only day 1 has records: what comes after it is committed without Spark.
buttons = dag(pipeline("buttons", "short"), "@daily")
before, during, running, by_hand = (
    dag(pipeline(name, "doors")) for name in ("before", "during", "running", "by_hand")
)
"""

DECLARED = """\
declared = dag(pipeline("declared", "expiring"))
"""

DECLARED_MORE = """\
declared = dag(pipeline("declared", "expiring", added=[Column("twice", "long", required=False)]))
"""

JOB_FILE = """\
import os
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.spark import run

FACTOR = 1
GATE = Path(__file__).parents[1] / "gates" / Path(__file__).stem
own = {"TALLYSTICK_KAFKA_DEFAULT", "AWS_SECRET_ACCESS_KEY"}
assert own == {name for name, value in os.environ.items() if "canary" in value}


def pass_the_gate() -> None:
    if not (GATE / "shut").exists():
        return
    attempt = sys.argv[sys.argv.index("--attempt") + 1]
    (GATE / f"here-{attempt}-{os.getpid()}").touch()
    deadline = time.monotonic() + 1500
    while not (GATE / f"go-{attempt}").exists():
        if time.monotonic() > deadline:
            sys.exit("nobody opened the gate")
        time.sleep(0.1)


def transform(records: pa.Table) -> dict[str, pa.Table]:
    n = pc.multiply(records["n"], FACTOR)
    events = records.set_column(records.column_names.index("n"), "n", n)
    sums = events.group_by("kind").aggregate([("n", "sum")]).rename_columns(["kind", "n"])
    return {"events": events, "per_kind": sums}


if __name__ == "__main__":
    pass_the_gate()
    run(transform)
"""

# The declared column is there, and null, before the job fills it.
JOB_FILE_MORE = JOB_FILE.replace(
    '"events": events,',
    '"events": events.set_column(events.column_names.index("twice"), "twice", pc.multiply(n, 2)),',
)

NAMES = (
    "doors",
    "paused",
    "beside",
    "stranger",
    "before",
    "during",
    "running",
    "by_hand",
    "buttons",
    "declared",
)

Row = tuple[int, int, int]
"""(partition, offset, n) of one row of the table of events."""


def day(number: int, hour: int = 0) -> datetime:
    """An hour of day `number` of January 2013."""
    return datetime(2013, 1, 1, hour, tzinfo=UTC) + timedelta(days=number - 1)


def write_project(project: Path) -> None:
    """Write the files of a user's project, with a spark-submit that notes each of its calls."""
    for folder in ("dags", "spark_jobs", "events", *(f"gates/{name}" for name in NAMES)):
        (project / folder).mkdir(parents=True)
    (project / "plugins").symlink_to(REPO / "plugins")
    (project / "dags" / "doors.py").write_text(DAG_FILE + DAGS)
    (project / "dags" / "declared.py").write_text(DAG_FILE + DECLARED)
    for name in NAMES:
        (project / "spark_jobs" / f"{name}.py").write_text(JOB_FILE)
    submit = project / "spark-submit"
    real = Path(sys.executable).with_name("spark-submit")
    # The drivers run this tree's code, whatever is installed beside their Python.
    submit.write_text(
        f'#!/bin/sh\necho "$@" >> {project}/calls\nPYTHONPATH={REPO}/plugins exec {real} "$@"\n'
    )
    submit.chmod(0o755)


def value(number: int, index: int) -> bytes:
    """The value of a day's record: day and kind, or half a JSON."""
    if index == BROKEN:
        return b'{"n": '
    return json.dumps({"n": number, "kind": "ab"[index % 2]}).encode()


class Produced:
    """What the broker acknowledged, by topic and day."""

    def __init__(self) -> None:
        self.rows: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)

    def produce(self, kafka: Mapping[str, str]) -> None:
        """Create the topics and send their records."""
        admin = AdminClient(dict(kafka))
        topics = [NewTopic(t, PARTITIONS, 1, config={"retention.ms": "-1"}) for t in TOPICS]
        for created in admin.create_topics(topics).values():
            created.result(60)
        producer = Producer({**kafka, "enable.idempotence": True, "compression.type": "lz4"})
        for topic, days in TOPICS.items():
            for number in days:
                for index in range(PER_DAY):
                    self._send(producer, topic, number, index)
        assert producer.flush(60) == 0

    def _send(self, producer: Producer, topic: str, number: int, index: int) -> None:
        def acknowledged(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            if index != BROKEN:
                self.rows[topic, number].append((message.partition(), message.offset(), number))

        at_ms = round(day(number, index).timestamp() * 1000)
        for partition in range(PARTITIONS):
            producer.produce(
                topic,
                value(number, index),
                partition=partition,
                timestamp=at_ms,
                on_delivery=acknowledged,
            )

    def expected(self, topic: str, days: Iterable[int], factor: int = 1) -> list[Row]:
        """The rows that a table of events holds of these days, each once."""
        return sorted((p, o, factor * n) for d in days for p, o, n in self.rows[topic, d])
