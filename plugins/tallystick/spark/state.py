"""State in a DataFrame job: the functions of `tallystick.stateful`, run key by key on Spark.

    def transform(records, context):
        first, seen = deduplicated(context, records, key=["id"], horizon=timedelta(hours=1), seen="seen")
        return {"events": first, "seen": seen}

Each function returns the results and the interval's partial rows. The partial rows are stored in a table that the
lookback reads (`Pipeline(lookback=...)`). All rows of one key go to one task. The task holds them and the earlier rows of
its keys in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from tallystick.engine.clock import LOG_TIME
from tallystick.errors import InvalidPipeline
from tallystick.spark.context import Context
from tallystick.stateful import (
    Partials,
    Sessions,
    Windows,
    closed_sessions,
    closed_windows,
    first_of,
    last_seen,
    merged,
    session_partials,
    window_partials,
)
from tallystick.stateful.aggregates import Aggregates, partial

_OWN = "_own"
OnTable = Callable[[pa.Table], pa.Table]


def deduplicated(
    context: Context, records: DataFrame, *, key: Sequence[str], horizon: timedelta, seen: str
) -> tuple[DataFrame, DataFrame]:
    """Return the records that are the first of their key within the horizon, and the rows of the table `seen`.

    `seen` contains the key and `last_seen`. See `tallystick.stateful.duplicates`.
    Raises InvalidPipeline if the lookback is shorter than the horizon, or if `seen` is not one of its tables.
    """
    _require_back(context, horizon, f"the horizon of {seen!r}")
    names, timed = list(key), _timed(context, records)
    parts = _by_key(timed, names, lambda rows: last_seen(rows, names))
    before = context.lookback(seen).select(*parts.columns)
    columns = list(records.columns)

    def first(own: pa.Table, earlier: pa.Table) -> pa.Table:
        return first_of(own, earlier, names, horizon).select(columns)

    return _with_earlier(timed, before, names, first), parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """The results of windows or sessions: those that this interval closes, its partial rows, late and outside records.

    `late`: for windows, the partial rows of windows that were closed before (corrections); for sessions, the late
    records. `outside`: records whose event time is missing or too far ahead.
    """

    closed: DataFrame
    partials: DataFrame
    late: DataFrame
    outside: DataFrame


def windowed(
    context: Context,
    records: DataFrame,
    windows: Windows,
    *,
    key: Sequence[str],
    time: str,
    aggregates: Aggregates,
    partials: str,
) -> Windowed:
    """Return the windows that this interval closes, by event time. See `tallystick.stateful.windows`.

    `partials` is the name of the table of the partial rows (`window_start`, the key, the aggregates).
    Raises InvalidPipeline if the lookback is shorter than `windows.back`, or if `partials` is not one of its tables.
    """
    _require_back(context, windows.back, f"windows in {partials!r}")
    names, timed = list(key), _timed(context, records)

    def split(rows: pa.Table) -> Partials:
        return window_partials(rows, windows, names, time, aggregates)

    own = _by_key(timed, names, lambda rows: split(rows).on_time)
    span = {"start": context.start, "end": context.end}

    def close(rows: pa.Table) -> pa.Table:
        return closed_windows(rows, windows, names, aggregates, **span)

    return Windowed(
        closed=_by_key(_union(own, context.lookback(partials)), names, close),
        partials=own,
        late=_by_key(timed, names, lambda rows: split(rows).late),
        outside=_by_key(timed, names, lambda rows: split(rows).outside),
    )


def sessioned(
    context: Context,
    records: DataFrame,
    sessions: Sessions,
    *,
    key: Sequence[str],
    time: str,
    aggregates: Aggregates,
    partials: str,
) -> Windowed:
    """Return the sessions that this interval closes, by event time. See `tallystick.stateful.sessions`.

    `partials` is the name of the table of the partial rows (the key, `session_start`, `session_end`, the aggregates).
    Raises InvalidPipeline if the lookback is shorter than `sessions.back`, or if `partials` is not one of its tables.
    """
    _require_back(context, sessions.back, f"sessions in {partials!r}")
    names, timed = list(key), _timed(context, records)

    def split(rows: pa.Table) -> Partials:
        return session_partials(rows, sessions, names, time, aggregates)

    own = _by_key(timed, names, lambda rows: split(rows).on_time)
    span = {"start": context.start, "end": context.end}

    def close(rows: pa.Table) -> pa.Table:
        return closed_sessions(rows, sessions, names, aggregates, **span)

    return Windowed(
        closed=_by_key(_union(own, context.lookback(partials)), names, close),
        partials=own,
        late=_by_key(timed, names, lambda rows: split(rows).late),
        outside=_by_key(timed, names, lambda rows: split(rows).outside),
    )


def running(
    context: Context,
    records: DataFrame,
    *,
    key: Sequence[str],
    aggregates: Aggregates,
    partials: str,
) -> tuple[DataFrame, DataFrame]:
    """Return the values from the beginning of the log to this interval's end, one row per key, and the partial rows.

    `partials` is the name of the table of the partial rows (the key, the aggregates). Its lookback has no limit
    (`Lookback(back=None)`), because partial rows have no time by which earlier ones could be left out.
    Raises InvalidPipeline if the lookback has a limit, or if `partials` is not one of its tables.
    """
    if context.back is not None:
        raise InvalidPipeline(
            f"a running value of {partials!r}: expected a lookback without limit, found back={context.back}.",
            hint="declare Lookback(..., back=None, uncommitted='stale').",
        )
    names = list(key)
    own = _by_key(records, names, lambda rows: partial(rows, names, aggregates))
    whole = _union(own, context.lookback(partials))
    return _by_key(whole, names, lambda rows: merged(rows, names, aggregates)), own


# ---------------------------------------------------------------- functions on Arrow tables, run on Spark


def _require_back(context: Context, needed: timedelta, what: str) -> None:
    if context.back is not None and context.back < needed:
        raise InvalidPipeline(
            f"{what}: expected a lookback of at least {needed}, found {context.back}.",
            hint=f"declare Lookback(..., back={needed!r}) or more.",
        )


def _timed(context: Context, records: DataFrame) -> DataFrame:
    """Return the records. Raises InvalidPipeline if they have no log time column."""
    if LOG_TIME not in records.columns:
        raise InvalidPipeline(
            f"the records of {context.start} lack the column {LOG_TIME}, the log time.",
            hint="declare Pipeline(lookback=...), and keep that column in the records that this function gets.",
        )
    return records


def _union(own: DataFrame, earlier: DataFrame) -> DataFrame:
    """Return the partial rows of this interval and of earlier time, with the columns and types of this interval's."""
    types = {f.name: f.dataType for f in own.schema.fields}
    return own.unionByName(earlier.select(*[F.col(n).cast(t).alias(n) for n, t in types.items()]))


