"""The axes of the benchmark of growth: what grows, in which sizes, and which settings of tallystick run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.whole_job.contenders.tallystick import Tallystick
from bench.whole_job.places import RecordPlaces, even, only_first, skewed

RECORDS = 2_000_000
EVEN = even()
LARGE = 10_000_000  # a size with at least so many records is run once
BOTH = (Tallystick("best"), Tallystick("without-spark"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthSize:
    """The topic of one size. `name` is a part of keys on S3."""

    name: str
    records: int = RECORDS
    places: RecordPlaces = EVEN

    def rounds(self, asked: int) -> int:
        """Return how often it is run."""
        return 1 if self.records >= LARGE else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthAxis:
    """One axis: its sizes, and the contenders that run each of them."""

    what: str
    sizes: Sequence[GrowthSize]
    contenders: Sequence[Tallystick] = BOTH


def _records(*counts: int) -> list[GrowthSize]:
    return [GrowthSize(name=_counted(count), records=count) for count in counts]


def _counted(records: int) -> str:
    million, rest = divmod(records, 1_000_000)
    return f"{records // 1_000}k-records" if rest else f"{million}M-records"


AXES: Mapping[str, GrowthAxis] = {
    "records": GrowthAxis(
        what="records in an interval, in 8 partitions",
        sizes=_records(1_000, 100_000, 1_000_000, LARGE, 50_000_000),
    ),
    "partitions": GrowthAxis(
        what=f"partitions of a topic of {RECORDS:,} records",
        sizes=[
            GrowthSize(name=f"{count}-partitions", places=even(count))
            for count in (1, 10, 100, 1_000)
        ],
    ),
    "skew": GrowthAxis(
        what=f"share of {RECORDS:,} records that one of 8 partitions has",
        sizes=[
            GrowthSize(name="an-eighth"),
            GrowthSize(name="half", places=skewed(7)),
            GrowthSize(name="nine-tenths", places=skewed(63)),
            GrowthSize(name="all", places=only_first()),
        ],
    ),
    "tasks": GrowthAxis(
        what=f"tasks of Spark at once, for {RECORDS:,} records in 8 partitions",
        sizes=[GrowthSize(name=_counted(RECORDS))],
        contenders=[Tallystick("best", tasks=count) for count in (1, 2, 4, 8)],
    ),
}
