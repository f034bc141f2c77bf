"""Flink SQL: its Kafka source, JSON format and Iceberg's sink, a bounded job in one JVM, one commit on the local disk.

Flink's own distribution comes from PyPI (apache-flink-libraries); its connector, Iceberg's sink and Hadoop's client,
which that needs, from Maven Central.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

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
    jdbc_properties,
    result,
)
from bench.whole_job.contenders.prepared import (
    HADOOP,
    SQLITE,
    archive_classes,
    archive_of,
    maven_jars,
    own_python,
    site_packages,
)
from tallystick_devstack.class_archive import ClassArchive
from tallystick_devstack.java import find_java
from tallystick_devstack.process import base_environment

FLINK_VERSION, CONNECTOR_VERSION, ICEBERG_VERSION = "2.1.3", "4.0.1-2.0", "1.11.0"
_MODULES = (
    # The SQL client runs it inside; PyPI's distribution has it not.
    ("org.apache.flink", "flink-sql-gateway", FLINK_VERSION),
    ("org.apache.flink", "flink-sql-connector-kafka", CONNECTOR_VERSION),
    ("org.apache.iceberg", "iceberg-flink-runtime-2.1", ICEBERG_VERSION),
    *HADOOP,
    SQLITE,
)
# What Flink's own configuration opens to run on Java 17.
_OPENED = ("lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent")
_JAVA = (
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
)
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c:%L)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_FIELDS = {
    "event_id": "STRING",
    "event_type": "STRING",
    "user_id": "BIGINT",
    "session": "STRING",
    "ts": "BIGINT",
    "page": "STRING",
    "referrer": "STRING",
    "price": "DOUBLE",
    "qty": "INT",
    "device": "ROW<os STRING, ver STRING>",
}
_METADATA = {"partition": "INT", "offset": "BIGINT", "timestamp": "TIMESTAMP_LTZ(3)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlinkVariant:
    """One set of settings. `per_core`: parallelism of the number of cores, else 1; `sql`: SET statements."""

    what: Mapping[str, str]
    archived: bool = False
    per_core: bool = False
    java: Sequence[str] = ()
    sql: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, str] = field(default_factory=dict)


VARIANTS: Mapping[str, FlinkVariant] = {
    "default": FlinkVariant(
        what={
            "job": "the SQL client with the default of its mode (streaming) and Flink's own config.yaml: parallelism 1",
            "table": "every default: Parquet zstd",
        },
    ),
    "best": FlinkVariant(
        what={
            "job": "the SQL client in batch mode, parallelism of the number of cores, objects reused; ParallelGC; an "
            "archive of this job's own classes",
            "kafka": "100,000 records a poll, fetches of 16 MB per partition and 64 MB in all, a receive buffer of 4 MB",
            "table": "Parquet zstd level 1",
        },
        archived=True,
        per_core=True,
        java=("-XX:+UseParallelGC",),
        sql={"execution.runtime-mode": "batch", "pipeline.object-reuse": "true"},
        kafka={
            "properties.max.poll.records": "100000",
            "properties.max.partition.fetch.bytes": str(16 << 20),
            "properties.fetch.max.bytes": str(64 << 20),
            "properties.receive.buffer.bytes": str(4 << 20),
        },
        table={"write.parquet.compression-level": "1"},
    ),
}


@dataclass(slots=True)
class Flink:
    """The contender with one of the variants."""

    variant: Literal["default", "best"]
    _workspace: BenchWorkspace | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return f"flink-{self.variant}"

    @property
    def what(self) -> str:
        """What it is."""
        return "Flink SQL: Kafka source, JSON format, Iceberg's sink, as a bounded job"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **VARIANTS[self.variant].what,
            "cluster": "a mini cluster inside the SQL client, which favours it: one JVM instead of three",
            "broken": "json.ignore-parse-errors makes fields null, and WHERE drops the rows that have one",
            "output": LOCAL,
        }

    @property
    def cases(self) -> frozenset[Case]:
        """One table only."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Flink, its connector and Iceberg."""
        return {"flink": FLINK_VERSION, "connector": CONNECTOR_VERSION, "iceberg": ICEBERG_VERSION}

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Install Flink, download jars, archive the classes of the best variant. Safe to repeat: what exists is kept."""
        self._workspace = workspace
        _class_path()
        if VARIANTS[self.variant].archived:
            archive_classes(self._archive(), workspace, self._client)

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the SQL client. Safe to repeat: each place has a catalog of its own."""
        flags = self._archive().flags if VARIANTS[self.variant].archived else []
        yield self._client(job, place, flags)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the files of the table's current snapshot."""
        return [result(place)]

    @property
    def _space(self) -> BenchWorkspace:
        assert self._workspace is not None, "prepare() comes first"
        return self._workspace

    def _archive(self) -> ClassArchive:
        return archive_of(self.name, _jars())

    def _client(self, job: BenchJob, place: BenchPlace, flags: Sequence[str]) -> BenchStep:
        variant = VARIANTS[self.variant]
        create_table(place, variant.table)
        conf = place.folder / "conf"
        conf.mkdir()
        parallelism = self._space.cores if variant.per_core else 1
        (conf / "config.yaml").write_text(
            f"execution.target: local\nparallelism.default: {parallelism}\n"
            f"taskmanager.numberOfTaskSlots: {parallelism}\nrest.bind-address: localhost\n"
        )
        (conf / "log4j2.properties").write_text(_LOGGING)
        script = place.folder / "job.sql"
        script.write_text(_script(job, place, variant, self._space.endpoints.bootstrap))
        argv: list[str | Path] = [find_java(), *_JAVA, *variant.java, *flags]
        argv += [f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}"]
        argv += ["-cp", ":".join(map(str, _class_path()))]
        argv += ["org.apache.flink.table.client.SqlClient", "embedded", "-f", script]
        # Flink's own default is the folder `plugins` of the current one.
        plugins = place.folder / "plugins"
        plugins.mkdir()
        env = base_environment() | {"FLINK_CONF_DIR": str(conf), "FLINK_PLUGINS_DIR": str(plugins)}
        return BenchStep(name="job", argv=argv, env=env, cwd=place.folder)


