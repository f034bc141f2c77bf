"""Plain Spark on a record set: a hand-written job with an explicit schema and the best settings of plain Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.whole_job.contender import (
    EVENTS,
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.plain_spark import VARIANTS, PlainSpark, SparkJob, connector_jars
from bench.whole_job.contenders.prepared import artefact, maven_jars
from bench.whole_job.formats.record_sets import RecordSet
from tallystick_devstack.java import spark_home

JOB = Path(__file__).with_name("plain_spark_job.py")
# Columns whose values hardly repeat; a dictionary of them is built for nothing.
WITHOUT_DICTIONARY = {
    "documents": ("order_id", "customer.email", "items.list.element.sku"),
    "flights": (),
    "avro": ("event_id", "session"),
}
_ONCE = "both rules that push a filter below a projection are off, so that it runs once per record"
DECODES = {
    "documents": f"from_json with a schema of the columns that are kept; {_ONCE}",
    "flights": f"from_json with the schema; {_ONCE}",
    "avro": "from_avro of spark-avro, PERMISSIVE, of the value without its first five bytes; the schema is given, which "
    "favours it: no request to a registry, and no check of the id; "
    f"{_ONCE}",
}


@dataclass(slots=True)
class FormatSpark:
    """The contender."""

    record_set: RecordSet
    _spark: PlainSpark = field(init=False)

    def __post_init__(self) -> None:
        one = self.record_set
        order: dict[str, object] = {"record_set": one.name}
        if one.schema is not None:
            order["schema"] = json.dumps(one.schema)
        job = SparkJob(
            name=one.name,
            path=JOB,
            jars=connector_jars if one.schema is None else avro_jars,
            order=order,
            parquet=_parquet(one.name),
        )
        self._spark = PlainSpark("best", job=job)

    @property
    def name(self) -> str:
        """Its name."""
        return self._spark.name

    @property
    def what(self) -> str:
        """What it is."""
        return "Spark's own Kafka source, from_json or from_avro, and Parquet writer, as a batch job of PySpark"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        left_out = WITHOUT_DICTIONARY[self.record_set.name]
        without = f"no dictionary for {', '.join(left_out)}" if left_out else "dictionaries"
        every = self._spark.settings
        return {
            "driver": every["driver"],
            "kafka": every["kafka"],
            "parquet": f"zstd level 1, PARQUET_2_0, TIMESTAMP_MICROS, {without}",
            "decode": DECODES[self.record_set.name],
            "output": every["output"],
        }

    @property
    def cases(self) -> frozenset[Case]:
        """One table."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Spark and of the JARs that it does not have itself."""
        return self._spark.versions()

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Prepare plain Spark. Safe to repeat: what exists is kept."""
        self._spark.prepare(workspace)

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the spark-submit. Safe to repeat: each place has a folder of its own."""
        yield from self._spark.steps(job, place)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the files of the events."""
        files = sorted(str(path) for path in (place.output / EVENTS).glob("*.parquet"))
        columns = self.record_set.columns(partition="partition", offset="offset")
        return [ResultTable(name=EVENTS, files=files, columns=columns)]


def _parquet(record_set: str) -> dict[str, str]:
    option = "parquet.enable.dictionary"
    best = {
        name: value
        for name, value in VARIANTS["best"].parquet.items()
        if not name.startswith(option)
    }
    return best | {f"{option}#{column}": "false" for column in WITHOUT_DICTIONARY[record_set]}


def avro_jars() -> Path:
    """Return the folder with Spark's Kafka connector and spark-avro, without what Spark has; see `maven_jars`."""
    import pyspark

    version = str(pyspark.__version__)
    modules = [
        ("org.apache.spark", f"{name}_2.13", version)
        for name in ("spark-sql-kafka-0-10", "spark-avro")
    ]
    own = {artefact(path) for path in (spark_home() / "jars").glob("*.jar")}
    return maven_jars(f"spark-avro-{version}", modules, without=own)
