"""The real stack of a chaos run, which runs from the first round to the last.

Kafka, S3, PostgreSQL and Airflow on the loopback interface, a standalone Spark cluster if a round needs it, a tap
between the tasks and S3, and another one between the tasks and Kafka. Each round has its own DAG file, topic and lake, so
that no round hides the effects of another one.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from chaos.small_disk import SmallDisk
from chaos.tap import BUCKET, Tap
from oracle.audit import Place
from support.kafka_tap import KafkaTap
from tallystick_devstack.info import ALL_PARTS, PARTS
from tallystick_devstack.kafka_login import confluent_words
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.s3 import ACCESS_KEY

REPO = Path(__file__).parents[2]
EVIDENCE = REPO / ".tally" / "chaos"
PARTITIONS = 3
SEEN_S = 120.0
KAFKA_S = 60.0
RESTARTS_MAX = 1_000_000
_KAFKA = "TALLYSTICK_KAFKA_DEFAULT"
LOCAL, CLUSTER = "spark_local", "spark_default"
RETRIES = 4
# In seconds, so that a round can wait for what takes Airflow five minutes by default.
HEARTBEAT_TIMEOUT_S = 20
_FAST_AIRFLOW = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT_S),
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    # A DAG file is parsed when it is new; it never changes.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
}

_DAG_FILE = """\
import os
from datetime import UTC, datetime, timedelta

os.environ.update({environment!r})
{prelude}
from tallystick import Column, Pipeline, Table, Upkeep
from tallystick.airflow import replay_dag
from tallystick.outputs.files import FileOutput

pipeline = Pipeline(
    name={name!r},
    topics=[{name!r}],
    warehouse="s3://{bucket}/{name}",
    job="spark_jobs/chaos.py",
    records_per_task={records_per_task},
    tables=[
        Table(
            "events",
            columns=[Column("n", "long"), Column("kind", "string"), Column("text", "string")],
            upkeep=Upkeep(sort_by=["kind", "n"]),
        ),
        Table("per_kind", columns=[Column("kind", "string"), Column("n", "long")], keys=["kind"], combine={{"n": "sum"}}),
    ],
    outputs=[
        FileOutput(name=f"f{{n:02d}}", table="events", folder=f"{output_root}/{name}.out/f{{n:02d}}")
        for n in range({outputs})
    ],
)
dag = replay_dag(
    pipeline,
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 1, {days}, tzinfo=UTC),
    max_active_runs={active_runs},
    retries={retries},
    retry_delay=timedelta(seconds=1),
    is_paused_upon_creation=True,
    spark_conn_id={spark!r},
    spark_conf={conf!r},
)
"""

_JOB_FILE = """\
import pyarrow as pa

from tallystick.spark import run


def transform(records: pa.Table) -> dict[str, pa.Table]:
    sums = records.group_by("kind").aggregate([("n", "sum")]).rename_columns(["kind", "n"])
    return {"events": records, "per_kind": sums}


