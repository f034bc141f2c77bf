"""Plain Spark: its Kafka source, from_json and Parquet files on the local disk. No commit, no exactly-once."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.whole_job.contender import (
    DEAD_LETTERS,
    EVENTS,
    TOTALS,
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from tallystick.errors import SettingsError
from tallystick_devstack.class_archive import ClassArchive
from tallystick_devstack.ivy import cache_folder, fetch_once, retrieve
from tallystick_devstack.java import compiled_spark_home, spark_home
from tallystick_devstack.process import base_environment, run_to_end

JOB = Path(__file__).with_name("plain_spark_job.py")
REPO = Path(__file__).resolve().parents[3]
_SCALA = "2.13"
# Spark has these itself.
_EXCLUDED = ("org.apache.hadoop", "org.scala-lang", "org.scala-lang.modules", "org.slf4j")
_EXCLUDED_TOO = ("org.lz4", "at.yawk.lz4", "org.xerial.snappy", "com.github.luben")
_EVENT = ("event_id", "event_type", "user_id", "session", "ts", "page", "referrer", "price", "qty")
COLUMNS: Mapping[str, Mapping[str, str]] = {
    EVENTS: {
        **{name: name for name in _EVENT},
        "os": "device.os",
        "ver": "device.ver",
        "partition": '"partition"',
        "offset": '"offset"',
    },
    DEAD_LETTERS: {"partition": '"partition"', "offset": '"offset"', "value": "value"},
    TOTALS: {name: name for name in ("event_type", "hour", "events", "revenue")},
}
_WARM_UP_S = 1800.0  # at its end the JVM verifies and writes each class; other work may go on at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkVariant:
    """One set of settings. `form`: see `plain_spark_job`. `archived`: the JVM uses an archive of this job's classes."""

    what: Mapping[str, str]
    form: str = "naive"
    archived: bool = False
    java: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    parquet: Mapping[str, str] = field(default_factory=dict)


