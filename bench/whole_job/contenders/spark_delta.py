"""Spark into a Delta table: its Kafka source, from_json and Delta's writer, one commit on the local disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from bench.whole_job.contender import (
    EVENTS,
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.plain_spark import COLUMNS
from bench.whole_job.contenders.plain_spark import VARIANTS as PLAIN
from bench.whole_job.contenders.spark_program import (
    CONNECTOR_VERSION,
    KAFKA_CONNECTOR,
    SPARK_VERSION,
    SparkProgram,
    TableVariant,
    table_jars,
    table_python,
)

DELTA_VERSION = "4.4.0"
_DELTA = ("io.delta", "delta-spark_4.1_2.13", DELTA_VERSION)
_BEST = PLAIN["best"]
VARIANTS: Mapping[str, TableVariant] = {
    "default": TableVariant(
        what={
            "driver": "spark-submit --master local[2] --jars, every other default",
            "table": "every default: Parquet snappy, statistics of 32 columns",
        },
    ),
    "best": TableVariant(
        what={
            "driver": _BEST.what["driver"],
            "kafka": _BEST.what["kafka"],
            "one": _BEST.what["one"],
            "table": "Parquet zstd level 1, PARQUET_2_0; statistics of 32 columns as by default",
        },
        archived=True,
        java=_BEST.java,
        conf={
            **_BEST.conf,
            "spark.sql.parquet.compression.codec": "zstd",
            "spark.hadoop.parquet.compression.codec.zstd.level": "1",
            "spark.hadoop.parquet.writer.version": "PARQUET_2_0",
        },
        kafka=_BEST.kafka,
    ),
}
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@dataclass(slots=True)
class SparkDelta:
    """The contender with one of the variants."""

    variant: Literal["default", "best"]
    _program: SparkProgram | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return f"spark-delta-{self.variant}"

    @property
    def what(self) -> str:
        """What it is."""
        return "Spark's Kafka source and from_json, appended to a Delta table by a batch job of PySpark"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **VARIANTS[self.variant].what,
            "output": "the local disk, which favours it: no upload, and a rename is enough for a commit",
            "commit": "one append; the offsets are not committed with it: a second run would append the rows again",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """One table only."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Spark and Delta."""
        return {"spark": SPARK_VERSION, "connector": CONNECTOR_VERSION, "delta": DELTA_VERSION}

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Install Spark, download jars, archive the classes of the best variant. Safe to repeat: what exists is kept."""
        python = table_python()
        name = f"spark-delta-{SPARK_VERSION}-{DELTA_VERSION}"
        self._program = SparkProgram(
            name=self.name,
            python=python,
            jars=table_jars(name, (KAFKA_CONNECTOR, _DELTA), python),
            variant=VARIANTS[self.variant],
            workspace=workspace,
        )
        self._program.make_archive(partial(_submit, self._program))

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the spark-submit. Safe to repeat: each place has a folder of its own."""
        yield _submit(self._prepared, job, place, self._prepared.flags)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the files that the commits of the table's log have added."""
        files = [str(path) for path in sorted(_added(place.output / EVENTS))]
        return [ResultTable(name=EVENTS, files=files, columns=COLUMNS[EVENTS])]

    @property
    def _prepared(self) -> SparkProgram:
        assert self._program is not None, "prepare() comes first"
        return self._program


def _submit(
    program: SparkProgram, job: BenchJob, place: BenchPlace, flags: Sequence[str]
) -> BenchStep:
    sink = {"sink": "delta", "output": str(place.output / EVENTS)}
    return program.step(job, place, flags, sink=sink, conf=_CONF)


def _added(table: Path) -> Iterator[Path]:
    for commit in (table / "_delta_log").glob("*.json"):
        for line in commit.read_text().splitlines():
            if (added := json.loads(line).get("add")) is not None:
                yield table / unquote(added["path"])
