"""A small demo for the demo's check: real broker, real S3 server, the demo's own pipeline, job, flights and producer.

The real code plans, stages and commits three days of flights in this process, without Spark and Airflow. The reader, the
decoder, the account, the files, the metadata and the swap are the ones that Spark and Airflow call.
"""

from __future__ import annotations

import runpy
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

import tallystick.airflow
from examples.demo.check import LakeAddress, Verdict, check_lake
from examples.demo.flights import break_some, csv_archive, in_batches, read_flights
from examples.demo.produce import create_topic, produce
from oracle import scenarios, scene
from support.brokers import TestBroker, broker
from tallystick.connections.kafka import KafkaSettings
from tallystick.engine.attempt import assemble
from tallystick.engine.input_splits import split_plan
from tallystick.engine.kafka_splits import KafkaReading
from tallystick.engine.task import Work, run_split
from tallystick.engine.transform import JobTransform
from tallystick.format.interval import Interval, Request
from tallystick.kafka.planning import LogPlanner
from tallystick.lake import Lake
from tallystick.operations.commit import CommitResult, commit
from tallystick.operations.plan import PlanRequest, plan
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.operations.stage import to_stage
from tallystick.pipeline import Pipeline
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick.tables.staging import IcebergTables
from tallystick_devstack.testing.servers import aws_environment, ministack
from tallystick_devstack.testing.versitygw import go, versitygw

__all__ = ["broker"]

PROJECT = Path(__file__).parents[2]
TOPIC = "flights"
BUCKET = "lake"
FIRST = datetime(2013, 1, 1, tzinfo=UTC)
DAYS = 3
UNTIL = FIRST + timedelta(days=DAYS)


@dataclass(frozen=True)
class Servers:
    """The addresses of the servers, and the file with the records that were sent."""

    kafka: KafkaSettings
    endpoint: str
    sent: Path


@pytest.fixture(scope="package")
def endpoint() -> Iterator[str]:
    with ministack() as url:
        boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id="test",
            aws_secret_access_key="test-secret",
            region_name="us-east-1",
        ).create_bucket(Bucket=scene.BUCKET)
        yield url