_RULES = "org.apache.spark.sql.catalyst.optimizer"
_BEST = SparkVariant(
    what={
        "driver": "spark-submit --master local[2], 4 GB; an archive of this job's own classes; ParallelGC; no UI; a "
        "Spark home without zipped modules",
        "kafka": "100,000 records a poll, fetches of 16 MB per partition and 64 MB in all, a receive buffer of 4 MB",
        "parquet": "zstd level 1, PARQUET_2_0, TIMESTAMP_MICROS, no dictionary for event_id and session",
        "one": "both rules that push a filter below a projection are off, so that from_json runs once per record",
        "three": "one write with partitionBy(tag); the totals from a second read of the events",
        "weighed": "in single runs on a busy machine: persist() instead of partitionBy(tag), a tie; "
        "-XX:TieredStopAtLevel=1 instead of Java's own choice, less for 500,000 records and more for 2,000,000",
    },
    form="tagged",
    archived=True,
    java="-XX:+UseParallelGC",
    conf={
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "2",
        # With one of them alone, the optimizer of Spark 4.2 still parses each record for the filter, too.
        "spark.sql.optimizer.excludedRules": f"{_RULES}.PushDownPredicates,{_RULES}.PushPredicateThroughNonJoin",
    },
    kafka={
        "kafka.max.poll.records": "100000",
        "kafka.max.partition.fetch.bytes": str(16 << 20),
        "kafka.fetch.max.bytes": str(64 << 20),
        "kafka.receive.buffer.bytes": str(4 << 20),
    },
    parquet={
        "compression": "zstd",
        "parquet.compression.codec.zstd.level": "1",
        "parquet.writer.version": "PARQUET_2_0",
        "parquet.enable.dictionary#event_id": "false",
        "parquet.enable.dictionary#session": "false",
    },
)
VARIANTS: Mapping[str, SparkVariant] = {
    "default": SparkVariant(
        what={
            "driver": "spark-submit --master local[2] --jars, every other default",
            "one": "where() on the column of corrupt records that from_json fills",
            "three": "three queries, nothing is kept in between",
        },
    ),
    "best": _BEST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """The program of a spark-submit; by default that of the clicks.

    `name` is a part of the archive's name; `jars` returns the folder of jars that Spark does not have; `order` is added
    to the order of each run; `parquet`: options of the writer instead of those of the variant.
    """

    name: str = ""
    path: Path = JOB
    jars: Callable[[], Path] = field(default_factory=lambda: connector_jars)
    order: Mapping[str, object] = field(default_factory=dict)
    parquet: Mapping[str, str] | None = None


@dataclass(slots=True)
class PlainSpark:
    """The contender with one of the variants. `small_kafka`: options of the source instead of those of the variant."""

    variant: Literal["default", "best"]
    job: SparkJob = field(default_factory=SparkJob)
    small_kafka: Mapping[str, str] | None = None
    small_conf: Mapping[str, str] = field(default_factory=dict)
    _workspace: BenchWorkspace | None = None
    _jars: Path = Path()

    @property
    def name(self) -> str:
        """Its name."""
        return f"spark-{self.variant}"

    @property
    def what(self) -> str:
        """What it is."""
        return "Spark's own Kafka source, from_json and Parquet writer, as a batch job of PySpark"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **VARIANTS[self.variant].what,
            "output": "the local disk, which favours it: no upload, no committer, no table format, no commit of offsets",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """Both cases."""
        return frozenset({"one", "three"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Spark and of the connector's JARs."""
        import pyspark

        jars = sorted(path.stem for path in self._jars.glob("*.jar"))
        return {"spark": str(pyspark.__version__), "connector": ", ".join(jars)}

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Download the connector; archive the classes of the best variant. Safe to repeat: what exists is kept."""
        self._workspace = workspace
        self._jars = self.job.jars()
        if not VARIANTS[self.variant].archived:
            return
        self._archive().make(self._warm_up)

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the spark-submit. Safe to repeat: each place has a folder of its own."""
        yield self.submit(job, place)

    def submit(
        self,
        job: BenchJob,
        place: BenchPlace,
        *,
        name: str = "job",
        intervals: Sequence[Mapping[str, object]] = (),
    ) -> BenchStep:
        """Return the spark-submit of the job, or of some intervals of it: see `plain_spark_job`."""
        flags = self._archive().flags if VARIANTS[self.variant].archived else []
        return self._submit(job, place, flags, name=name, intervals=intervals)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the files below the folder of each table."""
        is_tagged = job.case == "three" and VARIANTS[self.variant].form == "tagged"
        found = []
        for name in job.tables:
            tagged = is_tagged and name != TOTALS
            folder = place.output / (f"tagged/tag={name}" if tagged else name)
            files = sorted(str(path) for path in folder.glob("*.parquet"))
            found.append(ResultTable(name=name, files=files, columns=COLUMNS[name]))
        return found

    @property
    def _space(self) -> BenchWorkspace:
        assert self._workspace is not None, "prepare() comes first"
        return self._workspace

    def _archive(self) -> ClassArchive:
        # In the virtual environment, as Spark is: a JVM ignores an archive if a path of its class path differs.
        folder = Path(sys.prefix, "var", "tallystick")
        words = ["bench", "spark", *filter(None, [self.job.name]), self.variant]
        return ClassArchive(program="-".join(words), jars=self._jars, folder=folder)

    def _warm_up(self, flags: list[str]) -> None:
        place = BenchPlace(folder=self._space.folder / "warm-up", prefix="")
        shutil.rmtree(place.folder, ignore_errors=True)
        place.folder.mkdir(parents=True)
        step = self._submit(self._space.warm_up, place, flags)
        run_to_end(
            step.argv,
            name="the job whose classes are archived",
            log_path=place.folder / "job.log",
            deadline_s=_WARM_UP_S,
            env=step.env,
        )

    def _submit(
        self,
        job: BenchJob,
        place: BenchPlace,
        flags: Sequence[str],
        *,
        name: str = "job",
        intervals: Sequence[Mapping[str, object]] = (),
    ) -> BenchStep:
        variant = VARIANTS[self.variant]
        order: dict[str, object] = {
            "topic": job.topic,
            "ends": job.ends,
            "bootstrap": self._space.endpoints.bootstrap,
            "output": str(place.output),
            "case": job.case,
            "form": variant.form,
            "kafka": dict(variant.kafka if self.small_kafka is None else self.small_kafka),
            "parquet": dict(variant.parquet if self.job.parquet is None else self.job.parquet),
            **self.job.order,
        }
        if intervals:
            order["intervals"] = intervals
        path = place.folder / f"order-{name}.json"
        path.write_text(json.dumps(order))
        jars = sorted(map(str, self._jars.glob("*.jar")))
        words: list[str | Path] = [Path(sys.executable).with_name("spark-submit")]
        words += ["--master", f"local[{self._space.cores}]"]
        # On the class path of the JVM, which an archive needs, they are also not copied at each start.
        words += (
            ["--driver-class-path", ":".join(jars)]
            if variant.archived
            else ["--jars", ",".join(jars)]
        )
        for option, value in {**variant.conf, **self.small_conf}.items():
            words += ["--conf", f"{option}={value}"]
        env = base_environment() | {
            "PYTHONPATH": str(REPO),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": " ".join([variant.java, *flags]).strip(),
        }
        if variant.archived:
            env["SPARK_HOME"] = str(compiled_spark_home())
        return BenchStep(name=name, argv=[*words, self.job.path, path], env=env, cwd=place.folder)


def connector_jars() -> Path:
    """Return the folder with Spark's Kafka connector; it is downloaded once per machine, see `fetch_once`."""
    import pyspark

    version = str(pyspark.__version__)
    return fetch_once(
        cache_folder() / f"spark-sql-kafka-{version}", lambda *at: _retrieve(version, *at)
    )


def _retrieve(version: str, scratch: Path, log_path: Path) -> Path:
    excluded = "".join(f'<exclude org="{org}"/>' for org in (*_EXCLUDED, *_EXCLUDED_TOO))
    dependency = (
        f'<dependency org="org.apache.spark" name="spark-sql-kafka-0-10_{_SCALA}" rev="{version}" '
        f'conf="*->default">{excluded}</dependency>'
    )
    jars, what = scratch / "jars", f"the Kafka connector of Spark {version}"
    retrieve(dependency, jars, types=("jar", "bundle"), what=what, log_path=log_path)
    own = {path.name for path in (spark_home() / "jars").glob("*.jar")}
    for path in jars.glob("*.jar"):
        if path.name in own:
            path.unlink()
    if not list(jars.glob(f"spark-sql-kafka-0-10_{_SCALA}-*.jar")):
        raise SettingsError(
            f"the download of {what} ended without its jars.",
            hint="check access to Maven Central.",
        )
    return jars
