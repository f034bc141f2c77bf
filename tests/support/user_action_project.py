"""The project of the tests of user actions: DAG files, one job source for all pipelines, and the records of its topics.

Every pipeline has its own lake and job file, so that an action on one affects no other.
"""

from __future__ import annotations

import json
import os
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
# Only Airflow's processes get these; a test searches for them everywhere else.
KAFKA_PASSWORD, S3_SECRET = "canary-of-kafka", "canary-of-s3"

# Topic -> the days of January 2013 that have records. Days without records are committed without Spark: of the eight that
# are backfilled at once, as many have records as Airflow runs tasks at once.
TOPICS = {"january": [*range(1, 6), 7, 8, 13, 14, 15], "short": [1], "expiring": [1]}

DAG_FILE = """\
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Pipeline, Table
from tallystick.airflow import replay_dag
from tallystick.outputs import FileOutput

HERE = Path(__file__).parents[1]


def pipeline(name, topic, lake=None, added=(), outputs=()):
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
        outputs=list(outputs),
    )


# By default each run starts Spark for itself, as soon as a slot is free: most scenarios hold or count its starts.
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
        **{"stage_together": 1, "max_active_stages": None, **settings},
    )


"""

DAGS = """\
january = dag(
    pipeline("january", "january"),
    "@daily",
    4,
    6,
    max_active_runs=2,
    conf={"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(HERE / "events")},
)
paused = dag(pipeline("paused", "short"), "* * * * *", last=None, catchup=False, max_active_runs=1)
shared = dag(pipeline("shared", "short"), "@daily")
# Another DAG of the same pipeline, and another pipeline that has the same lake by mistake.
twin = dag(pipeline("shared", "short"), "@daily", dag_id="shared_twin")
stranger = dag(pipeline("stranger", "short", lake="shared"))
# Its buttons are pressed in a browser. Only day 1 has records: later days are committed without Spark.
buttons = dag(pipeline("buttons", "short"), "@daily")
together = dag(
    pipeline("together", "january"), "@daily", 6, 6, stage_together=8, max_active_stages=1
)
at_once = dag(pipeline("at_once", "short"), one_task=True, without_spark_offsets_max=1_000)
before, during, running, by_hand, pages = (
    dag(pipeline(name, "january")) for name in ("before", "during", "running", "by_hand", "pages")
)
"""

# The only pipeline with an output: a file for each interval. A second DAG runs once per committed interval of it.
PER_INTERVAL = "per_interval"
DECLARED = """\
from airflow.sdk import DAG, PartitionedAssetTimetable, task

from tallystick.airflow import committed_intervals, interval_asset_of

files = FileOutput(name="files", table="events", folder=str(HERE / "published"))
of_declared = pipeline("declared", "expiring", outputs=[files])
declared = dag(of_declared)

with DAG(
    "per_interval",
    schedule=PartitionedAssetTimetable(assets=interval_asset_of(of_declared)),
) as per_interval:

    @task
    def seen(**context):
        return [
            [context["dag_run"].partition_key, one.interval.to_json(), one.generation]
            for one in committed_intervals(context)
        ]

    seen()
"""

DECLARED_MORE = DECLARED.replace(
    "outputs=", 'added=[Column("twice", "long", required=False)], outputs='
)

JOB_FILE = """\
import os
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

if "WITHOUT_JVM" in os.environ:
    from support.no_spark import run
else:
    from tallystick.spark import run

FACTOR = 1
BARRIER = Path(__file__).parents[1] / "barriers" / Path(__file__).stem
allowed = {"TALLYSTICK_KAFKA_DEFAULT", "AWS_SECRET_ACCESS_KEY"}
assert allowed == {name for name, value in os.environ.items() if "canary" in value}


def pass_the_barrier() -> None:
    if not (BARRIER / "closed").exists():
        return
    attempt = sys.argv[sys.argv.index("--attempt") + 1]
    (BARRIER / f"here-{attempt}-{os.getpid()}").touch()
    deadline = time.monotonic() + 1500
    while not (BARRIER / f"go-{attempt}").exists():
        if time.monotonic() > deadline:
            sys.exit("the barrier was not opened in time")
        time.sleep(0.1)


def transform(records: pa.Table) -> dict[str, pa.Table]:
    n = pc.multiply(records["n"], FACTOR)
    events = records.set_column(records.column_names.index("n"), "n", n)
    sums = events.group_by("kind").aggregate([("n", "sum")]).rename_columns(["kind", "n"])
    return {"events": events, "per_kind": sums}


if __name__ == "__main__":
    pass_the_barrier()
    run(transform)
"""

