"""What a DataFrame transform may ask for beside its records, the same for every attempt at one plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tallystick.errors import InvalidPipeline
from tallystick.format.interval import Interval
from tallystick.format.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The session and the plan's clock: `[start, end)` is the interval, `planned_at` when its plan was made.

    Every attempt at a plan sees the same `planned_at`; a replay is another plan. What must be equal after a replay too
    is computed from `start`, `end` and the records' own `_timestamp`. `back`: how
    far the pipeline looks back, None for all the time before.
    """

    spark: SparkSession
    start: datetime
    end: datetime
    planned_at: datetime
    topic_ids: Mapping[str, str]
    rows_before: Mapping[str, DataFrame] = field(default_factory=dict)
    back: timedelta | None = None

    def earlier(self, table: str) -> DataFrame:
        """The rows of a table that the pipeline looks back at: those of [start - back, start). Raises InvalidPipeline.

        Where the job is called for time that is not committed yet, there are none: rows of such a table must not depend
        on it.
        """
        if table not in self.rows_before:
            raise InvalidPipeline(
                f"the job looks back at {table!r}, which the pipeline does not declare.",
                hint="declare it: Pipeline(lookback=Lookback(tables=[...], back=...)).",
            )
        return self.rows_before[table]

    def stable_id(self, *parts: Column | str) -> Column:
        """An id of 64 hexadecimal digits for a row with lineage, the same at every attempt and every replay.

        It is the SHA-256 of the record's topic incarnation, partition and offset; `parts` are columns that tell several
        rows of one record apart, such as a position. Null where a row has no lineage.
        """
        ids = F.create_map(*[F.lit(text) for pair in self.topic_ids.items() for text in pair])
        record = (ids[F.col("_topic")], F.col("_kafka_partition"), F.col("_offset"))
        rest = F.to_json(F.struct(*parts)) if parts else F.lit("")
        slash = F.lit("/")
        # concat is null where one of them is: concat_ws would give all rows without lineage one id.
        return F.sha2(F.concat(record[0], slash, record[1], slash, record[2], slash, rest), 256)


def context_of(
    session: SparkSession,
    plan: Plan,
    *,
    earlier: Mapping[str, DataFrame] | None = None,
    interval: Interval | None = None,
    back: timedelta | None = None,
) -> Context:
    """The context of one plan's transform, or of earlier time that its job is called for: `interval`."""
    return Context(
        spark=session,
        start=(interval or plan.interval).start,
        end=(interval or plan.interval).end,
        rows_before=earlier or {},
        back=back,
        planned_at=plan.planned_at,
        topic_ids={
            topic: next(t.topic_id for t in plan.topics if t.name == name)
            for topic, name in plan.read_names.items()
        },
    )
