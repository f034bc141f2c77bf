"""Spark Structured Streaming with the trigger AvailableNow: the replay that Spark's own documentation offers.

The offsets are in its checkpoint and the files in the log of the file sink, so that a second start reads nothing again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from bench.whole_job.contender import (
    EVENTS,
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.plain_spark import COLUMNS, connector_jars
from bench.whole_job.contenders.plain_spark import VARIANTS as PLAIN
from bench.whole_job.contenders.spark_program import SparkProgram, TableVariant

_BEST = PLAIN["best"]
VARIANTS: Mapping[str, TableVariant] = {
    "default": TableVariant(
        what={"driver": "spark-submit --master local[2] --jars, every other default"},
    ),
    "best": TableVariant(
        what={name: text for name, text in _BEST.what.items() if name != "three"},
        archived=True,
        java=_BEST.java,
        conf=_BEST.conf,
        kafka=_BEST.kafka,
        write=_BEST.parquet,
    ),
}


@dataclass(slots=True)
class StructuredStreaming:
    """The contender with one of the variants."""

    variant: Literal["default", "best"]
    _program: SparkProgram | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return f"spark-streaming-{self.variant}"

    @property
    def what(self) -> str:
        """What it is."""
        return (
            "Spark Structured Streaming: Kafka source, from_json, file sink, trigger AvailableNow"
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **VARIANTS[self.variant].what,
            "batches": "one micro-batch; its end is the end of the topic, as this trigger takes no other",
            "output": "files and checkpoint on the local disk, which favours it: no upload, no S3 committer",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """One table only: a query has one sink."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return the version of Spark."""
        import pyspark

        return {"spark": str(pyspark.__version__)}

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Download the connector; archive the classes of the best variant. Safe to repeat: what exists is kept."""
        self._program = SparkProgram(
            name=self.name,
            python=Path(sys.executable),
            jars=connector_jars(),
            variant=VARIANTS[self.variant],
            workspace=workspace,
        )
        self._program.make_archive(partial(_submit, self._program))

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the spark-submit. Safe to repeat: each place has a checkpoint of its own."""
        yield _submit(self._prepared, job, place, self._prepared.flags)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the files of the sink."""
        files = sorted(str(path) for path in (place.output / EVENTS).glob("*.parquet"))
        return [ResultTable(name=EVENTS, files=files, columns=COLUMNS[EVENTS])]

    @property
    def _prepared(self) -> SparkProgram:
        assert self._program is not None, "prepare() comes first"
        return self._program


def _submit(
    program: SparkProgram, job: BenchJob, place: BenchPlace, flags: Sequence[str]
) -> BenchStep:
    sink = {
        "sink": "stream",
        "output": str(place.output / EVENTS),
        "checkpoint": str(place.folder / "checkpoint"),
    }
    return program.step(job, place, flags, sink=sink, conf={})