# The declared column exists, with nulls, before the job fills it.
JOB_FILE_MORE = JOB_FILE.replace(
    '"events": events,',
    '"events": events.set_column(events.column_names.index("twice"), "twice", pc.multiply(n, 2)),',
)

NAMES = (
    "january",
    "paused",
    "shared",
    "stranger",
    "before",
    "during",
    "running",
    "by_hand",
    "pages",
    "buttons",
    "declared",
    "together",
    "at_once",
)

# Their scenarios neither kill a driver nor look at one: the wrapper of spark-submit runs their jobs without a JVM, and
# drops spark-submit's own options, which are before the job.
WITHOUT_JVM = ("before", "during", "buttons", "pages", "shared", "declared")
SPARK_SUBMIT = """\
#!/bin/sh
echo "$@" >> {project}/calls
name=$(echo "$*" | sed -n 's|.*/spark_jobs/\\([a-z_]*\\)[.]py.*|\\1|p')
if [ -e {project}/barriers/$name/without_jvm ]; then
    until expr "$1" : '.*/spark_jobs/[a-z_]*\\.py$' > /dev/null; do shift; done
    WITHOUT_JVM=1 PYTHONPATH={repo}/plugins:{repo}/tests exec {python} "$@"
fi
PYTHONPATH={repo}/plugins exec {real} "$@"
"""

Row = tuple[int, int, int]
"""(partition, offset, n) of one row of the table of events."""


def day(number: int, hour: int = 0) -> datetime:
    """Return an hour of day `number` of January 2013."""
    return datetime(2013, 1, 1, hour, tzinfo=UTC) + timedelta(days=number - 1)


def python_path(project: Path) -> str:
    """Return PYTHONPATH of Airflow's processes: this tree's code, and the executor of the tests."""
    return os.pathsep.join([str(project / "plugins"), str(REPO / "tests")])


def write_project(project: Path) -> None:
    """Write the files of a user's project, with a spark-submit that records its calls and starts some without a JVM."""
    for folder in ("dags", "spark_jobs", "events", *(f"barriers/{name}" for name in NAMES)):
        (project / folder).mkdir(parents=True)
    (project / "plugins").symlink_to(REPO / "plugins")
    (project / "dags" / "january.py").write_text(DAG_FILE + DAGS)
    (project / "dags" / "declared.py").write_text(DAG_FILE + DECLARED)
    for name in NAMES:
        (project / "spark_jobs" / f"{name}.py").write_text(JOB_FILE)
    for name in WITHOUT_JVM:
        run_without_jvm(project, name)
    submit = project / "spark-submit"
    # The drivers run this tree's code, not an installed one.
    submit.write_text(
        SPARK_SUBMIT.format(
            project=project,
            repo=REPO,
            python=sys.executable,
            real=Path(sys.executable).with_name("spark-submit"),
        )
    )
    submit.chmod(0o755)


def run_without_jvm(project: Path, name: str) -> None:
    """Run all later jobs of a pipeline without a JVM. Safe to repeat: the file exists."""
    (project / "barriers" / name / "without_jvm").touch()


def value(number: int, index: int) -> bytes:
    """Return the value of a day's record: day and kind, or truncated JSON."""
    if index == BROKEN:
        return b'{"n": '
    return json.dumps({"n": number, "kind": "ab"[index % 2]}).encode()


class Produced:
    """The acknowledged records, by topic and day."""

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
        """Return the rows that a table of events must have of these days, each once."""
        return sorted((p, o, factor * n) for d in days for p, o, n in self.rows[topic, d])
