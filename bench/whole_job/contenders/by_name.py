"""The list of all contenders, and the choice by the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.whole_job.contender import Contender
from bench.whole_job.contenders.dlt import Dlt
from bench.whole_job.contenders.flink import Flink
from bench.whole_job.contenders.kafka_connect import KafkaConnect
from bench.whole_job.contenders.native import NativeBound
from bench.whole_job.contenders.plain_spark import PlainSpark
from bench.whole_job.contenders.script import HandWrittenScript
from bench.whole_job.contenders.spark_delta import SparkDelta
from bench.whole_job.contenders.spark_iceberg import SparkIceberg
from bench.whole_job.contenders.structured_streaming import StructuredStreaming
from bench.whole_job.contenders.tallystick import Tallystick
from bench.whole_job.contenders.tallystick_replay import TallystickReplay

QUICK: Mapping[str, Callable[[], Contender]] = {
    "tallystick-default": lambda: Tallystick("default"),
    "tallystick-best": lambda: Tallystick("best"),
    "tallystick-without-spark": lambda: Tallystick("without-spark"),
    "tallystick-replay": TallystickReplay,
    "spark-default": lambda: PlainSpark("default"),
    "spark-best": lambda: PlainSpark("best"),
    "script": HandWrittenScript,
}
# Those that take long: only with --full, or by name.
SLOW: Mapping[str, Callable[[], Contender]] = {
    "spark-iceberg-default": lambda: SparkIceberg("default"),
    "spark-iceberg-best": lambda: SparkIceberg("best"),
    "spark-delta-default": lambda: SparkDelta("default"),
    "spark-delta-best": lambda: SparkDelta("best"),
    "spark-streaming-default": lambda: StructuredStreaming("default"),
    "spark-streaming-best": lambda: StructuredStreaming("best"),
    "kafka-connect-default": lambda: KafkaConnect("default"),
    "kafka-connect-best": lambda: KafkaConnect("best"),
    "flink-default": lambda: Flink("default"),
    "flink-best": lambda: Flink("best"),
    "dlt-default": lambda: Dlt("default"),
    "dlt-best": lambda: Dlt("best"),
    "native": NativeBound,
}


def contenders_of(names: str | None, *, full: bool) -> list[Contender]:
    """Return the contenders of a comma-separated list of names or of their beginnings; without one, all.

    Raises SystemExit if a name fits none.
    """
    every = {**QUICK, **SLOW}
    if names is None:
        return [make() for make in (every if full else QUICK).values()]
    chosen: dict[str, Contender] = {}
    for name in names.split(","):
        fitting = [one for one in every if one.startswith(name)]
        if not fitting:
            raise SystemExit(f"no contender is called {name!r}: use some of {', '.join(every)}")
        chosen |= {one: every[one]() for one in fitting if one not in chosen}
    return list(chosen.values())
