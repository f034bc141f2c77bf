"""The context of a DataFrame transform: values that it can use in addition to its records."""

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
    """The session and the times of the plan: the interval is `[start, end)`, and its plan was made at `planned_at`.

    Each attempt of a plan gets the same `planned_at`. A replay is another plan, with another `planned_at`. If a value
    must be the same after a replay, compute it from `start`, `end` and the records' `_timestamp`. `back`: how far back
    the pipeline's lookback reaches; None means from the beginning.
    """

    spark: SparkSession
    start: datetime
    end: datetime
    planned_at: datetime
    topic_ids: Mapping[str, str]
    rows_before: Mapping[str, DataFrame] = field(default_factory=dict)
    back: timedelta | None = None

    def lookback(self, table: str) -> DataFrame:
        """Return the rows of [start - back, start) of a table of the lookback.

        If the job is called for uncommitted time, there are no such rows: rows of such a table must not depend on the
        lookback. Raises InvalidPipeline if the pipeline does not declare the table in its lookback.
        """
        if table not in self.rows_before:
            raise InvalidPipeline(
                f"the job reads the lookback of {table!r}, which the pipeline does not declare.",
                hint="declare it: Pipeline(lookback=Lookback(tables=[...], back=...)).",
            )
        return self.rows_before[table]

    def stable_id(self, *parts: Column | str) -> Column:
        """Return a column with an id of 64 hexadecimal digits, the same in every attempt and every replay.

        It is the SHA-256 of the record's topic incarnation, partition and offset. If one record gives several rows,
        `parts` are columns that distinguish them, such as a position. It is null if the row has no lineage.
        """
        ids = F.create_map(*[F.lit(text) for pair in self.topic_ids.items() for text in pair])
        record = (ids[F.col("_topic")], F.col("_kafka_partition"), F.col("_offset"))
        rest = F.to_json(F.struct(*parts)) if parts else F.lit("")
        slash = F.lit("/")
        # concat is null if one part is null. concat_ws would give the same id to all rows without lineage.
        return F.sha2(F.concat(record[0], slash, record[1], slash, record[2], slash, rest), 256)


def context_of(
    session: SparkSession,
    plan: Plan,
    *,
    rows_before: Mapping[str, DataFrame] | None = None,
    interval: Interval | None = None,
    back: timedelta | None = None,
) -> Context:
    """Return the context of a plan's transform. `interval`: the uncommitted earlier time that the job is called for."""
    return Context(
        spark=session,
        start=(interval or plan.interval).start,
        end=(interval or plan.interval).end,
        rows_before=rows_before or {},
        back=back,
        planned_at=plan.planned_at,
        topic_ids={
            topic: next(t.topic_id for t in plan.topics if t.name == name)
            for topic, name in plan.read_names.items()
        },
    )
