"""One broker, one S3 server and one topic for all tests of this folder. Each test has a lake of its own.

The topic has two partitions and two days. Each partition and day has flights, broken values, an aborted transaction.
Some keys are null: these records, and a broken one, have headers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support import run_end
from support.flights_jobs import FRAMES_JOB, frames_pipeline
from tallystick.connections.kafka import KafkaSettings
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.offsets import Position
from tallystick.format.plan import Plan
from tallystick.format.report import FileReport, Report
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.wire import LATEST
from tallystick.lake import Lake
from tallystick.operations.plan import PlanRequest, plan
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.pipeline import Column, Json, Pipeline, Table, Topic
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick_devstack.class_archive import submit_options
from tallystick_devstack.java import compiled_spark_home
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.process import wait_until
from tallystick_devstack.testing.servers import aws_environment, ministack

PROJECT = Path(__file__).parents[2]
TOPIC = "flights"
DAY = datetime(2013, 1, 1, tzinfo=UTC)
# A machine that is three times slower, with concurrent tests, took more than 240 s.
END_TIMEOUT_S = 600
SECRET = "canary-of-the-s3-secret"
PASSWORD = "canary-of-the-kafka-password"
CSV_COLUMNS = "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay carrier flight tailnum"
INTS = {
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
}
INTS |= {"flight", "air_time", "distance", "hour", "minute"}
REQUIRED = {"year", "month", "day", "carrier", "flight", "origin", "dest"}
BROKEN = {
    "json": b'{"year": 2013, "mon',
    "type": b'{"year": "x"}',
    "utf8": b'{"year": "\xff"}',
    "missing": b"{}",
    "tombstone": None,
}


@dataclass
class Produced:
    """The records of the topic: valid and broken ones by (partition, offset)."""

    rows: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    dead: dict[tuple[int, int], str] = field(default_factory=dict)
    aborted: int = 0
    middle: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Servers:
    """The addresses of the servers, and the records of the topic."""

    bootstrap: str
    login: Mapping[str, str]
    endpoint: str
    produced: Produced


def columns() -> list[Column]:
    """Return the columns of the demo's flights."""
    names = [*CSV_COLUMNS.split(), "origin", "dest", "air_time", "distance", "hour", "minute"]
    typed = [Column(n, "int" if n in INTS else "string", required=n in REQUIRED) for n in names]
    return [
        *typed,
        Column("time_hour", "string", required=False),
        Column("departure", "timestamptz"),
    ]


