"""Spark into an Iceberg table: its Kafka source, from_json and Iceberg's writer, one commit on the local disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from bench.whole_job.contenders.plain_spark import VARIANTS as PLAIN
from bench.whole_job.contenders.prepared import SQLITE
from bench.whole_job.contenders.spark_program import (
    CONNECTOR_VERSION,
    KAFKA_CONNECTOR,
    SPARK_VERSION,
    SparkProgram,
    TableVariant,
    table_jars,
    table_python,
)

ICEBERG_VERSION = "1.12.0"
_RUNTIME = ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", ICEBERG_VERSION)
_BEST = PLAIN["best"]
VARIANTS: Mapping[str, TableVariant] = {
    "default": TableVariant(
        what={
            "driver": "spark-submit --master local[2] --jars, every other default",
            "table": "every default: Parquet zstd",
        },
    ),
    "best": TableVariant(
        what={
            "driver": _BEST.what["driver"],
            "kafka": _BEST.what["kafka"],
            "one": _BEST.what["one"],
            "table": "Parquet zstd level 1; rows are not shuffled before the write, as by default",
        },
        archived=True,
        java=_BEST.java,
        conf=_BEST.conf,
        kafka=_BEST.kafka,
        table={"write.parquet.compression-level": "1"},
    ),
}


@dataclass(slots=True)
class SparkIceberg:
    """The contender with one of the variants."""

    variant: Literal["default", "best"]
    _program: SparkProgram | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return f"spark-iceberg-{self.variant}"

    @property
    def what(self) -> str:
        """What it is."""
        return "Spark's Kafka source and from_json, appended to an Iceberg table by a batch job of PySpark"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **VARIANTS[self.variant].what,
            "output": LOCAL,
            "commit": "one append; the offsets are not committed with it: a second run would append the rows again",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """One table only."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Spark and Iceberg."""
        return {"spark": SPARK_VERSION, "connector": CONNECTOR_VERSION, "iceberg": ICEBERG_VERSION}

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Install Spark, download jars, archive the classes of the best variant. Safe to repeat: what exists is kept."""
        python = table_python()
        modules = (KAFKA_CONNECTOR, _RUNTIME, SQLITE)
        name = f"spark-iceberg-{SPARK_VERSION}-{ICEBERG_VERSION}"
        self._program = SparkProgram(
            name=self.name,
            python=python,
            jars=table_jars(name, modules, python),
            variant=VARIANTS[self.variant],
            workspace=workspace,
        )
        self._program.make_archive(partial(_submit, self._program))

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the spark-submit. Safe to repeat: each place has a catalog of its own."""
        yield _submit(self._prepared, job, place, self._prepared.flags)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the files of the table's current snapshot."""
        return [result(place)]

    @property
    def _prepared(self) -> SparkProgram:
        assert self._program is not None, "prepare() comes first"
        return self._program


def _submit(
    program: SparkProgram, job: BenchJob, place: BenchPlace, flags: Sequence[str]
) -> BenchStep:
    create_table(place, program.variant.table)
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": JDBC_CATALOG,
        **{f"{catalog}.{name}": value for name, value in jdbc_properties(place).items()},
    }
    sink = {"sink": "iceberg", "table": f"{CATALOG}.{IDENTIFIER}"}
    return program.step(job, place, flags, sink=sink, conf=conf)