def _script(job: BenchJob, place: BenchPlace, variant: FlinkVariant, bootstrap: str) -> str:
    ends = ";".join(f"partition:{p},offset:{end}" for p, end in enumerate(job.ends))
    source = {
        "connector": "kafka",
        "topic": job.topic,
        "properties.bootstrap.servers": bootstrap,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "specific-offsets",
        "scan.bounded.specific-offsets": ends,
        "format": "json",
        "json.ignore-parse-errors": "true",
        **variant.kafka,
    }
    catalog = {"type": "iceberg", "catalog-impl": JDBC_CATALOG, **jdbc_properties(place)}
    fields = [f"`{name}` {kind}" for name, kind in _FIELDS.items()]
    fields += [f"`{name}` {kind} METADATA VIRTUAL" for name, kind in _METADATA.items()]
    read = [f"`{name}`" for name in (*_FIELDS, "partition", "offset")]
    read += ["CAST(`timestamp` AS TIMESTAMP_LTZ(6))"]
    needed = [*(f"`{name}`" for name in _FIELDS if name != "device"), "device.os", "device.ver"]
    sets = {"table.dml-sync": "true", **variant.sql}
    return "\n".join(
        [
            *(f"SET '{name}' = '{value}';" for name, value in sets.items()),
            f"CREATE CATALOG {CATALOG} WITH ({_options(catalog)});",
            f"CREATE TEMPORARY TABLE clicks ({', '.join(fields)}) WITH ({_options(source)});",
            f"INSERT INTO {CATALOG}.{IDENTIFIER} SELECT {', '.join(read)} FROM clicks",
            f"WHERE {' AND '.join(f'{name} IS NOT NULL' for name in needed)};",
            "",
        ]
    )


def _options(words: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in words.items())


def _class_path() -> list[Path]:
    """Return the jars of Flink's distribution, of its SQL client, and those of `_jars`, always in the same order."""
    packages = (f"apache-flink-libraries=={FLINK_VERSION}",)
    home = site_packages(own_python(f"flink-{FLINK_VERSION}", packages)) / "pyflink"
    client = (home / "opt").glob(
        "flink-*.jar"
    )  # the SQL client, and flink-python, which it needs to start
    return sorted([*(home / "lib").glob("*.jar"), *client, *_jars().glob("*.jar")])


def _jars() -> Path:
    """Return the folder with the connectors; see `maven_jars`."""
    name = f"flink-{FLINK_VERSION}-{CONNECTOR_VERSION}-{ICEBERG_VERSION}"
    return maven_jars(name, _MODULES, with_dependencies=False)