if __name__ == "__main__":
    run(transform)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The declaration of one round; its DAG, its topic and its lake have the same name."""

    name: str
    days: int
    cluster: bool = False
    records_per_task: int = 1_000_000
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    prelude: str = ""
    outputs: int = 0
    output_root: str = ""


class Workspace:
    """The stack, which runs while its `with` block runs; no process or file of it remains after that."""

    def __init__(
        self, *, cluster: bool, report: Callable[[str], None], evidence: Path = EVIDENCE
    ) -> None:
        self._report = report
        self._evidence = evidence
        # Not below a deep folder: PostgreSQL runs as another user, who must reach it, and socket paths must be short.
        self.base = Path(tempfile.mkdtemp(prefix="tally-chaos-"))
        self.base.chmod(0o711)
        self.project = self.base / "project"
        for folder in ("dags", "spark_jobs"):
            (self.project / folder).mkdir(parents=True)
        (self.project / "plugins").symlink_to(REPO / "plugins")
        (self.project / "spark_jobs" / "chaos.py").write_text(_JOB_FILE)
        state = self.base / "state"
        state.mkdir(mode=0o711)
        parts = ALL_PARTS if cluster else PARTS
        self.stack = LocalStack(state, project_dir=self.project, parts=parts)
        self.tap = Tap(self.stack.s3.endpoint)
        # Producers and the oracle bypass the taps.
        self._kafka = json.loads(self.stack.environment()[_KAFKA])
        self.kafka_tap = KafkaTap(self._kafka["bootstrap_servers"])
        self.disk = SmallDisk(self.base / "small")
        self._route_through_taps()
        self.api = self.stack.airflow.api()

    def _route_through_taps(self) -> None:
        ours = {
            "AWS_ENDPOINT_URL_S3": self.tap.url,
            _KAFKA: json.dumps(self._kafka | {"bootstrap_servers": self.kafka_tap.bootstrap}),
            # If another tree is installed, test this tree.
            "PYTHONPATH": str(REPO / "plugins"),
        }
        self.stack.spark._env |= ours
        local = {"conn_type": "spark", "host": "local[1,4]", "extra": {"deploy-mode": "client"}}
        airflow = self.stack.airflow
        airflow._env |= ours | {f"AIRFLOW_CONN_{LOCAL.upper()}": json.dumps(local)}
        settings = airflow._settings()
        airflow._settings = lambda: settings | _FAST_AIRFLOW  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        try:
            self.tap.__enter__()
            self.kafka_tap.__enter__()
            self.stack.start(self._report)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop everything and remove the folder. Safe to repeat: stopped parts and removed files are skipped."""
        try:
            self.stack.stop(lambda _: None)
        finally:
            self.tap.__exit__(None, None, None)
            self.kafka_tap.__exit__(None, None, None)
            self.disk.unmount()
            shutil.rmtree(self.base, ignore_errors=True)

    # ------------------------------------------------------------ rounds

    def declare(self, lake: Lake) -> None:
        """Write the DAG file of a round; the DAG is paused. Safe to repeat: the same file is written again."""
        source = _DAG_FILE.format(
            name=lake.name,
            bucket=BUCKET,
            days=lake.days,
            # Room for one Trigger during a run that is cleared.
            active_runs=lake.days + (1 if lake.outputs else 0),
            retries=RETRIES,
            spark=CLUSTER if lake.cluster else LOCAL,
            records_per_task=lake.records_per_task,
            conf=dict(lake.spark_conf),
            environment=dict(lake.environment),
            prelude=lake.prelude,
            outputs=lake.outputs,
            output_root=lake.output_root,
        )
        path = self._dag_file(lake.name)
        temporary = path.with_suffix(".new")
        temporary.write_text(source)
        temporary.replace(path)

    def create_topic(self, name: str) -> None:
        """Create the topic of a round; retention is off, because its records are of 2013."""
        topic = NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"})
        admin = self._admin()  # it must be referenced until its answers arrive
        admin.create_topics([topic])[name].result(KAFKA_S)

    def remove(self, lake: Lake) -> None:
        """Remove the DAG, topic and objects of a round after its audit. Safe to repeat: missing ones are skipped."""
        self._dag_file(lake.name).unlink(missing_ok=True)
        admin = self._admin()
        with suppress(KafkaException):  # if the topic does not exist
            admin.delete_topics([lake.name])[lake.name].result(KAFKA_S)
        s3 = self.stack.s3.client()
        found = self._objects(lake)
        for batch in (found[i : i + 1000] for i in range(0, len(found), 1000)):
            s3.delete_objects(
                Bucket=BUCKET, Delete={"Objects": [{"Key": line["Key"]} for line in batch]}
            )

    def save_evidence(self, lake: Lake) -> Path:
        """Copy lake, DAG, producer log and Airflow logs of a round to `evidence`: a race may not recur in a replay.

        Safe to repeat: the copy is replaced.
        """
        folder = self._evidence / lake.name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "lake").mkdir(parents=True)
        for line in self._objects(lake):
            path = folder / "lake" / line["Key"].removeprefix(f"{lake.name}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            self.stack.s3.client().download_file(BUCKET, line["Key"], str(path))
        for path in (self._dag_file(lake.name), self.base / f"{lake.name}.sent"):
            shutil.copy(path, folder)
        logs = self.stack.airflow.state_dir
        for path in (*logs.glob("*.log"), *(logs / "logs").glob(f"dag_id={lake.name}")):
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, folder / path.name)
        return folder

    def _objects(self, lake: Lake) -> list[Any]:
        pages = self.stack.s3.client().get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=BUCKET, Prefix=f"{lake.name}/")
        return [line for page in found for line in page.get("Contents", ())]

    def place(self, lake: Lake) -> Place:
        """Return the address of a round's lake for the oracle: the S3 server itself, not the tap."""
        return Place(
            endpoint_url=self.stack.s3.endpoint,
            bucket=BUCKET,
            prefix=lake.name,
            access_key=ACCESS_KEY,
            secret_key=self.stack.s3.secret_key,
            bootstrap=self.stack.kafka.bootstrap,
            login=self.kafka,
        )

    def object(self, lake: Lake, key: str) -> Any:
        """Return a JSON object of a lake, read without the tap."""
        body = self.stack.s3.client().get_object(Bucket=BUCKET, Key=f"{lake.name}/{key}")["Body"]
        return json.loads(body.read())

    # ------------------------------------------------------------ parts

    @property
    def kafka(self) -> dict[str, str]:
        """librdkafka's settings for the broker, with user and password."""
        return confluent_words(self.stack.kafka.client_settings())

    def revive(self) -> None:
        """Start every dead part again, as an init system does. Safe to repeat: running parts are unchanged."""
        self.stack.revive(self._report, restarts_max=RESTARTS_MAX)

    @property
    def scheduler_pid(self) -> int:
        """The process id of the scheduler's warden; all processes that execute tasks are below it."""
        return self.stack.airflow.processes["scheduler"].pid

    def _dag_file(self, name: str) -> Path:
        return self.project / "dags" / f"{name.replace('-', '_')}.py"

    def _admin(self) -> AdminClient:
        return AdminClient({**self.kafka, "log_level": 0})
