"""spark-submit for the contenders that write a table by Spark: its jars, its class archive, and the step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.whole_job.contender import BenchJob, BenchPlace, BenchStep, BenchWorkspace
from bench.whole_job.contenders.prepared import (
    Module,
    archive_classes,
    archive_of,
    artefact,
    maven_jars,
    own_python,
    site_packages,
)
from tallystick_devstack.class_archive import ClassArchive
from tallystick_devstack.process import base_environment

JOB = Path(__file__).with_name("spark_table_job.py")
REPO = Path(__file__).resolve().parents[3]
# The newest Spark for which Iceberg and Delta have a release; neither has one for the project's own Spark.
SPARK_VERSION, PY4J_VERSION = "4.1.4", "0.10.9.9"
# The newest of this minor version whose jars Maven Central all has.
CONNECTOR_VERSION = "4.1.1"
KAFKA_CONNECTOR = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVariant:
    """One set of settings of a Spark job that writes a table.

    `archived`: the JVM uses an archive of this job's classes. `kafka` and `write` are options of the source and of the
    writer; `table`: properties of the table.
    """

    what: Mapping[str, str]
    archived: bool = False
    java: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkProgram:
    """One contender's spark-submit. `python` is the one that has its PySpark; `jars` are those that Spark has not."""

    name: str
    python: Path
    jars: Path
    variant: TableVariant
    workspace: BenchWorkspace

    def make_archive(
        self, submit: Callable[[BenchJob, BenchPlace, Sequence[str]], BenchStep]
    ) -> None:
        """Archive the classes of the job, if the variant uses an archive; see `archive_classes`."""
        if self.variant.archived:
            archive_classes(self._archive, self.workspace, submit)

    @property
    def flags(self) -> list[str]:
        """The flags of the JVM that use the archive; none if the variant has none."""
        return self._archive.flags if self.variant.archived else []

    @property
    def _archive(self) -> ClassArchive:
        return archive_of(self.name, self.jars)

    def step(
        self,
        job: BenchJob,
        place: BenchPlace,
        flags: Sequence[str],
        *,
        sink: Mapping[str, object],
        conf: Mapping[str, str],
    ) -> BenchStep:
        """Return the spark-submit of one run. `sink`: what `spark_table_job` needs of the table."""
        order = {
            "topic": job.topic,
            "ends": job.ends,
            "bootstrap": self.workspace.endpoints.bootstrap,
            "kafka": dict(self.variant.kafka),
            "write": dict(self.variant.write),
            **sink,
        }
        path = place.folder / "order.json"
        path.write_text(json.dumps(order))
        home = site_packages(self.python) / "pyspark"
        jars = sorted(map(str, self.jars.glob("*.jar")))
        words: list[str | Path] = [home / "bin" / "spark-submit"]
        words += ["--master", f"local[{self.workspace.cores}]"]
        # On the class path of the JVM, which an archive needs, they are also not copied at each start.
        if self.variant.archived:
            words += ["--driver-class-path", ":".join(jars)]
        else:
            words += ["--jars", ",".join(jars)]
        for name, value in {**conf, **self.variant.conf}.items():
            words += ["--conf", f"{name}={value}"]
        env = base_environment() | {
            "SPARK_HOME": str(home),
            "PYTHONPATH": str(REPO),
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": " ".join([self.variant.java, *flags]).strip(),
        }
        return BenchStep(name="job", argv=[*words, JOB, path], env=env, cwd=place.folder)


def table_python() -> Path:
    """Return the Python with the PySpark for which Iceberg and Delta have releases; it is installed once per machine."""
    packages = (f"pyspark=={SPARK_VERSION}", f"py4j=={PY4J_VERSION}")
    return own_python(f"pyspark-{SPARK_VERSION}", packages)


def table_jars(name: str, modules: Sequence[Module], python: Path) -> Path:
    """Return the folder with the jars of these modules that the Spark of `python` does not have; see `maven_jars`."""
    own = {artefact(path) for path in (site_packages(python) / "pyspark/jars").glob("*.jar")}
    return maven_jars(name, modules, without=own)