def flight(number: int, at: datetime) -> dict[str, Any]:
    """Return one flight. Every 40th is cancelled."""
    cancelled = number % 40 == 0
    row = dict.fromkeys((c.name for c in columns()), 7)
    return row | {
        "carrier": "UA",
        "flight": number,
        "dep_time": None if cancelled else 517,
        "dep_delay": None if cancelled else -2,
        "tailnum": f"N{number}",
        "origin": ("EWR", "JFK", "LGA")[number % 3],
        "dest": "IAH",
        "time_hour": "2013-01-01T05:00:00Z",
        "departure": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    state = tmp_path_factory.mktemp("kafka")
    with KafkaBroker(state, users={"job": PASSWORD}) as broker, ministack() as endpoint:
        # Jobs connect as a user with a password. The tests themselves use the listener without one.
        login = {
            "bootstrap_servers": broker.users_bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "job",
            "sasl_plain_password": PASSWORD,
        }
        yield Servers(
            bootstrap=broker.bootstrap,
            login=login,
            endpoint=endpoint,
            produced=produce(broker.bootstrap),
        )


def produce(bootstrap: str) -> Produced:
    """Fill the topic: per partition and day 300 flights, the broken values, and an aborted transaction of 5."""
    config = {"retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(TOPIC, 2, 1, config=config)]).values():
        done.result(30)
    produced = Produced()
    # In order: without idempotence a first batch that finds no leader yet is written after the second.
    settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4"}
    plain = Producer(settings | {"enable.idempotence": True})
    number = 0
    for day in range(2):
        for partition in range(2):
            for minute in range(300):
                number += 1
                at = DAY + timedelta(days=day, minutes=minute)
                row = flight(number, at)
                key = None if number % 7 == 0 else row["tailnum"].encode()
                send(
                    plain,
                    partition,
                    json.dumps(row).encode(),
                    key,
                    at,
                    lambda o, p=partition, r=row: produced.rows.update({(p, o): r}),
                )
            for kind, value in BROKEN.items():
                at = DAY + timedelta(days=day, hours=6)
                send(
                    plain,
                    partition,
                    value,
                    b"k",
                    at,
                    lambda o, p=partition, k=kind: produced.dead.update({(p, o): k}),
                )
            assert plain.flush(30) == 0
            produced.aborted += abort(bootstrap, partition, DAY + timedelta(days=day, hours=7))
        (produced.ends if day else produced.middle).extend(end_offsets(bootstrap))
    return produced


def send(
    producer: Producer,
    partition: int,
    value: bytes | None,
    key: bytes | None,
    at: datetime,
    landed: Any,
) -> None:
    def delivered(error: Any, message: Any) -> None:
        assert error is None
        landed(message.offset())

    headers = [("origin", b"test"), ("origin", None)]
    producer.produce(
        TOPIC,
        value,
        key,
        partition,
        timestamp=int(at.timestamp() * 1000),
        headers=headers if value == BROKEN["type"] or key is None else None,
        on_delivery=delivered,
    )
    producer.poll(0)


def abort(bootstrap: str, partition: int, at: datetime) -> int:
    """Write five flights in a transaction and abort it. Return the number of aborted records."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"aborts-{partition}-{at:%d}"}
    )
    producer.init_transactions(30)
    before = end_offsets(bootstrap)[partition]
    producer.begin_transaction()
    for number in range(5):
        producer.produce(
            TOPIC,
            json.dumps(flight(10_000 + number, at)).encode(),
            b"k",
            partition,
            timestamp=int(at.timestamp() * 1000),
        )
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    # The broker replies before the marker is in the log.
    wait_until(
        lambda: end_offsets(bootstrap)[partition] == before + 5 + 1,
        deadline_s=30,
        what="the marker of the aborted transaction",
    )
    return 5


def end_offsets(bootstrap: str) -> list[int]:
    with KafkaClient(KafkaSettings(bootstrap_servers=(bootstrap,))) as client:
        ends = client.list_offsets(client.layout(TOPIC), {0: LATEST, 1: LATEST}, committed=False)
    return [ends[0], ends[1]]


class MeasuredLog:
    """The log that planning reads, with boundaries from the offsets that the test produced."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        produced = servers.produced
        self._offsets = {
            DAY: [0, 0],
            DAY + timedelta(days=1): produced.middle,
            DAY + timedelta(days=2): produced.ends,
        }

    def describe(self, topics: Sequence[str]) -> Mapping[str, Any]:
        with KafkaClient(KafkaSettings(bootstrap_servers=(self._servers.bootstrap,))) as client:
            layout = client.layout(TOPIC)
            return {
                TOPIC: Described(
                    topic_id=layout.topic_id,
                    cluster_id=client.cluster_id(),
                    partitions=[Start(), Start()],
                )
            }

    def log_starts(self, topic: str) -> Sequence[int]:
        return [0, 0]

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int
    ) -> Sequence[Position]:
        offsets = self._offsets[datetime.fromtimestamp(at_ms / 1000, UTC)]
        return [Position(offset=o, leader_epoch=0 if o else -1) for o in offsets]

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> Mapping[int, int]:
        return {}

    def diverged(self, topic: str, positions: Sequence[Position]) -> Sequence[str]:
        return []


@dataclass(frozen=True)
class Start:
    log_start: int = 0


@dataclass(frozen=True)
class Described:
    topic_id: str
    cluster_id: str
    partitions: list[Start]
    compacted: bool = False


@dataclass(frozen=True)
class Ended:
    """The result of a spark-submit."""

    code: int
    output: str
    argv: list[str]
    result: Any


@dataclass(frozen=True)
class Driver:
    """A running spark-submit, with all its processes in a process group of its own."""

    process: subprocess.Popen[bytes]
    argv: list[str]
    output: Path
    result_file: Path

    def ended(self) -> Ended:
        """Wait for its end, and return its result."""
        try:
            code = self.process.wait(END_TIMEOUT_S)
        finally:
            self.kill()
        result = json.loads(self.result_file.read_text()) if self.result_file.exists() else None
        text = self.output.read_text(errors="replace")
        return Ended(code=code, output=text, argv=self.argv, result=result)

    def kill(self) -> None:
        """Kill the whole group by kill -9. Safe to repeat: processes that have ended are ignored."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@dataclass
class SparkLake:
    """A lake of its own and a job file of its own, and spark-submit with them."""

    servers: Servers
    folder: Path
    uri: str

    def __post_init__(self) -> None:
        self.job = self.folder / "job.py"
        self.job.write_bytes((PROJECT / "spark_jobs" / "flights.py").read_bytes())
        self.lake = Lake(open_store(self.uri), system_runtime(), proven=True)
        self.records_per_task = 200

    def pipeline(self) -> Pipeline:
        counts = [
            Column("hour", "timestamptz"),
            Column("origin", "string"),
            Column("departures", "long"),
        ]
        return Pipeline(
            name="flights",
            topics=[Topic(TOPIC, decode=Json(columns()))],
            warehouse=self.uri,
            job="job.py",
            tables=[
                Table("flights", columns=columns(), partition_by=["day(departure)"]),
                Table(
                    "departures_hourly",
                    columns=counts,
                    keys=["hour", "origin"],
                    combine={"departures": "sum"},
                ),
            ],
            records_per_task=self.records_per_task,
        )

    def plan(self, day: int) -> Plan:
        """Plan a day with the real planner, and return the granted plan."""
        interval = Interval(start=DAY + timedelta(days=day), end=DAY + timedelta(days=day + 1))
        request = PlanRequest(
            pipeline=self.pipeline(),
            job_source=self.job.read_bytes(),
            request=Request(dag="flights", run=f"day {day}", clear=0),
            params=parse_params({}),
            dates=RunDates(data_interval=interval, run_after=interval.end),
            first=DAY,
        )
        planned = plan(self.lake, MeasuredLog(self.servers), request)
        granted = self.lake.plan(planned.intervals[0].plan)
        assert granted is not None
        return granted

    def change_transform(self, source: str) -> None:
        """Make an Arrow job run the `transform` of `source`, which calls the job's own one as `flights`."""
        job = self.job.read_text().replace("def transform(", "def flights(")
        self.job.write_text(job.replace("if __name__", f"{source}\n\nif __name__"))

    def start(
        self,
        plans: Sequence[Plan],
        *,
        master: str = "local[1]",
        conf: Mapping[str, str] | None = None,
        without_spark: bool = False,
        **environ: str,
    ) -> Driver:
        """Start the job file by spark-submit, or without Spark, with a reduced environment, as the operator does.

        One core by default: each core of a job imports the reader and its decoders in a Python process of its own.
        """
        result_file = self.folder / f"result-{uuid.uuid4().hex}.json"
        argv = [str(Path(sys.executable).parent / "spark-submit"), "--master", master]
        for name, value in (conf or {}).items():
            argv += ["--conf", f"{name}={value}"]
        if without_spark:
            argv = [sys.executable]
        argv.append(str(self.job))
        for todo in plans:
            argv += ["--plan", f"{self.uri}/{todo.key}@{todo.sha256}"]
        argv += ["--attempt", f"try-{uuid.uuid4().hex[:8]}"]
        argv += ["--without-spark"] if without_spark else []
        names = ("PATH", "HOME", "JAVA_HOME", "LANG", run_end.MARK)
        inherited = {n: os.environ[n] for n in names if n in os.environ}
        settings = json.dumps(dict(self.servers.login))
        env = (
            inherited
            | aws_environment(self.servers.endpoint)
            | {
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "SPARK_HOME": str(compiled_spark_home()),
                "SPARK_LOCAL_IP": "127.0.0.1",
                # As on the embedded stack: for jobs of seconds, the JVM's compiler costs more than it saves.
                "SPARK_SUBMIT_OPTS": submit_options(environ),
                "PYSPARK_PYTHON": sys.executable,
                "TALLYSTICK_KAFKA_DEFAULT": settings,
                "TALLYSTICK_RESULT_FILE": str(result_file),
                **environ,
            }
        )
        output = self.folder / f"{result_file.stem}.log"
        with output.open("wb") as log:
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Driver(process=process, argv=argv, output=output, result_file=result_file)

    def submit(self, plans: Sequence[Plan], **how: Any) -> Ended:
        """Start the job and wait for its end."""
        return self.start(plans, **how).ended()

    def report(self, ended: Ended, index: int = 0) -> Report:
        """Return the report that the job's result names."""
        assert ended.code == 0, ended.output
        report = self.lake.report(ended.result[index]["report"])
        assert report is not None
        return report

    def rows(self, files: Sequence[FileReport]) -> pa.Table:
        """Read reported files with pyarrow's own S3 client."""
        filesystem = pyarrow.fs.S3FileSystem(
            access_key="test",
            secret_key=SECRET,
            endpoint_override=self.servers.endpoint,
            scheme="http",
            region="us-east-1",
        )
        prefix = self.uri.removeprefix("s3://")
        return pa.concat_tables(
            [
                pq.read_table(f"{prefix}/{f.key}", filesystem=filesystem, partitioning=None)
                for f in files
            ]
        )

    def uploaded(self, plan: Plan, table: str) -> set[str]:
        """Return the keys of all data files below a plan's prefix, reported or not."""
        interval, plan_uuid = keys.plan_parts(plan.key)
        listed = self.lake.store.list(f"{keys.table_prefix(table)}data/{interval}/{plan_uuid}/")
        return {item.key for item in listed}


@pytest.fixture
def spark_lake(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkLake:
    for name, value in aws_environment(servers.endpoint).items():
        monkeypatch.setenv(name, value)
    bucket = f"b-{uuid.uuid4().hex[:12]}"
    boto3.client("s3", endpoint_url=servers.endpoint).create_bucket(Bucket=bucket)
    return SparkLake(servers=servers, folder=tmp_path, uri=f"s3://{bucket}/lake")


@pytest.fixture
def frames_lake(spark_lake: SparkLake) -> SparkLake:
    """Return a lake whose job is a DataFrame job that joins, shuffles and writes two tables."""
    pipeline = frames_pipeline(spark_lake.pipeline())
    spark_lake.pipeline = lambda: pipeline
    spark_lake.job.write_text(FRAMES_JOB)
    return spark_lake