@pytest.fixture(scope="package")
def servers(broker: TestBroker, endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Servers:
    folder = tmp_path_factory.mktemp("small-demo")
    flights = break_some(read_flights(UNTIL.date()), share=0.01)
    kafka = {"bootstrap.servers": broker.bootstrap}
    create_topic(kafka, TOPIC)
    batches = in_batches(flights, day=date(2013, 1, 2))
    produce(kafka, TOPIC, batches, sent=folder / "sent.parquet")
    return Servers(
        kafka=KafkaSettings(bootstrap_servers=(broker.bootstrap,)),
        endpoint=endpoint,
        sent=folder / "sent.parquet",
    )


@pytest.fixture(scope="package")
def shared_log(broker: TestBroker, tmp_path_factory: pytest.TempPathFactory) -> scene.TopicLog:
    """Fill a topic once. Tests do not change it."""
    topic = broker.topic(scene.PARTITIONS, name="events", retention_ms=-1)
    log = scene.TopicLog(broker, tmp_path_factory.mktemp("sent"), topic)
    scenarios.fill(log)
    return log


@pytest.fixture
def play(
    shared_log: scene.TopicLog, endpoint: str, tmp_path: Path
) -> Callable[[scenarios.Scenario], scene.Scene]:
    """Play a scenario on a lake of its own, and on a topic of its own if it writes to one."""

    def played(scenario: scenarios.Scenario) -> scene.Scene:
        log = shared_log
        if scenario in scenarios.OWN:
            topic = log.broker.topic(scene.PARTITIONS, retention_ms=-1)
            log = scene.TopicLog(log.broker, tmp_path, topic)
        played_scene = scene.Scene(log, endpoint)
        scenario(played_scene)
        return played_scene

    return played


@dataclass
class SmallDemo:
    """A lake of its own on the servers of the session."""

    servers: Servers
    pipeline: Pipeline
    job_source: bytes
    transform: Any

    def __post_init__(self) -> None:
        self.lake = Lake(open_store(self.pipeline.warehouse), system_runtime())

    def run(self, day: int) -> list[CommitResult]:
        """Run one day as Airflow does: plan, stage, commit, and the commit task's retry."""
        interval = Interval(start=FIRST + timedelta(days=day), end=FIRST + timedelta(days=day + 1))
        request = PlanRequest(
            pipeline=self.pipeline,
            job_source=self.job_source,
            request=Request(dag="flights", run=f"scheduled__{day}", clear=0),
            params=parse_params({}),
            dates=RunDates(data_interval=interval, run_after=interval.end),
            first=FIRST,
        )
        with LogPlanner(self.servers.kafka) as log:
            planned = plan(self.lake, log, request)
        keys = [p.plan for p in planned.intervals]
        reports = self._stage(keys, request.fingerprint)
        tables = IcebergTables(self.lake.store, self.lake.runtime)
        # The second round is the retry of a task that was killed after its PUT (C9, C12).
        return [
            commit(self.lake, tables, plan_key=key, report_key=report)
            for _ in ("task", "its retry")
            for key, report in reports.items()
        ]

    def _stage(self, keys: list[str], fingerprint: str) -> dict[str, str]:
        reports: dict[str, str] = {}
        for todo in to_stage(self.lake, keys, fingerprint=fingerprint).plans:
            work = Work(
                plan=todo,
                pipeline=self.pipeline,
                attempt=f"try-{uuid.uuid4().hex}",
                transform=JobTransform(self.transform, self.pipeline),
                store=self.lake.store,
                runtime=self.lake.runtime,
            )
            splits = split_plan(todo, records_per_task=self.pipeline.records_per_task)
            topics = {t.name: t for t in todo.topics}
            results = [
                run_split(work, p, KafkaReading(self.servers.kafka, topics[p.topic], p))
                for p in splits
            ]
            report = assemble(work, splits, results)
            self.lake.put_new(report.key, report.encode())
            reports[todo.key] = report.key
        return reports

    def check(self) -> Verdict:
        """Return the verdict of the demo's check for this lake."""
        return check_lake(
            LakeAddress(
                endpoint_url=self.servers.endpoint,
                bucket=BUCKET,
                prefix=self.pipeline.warehouse.removeprefix(f"s3://{BUCKET}/"),
                access_key_id="test",
                secret_access_key="test-secret",
            ),
            topic=TOPIC,
            sent=self.servers.sent,
            csv_archive=csv_archive(),
            until=UNTIL,
        )


@pytest.fixture
def small_demo(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> SmallDemo:
    return _small_demo(servers, monkeypatch)


@pytest.fixture
def small_demo_on_versitygw(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SmallDemo]:
    if go() is None:
        pytest.skip("versitygw: expected Go to build it, found none")
    with versitygw() as url:
        yield _small_demo(replace(servers, endpoint=url), monkeypatch)


def _small_demo(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> SmallDemo:
    for name, value in aws_environment(servers.endpoint).items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=servers.endpoint).create_bucket(Bucket=BUCKET)
    monkeypatch.setenv("TALLYSTICK_DEMO_WAREHOUSE", f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}")
    # The DAG file's pipeline without its DAG: Airflow is not needed here.
    monkeypatch.setitem(vars(tallystick.airflow), "replay_dag", lambda *_, **__: None)
    declared = runpy.run_path(str(PROJECT / "dags" / "flights.py"))
    job = PROJECT / "spark_jobs" / "flights.py"
    return SmallDemo(
        servers=servers,
        pipeline=declared["pipeline"],
        job_source=job.read_bytes(),
        transform=runpy.run_path(str(job))["transform"],
    )
