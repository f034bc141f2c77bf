"""Kafka Connect with Apache Iceberg's own sink: one standalone worker into an Iceberg table on the local disk.

Kafka Connect is in the jars of the embedded broker. Iceberg publishes the sink to Maven Central without a distribution;
its jars and those that it needs at run time are downloaded once per machine.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.whole_job.contender import (
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.iceberg_table import (
    CATALOG,
    IDENTIFIER,
    JDBC_CATALOG,
    LOCAL,
    create_table,
    database,
    jdbc_properties,
    result,
)
from bench.whole_job.contenders.prepared import (
    HADOOP,
    SQLITE,
    archive_classes,
    archive_of,
    maven_jars,
)
from tallystick_devstack.class_archive import ClassArchive
from tallystick_devstack.java import find_java
from tallystick_devstack.kafka import KAFKA_VERSION, default_jar_folder
from tallystick_devstack.process import base_environment, free_port

ICEBERG_VERSION = "1.12.0"
RUNNER = Path(__file__).with_name("connect_run.py")
_PATIENCE_S = 150.0
_MODULES = (
    ("org.apache.iceberg", "iceberg-kafka-connect", ICEBERG_VERSION),
    ("org.apache.iceberg", "iceberg-parquet", ICEBERG_VERSION),
    *HADOOP,
    SQLITE,
)
# Those that bin/connect-standalone.sh of Kafka sets.
_SCRIPT_FLAGS = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c:%L)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectVariant:
    """One set of settings. `interval_s`: the time between two commits; `per_core`: a task for each core, else one."""

    what: Mapping[str, str]
    interval_s: int
    per_core: bool = False
    archived: bool = False
    java: Sequence[str] = _SCRIPT_FLAGS
    worker: Mapping[str, str] = field(default_factory=dict)
    connector: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, str] = field(default_factory=dict)


VARIANTS: Mapping[str, ConnectVariant] = {
    "default": ConnectVariant(
        what={
            "worker": "the JVM flags of connect-standalone.sh; one task",
            "interval": "a commit each 10 s, as a run would wait 300 s by default; a task without new records takes part "
            "in a commit once in 60 s (offset.flush.interval.ms), so that most of the wall time is waiting",
            "table": "every default: Parquet zstd",
        },
        interval_s=10,
    ),
    "best": ConnectVariant(
        what={
            "worker": "ParallelGC; an archive of the classes of Kafka Connect, without those of the plugin; a task per "
            "core; plugins are found by service loading only",
            "kafka": "5,000 records a poll, fetches of 16 MB per partition and at least 1 MB",
            "interval": "a commit each 5 s; offset.flush.interval.ms of 1 s",
            "table": "Parquet zstd level 1",
        },
        interval_s=5,
        per_core=True,
        archived=True,
        java=("-Xms256M", "-Xmx2G", "-XX:+UseParallelGC", "-Djava.awt.headless=true"),
        worker={"plugin.discovery": "service_load", "offset.flush.interval.ms": "1000"},
        connector={
            "consumer.override.max.poll.records": "5000",
            "consumer.override.max.partition.fetch.bytes": str(16 << 20),
            "consumer.override.fetch.max.bytes": str(64 << 20),
            "consumer.override.fetch.min.bytes": str(1 << 20),
            "consumer.override.receive.buffer.bytes": str(4 << 20),
        },
        table={"write.parquet.compression-level": "1"},
    ),
}


@dataclass(slots=True)
class KafkaConnect:
    """The contender with one of the variants."""

    variant: Literal["default", "best"]
    _workspace: BenchWorkspace | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return f"kafka-connect-{self.variant}"

    @property
    def what(self) -> str:
        """What it is."""
        return (
            "Kafka Connect with Apache Iceberg's sink connector: exactly-once into an Iceberg table"
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **VARIANTS[self.variant].what,
            "broken": "errors.tolerance=all skips what is no JSON. The sink itself stops at a value of a wrong type, so "
            "the transform Cast, whose errors are tolerated, checks the four numbers first",
            "places": "the transform InsertField adds partition, offset and timestamp",
            "output": LOCAL,
            "end": "the worker is killed when the group's offsets are the ends and the last commit is visible; the "
            "process that waits for that is in the figures, and prints when the tasks run",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """One table only."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Kafka Connect and of the sink."""
        return {"kafka-connect": KAFKA_VERSION, "iceberg": ICEBERG_VERSION}

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Download the sink; archive the classes of the best variant. Safe to repeat: what exists is kept."""
        self._workspace = workspace
        _plugin()
        if VARIANTS[self.variant].archived:
            archive_classes(self._archive(), workspace, self._ending)

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the worker with the process that ends it. Safe to repeat: each place has topics and groups of its own."""
        flags = self._archive().flags if VARIANTS[self.variant].archived else []
        yield self._run(job, place, flags)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the files of the table's current snapshot."""
        return [result(place)]

    @property
    def _space(self) -> BenchWorkspace:
        assert self._workspace is not None, "prepare() comes first"
        return self._workspace

    def _archive(self) -> ClassArchive:
        return archive_of(self.name, default_jar_folder())

    def _ending(self, job: BenchJob, place: BenchPlace, flags: Sequence[str]) -> BenchStep:
        # A JVM writes its archive at its end, so it must not be killed.
        return self._run(job, place, flags, is_killed=False)

    def _run(
        self, job: BenchJob, place: BenchPlace, flags: Sequence[str], *, is_killed: bool = True
    ) -> BenchStep:
        variant = VARIANTS[self.variant]
        create_table(place, variant.table)
        connector = f"iceberg-{place.folder.name}-{uuid.uuid4().hex[:6]}"
        self._create_control_topic(connector)
        tasks = self._space.cores if variant.per_core else 1
        port = free_port()
        worker = _properties(place.folder / "worker.properties", self._worker(place, port))
        sink = _connector(job, place, connector, variant=variant, tasks=tasks)
        logging = place.folder / "log4j2.properties"
        logging.write_text(_LOGGING)
        order = {
            "argv": [
                str(find_java()),
                *variant.java,
                *flags,
                f"-Dlog4j2.configurationFile={logging}",
                "-cp",
                f"{default_jar_folder()}/*",
                "org.apache.kafka.connect.cli.ConnectStandalone",
                str(worker),
                str(_properties(place.folder / "sink.properties", sink)),
            ],
            "bootstrap": self._space.endpoints.bootstrap,
            "connector": connector,
            "group": f"connect-{connector}",
            "topic": job.topic,
            "ends": job.ends,
            "tasks": tasks,
            "port": port,
            "catalog": str(database(place)),
            "rows": job.records - job.broken,
            "patience_s": _PATIENCE_S,
            "is_killed": is_killed,
        }
        path = place.folder / "order.json"
        path.write_text(json.dumps(order))
        argv: list[str | Path] = [sys.executable, "-P", RUNNER, path]
        return BenchStep(name="worker", argv=argv, env=base_environment(), cwd=place.folder)

    def _create_control_topic(self, connector: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._space.endpoints.bootstrap})
        name = f"control-{connector}"
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)

    def _worker(self, place: BenchPlace, port: int) -> dict[str, str]:
        plugins = place.folder / "plugins"
        plugins.mkdir()
        (plugins / "iceberg").symlink_to(_plugin())
        return {
            "bootstrap.servers": self._space.endpoints.bootstrap,
            "listeners": f"http://127.0.0.1:{port}",
            "plugin.path": str(plugins),
            "offset.storage.file.filename": str(place.folder / "offsets"),
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            **VARIANTS[self.variant].worker,
        }


