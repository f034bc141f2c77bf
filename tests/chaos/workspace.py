"""The real stack on which every round of a chaos run takes place, kept up from the first round to the last.

Kafka, S3, PostgreSQL and Airflow on the loopback interface, a standalone Spark cluster where a round needs one, and a
tap between the tasks and S3, another one between the tasks and Kafka. Each round has a DAG file, a topic and a lake root
of its own, so that no round hides what another one did.
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
# Of the order of seconds, so that a round can wait for what takes Airflow five minutes by default.
HEARTBEAT_TIMEOUT_S = 20
_BRISK = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT_S),
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    # A DAG file is parsed when it appears; it never changes.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
}

_DAG_FILE = """\
import os
from datetime import UTC, datetime, timedelta

os.environ.update({environment!r})
{prelude}
from tallystick import Column, Pipeline, Table
from tallystick.airflow import replay_dag
from tallystick.outputs.files import FileOutput

pipeline = Pipeline(
    name={name!r},
    topics=[{name!r}],
    warehouse="s3://{bucket}/{name}",
    job="spark_jobs/chaos.py",
    records_per_task={records_per_task},
    tables=[
        Table("events", columns=[Column("n", "long"), Column("kind", "string"), Column("text", "string")]),
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
    """What one round is declared with: its name is that of its DAG, its topic and its lake root."""

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
    """The running stack, from `with` to its end; nothing of it is left then, however it ended."""

    def __init__(
        self, *, cluster: bool, report: Callable[[str], None], evidence: Path = EVIDENCE
    ) -> None:
        self._report = report
        self._evidence = evidence
        # Not below a deep folder: PostgreSQL runs as another user, who must reach it, and socket paths are short.
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
        # Producers and the oracle go past it.
        self._kafka = json.loads(self.stack.environment()[_KAFKA])
        self.kafka_tap = KafkaTap(self._kafka["bootstrap_servers"])
        self.disk = SmallDisk(self.base / "small")
        self._lead_through_the_tap()
        self.api = self.stack.airflow.api()

    def _lead_through_the_tap(self) -> None:
        ours = {
            "AWS_ENDPOINT_URL_S3": self.tap.url,
            _KAFKA: json.dumps(self._kafka | {"bootstrap_servers": self.kafka_tap.bootstrap}),
            # Where this tree is not the one that is installed, it is this one that is put to the test.
            "PYTHONPATH": str(REPO / "plugins"),
        }
        self.stack.spark._env |= ours
        local = {"conn_type": "spark", "host": "local[1,4]", "extra": {"deploy-mode": "client"}}
        airflow = self.stack.airflow
        airflow._env |= ours | {f"AIRFLOW_CONN_{LOCAL.upper()}": json.dumps(local)}
        settings = airflow._settings()
        airflow._settings = lambda: settings | _BRISK  # type: ignore[method-assign]

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
        """Stop everything and remove the folder. Safe to repeat: what is gone is left alone."""
        try:
            self.stack.stop(lambda _: None)
        finally:
            self.tap.__exit__(None, None, None)
            self.kafka_tap.__exit__(None, None, None)
            self.disk.unmount()
            shutil.rmtree(self.base, ignore_errors=True)

    # ------------------------------------------------------------ rounds

    def declare(self, lake: Lake) -> None:
        """Put a round's DAG in place, switched off. Safe to repeat: the same file is written again."""
        source = _DAG_FILE.format(
            name=lake.name,
            bucket=BUCKET,
            days=lake.days,
            # Room for one Trigger beside a run that is cleared.
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
        fresh = path.with_suffix(".new")
        fresh.write_text(source)
        fresh.replace(path)

    def create_topic(self, name: str) -> None:
        """Create a round's topic; retention is off, for its records are of 2013."""
        topic = NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"})
        admin = self._admin()  # its answers come only while somebody holds it
        admin.create_topics([topic])[name].result(KAFKA_S)

    def forget(self, lake: Lake) -> None:
        """Remove a round's DAG, topic and objects, which are proven by now. Safe to repeat: what is gone stays so."""
        self._dag_file(lake.name).unlink(missing_ok=True)
        admin = self._admin()
        with suppress(KafkaException):  # of a topic that is gone
            admin.delete_topics([lake.name])[lake.name].result(KAFKA_S)
        s3 = self.stack.s3.client()
        found = self._objects(lake)
        for some in (found[i : i + 1000] for i in range(0, len(found), 1000)):
            s3.delete_objects(
                Bucket=BUCKET, Delete={"Objects": [{"Key": line["Key"]} for line in some]}
            )

    def keep(self, lake: Lake) -> Path:
        """Copy all that tells of a round where it outlives this workspace: a race may not come back for a replay.

        Safe to repeat: the copy is made anew.
        """
        kept = self._evidence / lake.name
        shutil.rmtree(kept, ignore_errors=True)
        (kept / "lake").mkdir(parents=True)
        for line in self._objects(lake):
            path = kept / "lake" / line["Key"].removeprefix(f"{lake.name}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            self.stack.s3.client().download_file(BUCKET, line["Key"], str(path))
        for path in (self._dag_file(lake.name), self.base / f"{lake.name}.sent"):
            shutil.copy(path, kept)
        logs = self.stack.airflow.state_dir
        for path in (*logs.glob("*.log"), *(logs / "logs").glob(f"dag_id={lake.name}")):
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, kept / path.name)
        return kept

    def _objects(self, lake: Lake) -> list[Any]:
        pages = self.stack.s3.client().get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=BUCKET, Prefix=f"{lake.name}/")
        return [line for page in found for line in page.get("Contents", ())]

    def place(self, lake: Lake) -> Place:
        """Where the oracle finds a round's lake: at the S3 server itself, past the tap."""
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
        """A JSON object of a lake, past the tap."""
        body = self.stack.s3.client().get_object(Bucket=BUCKET, Key=f"{lake.name}/{key}")["Body"]
        return json.loads(body.read())

    # ------------------------------------------------------------ parts

    @property
    def kafka(self) -> dict[str, str]:
        """How librdkafka reaches the broker, with user and password."""
        return confluent_words(self.stack.kafka.client_settings())

    def revive(self) -> None:
        """Start every part again that has died, as whatever runs servers does. Safe to repeat: the living are left."""
        self.stack.revive(self._report, restarts_max=RESTARTS_MAX)

    @property
    def scheduler_pid(self) -> int:
        """The warden of Airflow's scheduler; everything that executes tasks is below it."""
        return self.stack.airflow.processes["scheduler"].pid

    def _dag_file(self, name: str) -> Path:
        return self.project / "dags" / f"{name.replace('-', '_')}.py"

    def _admin(self) -> AdminClient:
        return AdminClient({**self.kafka, "log_level": 0})