def _by_key(frame: DataFrame, key: list[str], function: OnTable) -> DataFrame:
    """Apply a function to tables. Each table has all rows of each of its keys."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    result = from_arrow_schema(function(schema.empty_table()).schema)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [batch for batch in batches if len(batch)]
        if found:
            rows = pa.Table.from_batches(found).cast(schema)
            yield from function(rows).combine_chunks().to_batches()

    return frame.repartition(*key).mapInArrow(task, result)


def _with_earlier(
    own: DataFrame,
    earlier: DataFrame,
    key: list[str],
    function: Callable[[pa.Table, pa.Table], pa.Table],
) -> DataFrame:
    """Apply a function to this interval's rows and the earlier rows. Each call has all rows of its keys."""
    mine, others = list(own.columns), list(earlier.columns)
    both = own.withColumn(_OWN, F.lit(True)).unionByName(
        earlier.withColumn(_OWN, F.lit(False)), allowMissingColumns=True
    )

    def split(rows: pa.Table) -> pa.Table:
        owned = rows[_OWN]
        return function(
            rows.filter(owned).select(mine),
            rows.filter(pc.invert(owned)).select(others),
        )

    return _by_key(both, key, split)


__all__ = ["LOG_TIME", "Windowed", "deduplicated", "running", "sessioned", "windowed"]