def _connector(
    job: BenchJob, place: BenchPlace, name: str, *, variant: ConnectVariant, tasks: int
) -> dict[str, str]:
    catalog = jdbc_properties(place)
    transforms = "org.apache.kafka.connect.transforms"
    return {
        "name": name,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": str(tasks),
        "topics": job.topic,
        "errors.tolerance": "all",
        "transforms": "types,place",
        "transforms.types.type": f"{transforms}.Cast$Value",
        "transforms.types.spec": "user_id:int64,ts:int64,price:float64,qty:int32",
        "transforms.place.type": f"{transforms}.InsertField$Value",
        "transforms.place.partition.field": "partition",
        "transforms.place.offset.field": "offset",
        "transforms.place.timestamp.field": "timestamp",
        "iceberg.tables": IDENTIFIER,
        "iceberg.control.topic": f"control-{name}",
        "iceberg.control.commit.interval-ms": str(variant.interval_s * 1000),
        "iceberg.catalog": CATALOG,
        "iceberg.catalog.catalog-impl": JDBC_CATALOG,
        **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
        **variant.connector,
    }


def _properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def _plugin() -> Path:
    """Return the folder with the sink's jars; see `maven_jars`."""
    return maven_jars(f"iceberg-kafka-connect-{ICEBERG_VERSION}", _MODULES)
