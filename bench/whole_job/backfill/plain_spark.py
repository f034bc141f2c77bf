"""Plain Spark as a backfill: one PySpark process that loops over the intervals, or a spark-submit for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.whole_job.backfill.intervals import BackfillInterval, intervals_of
from bench.whole_job.contender import (
    EVENTS,
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.plain_spark import COLUMNS, PlainSpark

# The large fetches of the best settings read far beyond a small interval, and Spark keeps what was fetched for five
# minutes. A loop over 48 intervals with them ended with Spark's exit code for lack of memory, 52. No query uses the
# consumers of another one, so a small cache loses nothing.
KAFKA = {"kafka.max.poll.records": "100000"}
CONF = {
    "spark.kafka.consumer.fetchedData.cache.timeout": "5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.cache.capacity": "8",
}
WHAT = {
    "loop": "one spark-submit whose PySpark program replays one interval after the other",
    "submits": "a spark-submit for each interval, one after the other",
}


@dataclass(slots=True)
class BackfillPlainSpark:
    """The contender plain Spark with its best settings, in one of two forms."""

    form: Literal["loop", "submits"]
    _spark: PlainSpark = field(
        default_factory=lambda: PlainSpark("best", small_kafka=KAFKA, small_conf=CONF)
    )

    @property
    def name(self) -> str:
        """Its name."""
        return f"spark-{self.form}"

    @property
    def what(self) -> str:
        """What it is."""
        return f"{self._spark.what}: {WHAT[self.form]}"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **self._spark.settings,
            "kafka": "100,000 records a poll, fetches of the default size; what was fetched is kept for five seconds; "
            "at most eight consumers are kept, because no query uses those of another one",
            "intervals": "each interval has a folder; its offsets are given, which favours it: no look-up by time",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """One table."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Spark and of the connector's JARs."""
        return self._spark.versions()

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Prepare plain Spark. Safe to repeat: what exists is kept."""
        self._spark.prepare(workspace)

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the spark-submits. Safe to repeat: each place has a folder of its own."""
        intervals = intervals_of(job)
        if self.form == "loop":
            orders = [_order(interval, place) for interval in intervals]
            yield self._spark.submit(job, place, intervals=orders)
            return
        for interval in intervals:
            orders = [_order(interval, place)]
            yield self._spark.submit(job, place, name=f"job-{interval.name}", intervals=orders)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the files of all intervals together."""
        files: list[str] = []
        for interval in intervals_of(job):
            folder = place.output / interval.name / EVENTS
            files += sorted(str(path) for path in folder.glob("*.parquet"))
        return [ResultTable(name=EVENTS, files=files, columns=COLUMNS[EVENTS])]


def _order(interval: BackfillInterval, place: BenchPlace) -> dict[str, object]:
    return {
        "starts": interval.starts,
        "ends": interval.ends,
        "output": str(place.output / interval.name),
    }
