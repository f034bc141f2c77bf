"""The contenders of the benchmark of formats by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.whole_job.contender import Contender
from bench.whole_job.formats.plain_spark import FormatSpark
from bench.whole_job.formats.record_sets import RecordSet
from bench.whole_job.formats.tallystick import FormatTallystick

CONTENDERS: Mapping[str, Callable[[RecordSet], Contender]] = {
    "tallystick-without-spark": lambda one: FormatTallystick(one, "without-spark"),
    "tallystick-best": lambda one: FormatTallystick(one, "best"),
    "spark-best": FormatSpark,
}


def contenders_of(names: Sequence[str], one: RecordSet) -> list[Contender]:
    """Return the contenders with these names for a record set."""
    return [CONTENDERS[name](one) for name in dict.fromkeys(names)]
