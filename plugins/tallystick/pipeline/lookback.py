"""The lookback of a pipeline: the earlier intervals whose rows its job reads in addition to its own records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from tallystick.errors import listed
from tallystick.format.codec import StoredValue
from tallystick.format.types import fixed_bytes
from tallystick.pipeline.columns import Column, refuse, several
from tallystick.pipeline.tables import DEAD_LETTERS

Uncommitted = Literal["kafka", "stale"]
UNCOMMITTED: tuple[Uncommitted, ...] = get_args(Uncommitted)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookback(StoredValue):
    """The tables whose rows of [start - back, start) a job reads in addition to its interval's records.

    Their rows must be partial: made only of their own interval's records, never of rows that a lookback read. `back`:
    None means all earlier time. `uncommitted`: the treatment of earlier time that is not committed. `kafka`: its
    records are read from Kafka and go through the job. `stale`: it is left out, and the interval becomes stale when
    that time is committed.
    """

    tables: Sequence[str]
    back: timedelta | None
    uncommitted: Uncommitted = "kafka"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", several(self.tables, "lookback: tables"))
        if not self.tables or len(set(self.tables)) != len(self.tables):
            raise refuse(
                f"lookback: expected at least one table, each once, found {listed(self.tables)}.",
                "name each table once.",
            )
        if self.uncommitted not in UNCOMMITTED:
            raise refuse(
                f"lookback: unknown uncommitted={self.uncommitted!r}.",
                f"use one of {', '.join(UNCOMMITTED)}.",
            )
        if self.back is not None and (self.back < _MS or self.back % _MS):
            raise refuse(
                f"lookback: expected back of at least 1 ms in whole milliseconds, found {self.back}.",
                "use whole milliseconds, at least one.",
            )
        if self.back is None and self.uncommitted == "kafka":
            raise refuse(
                "lookback: back=None with uncommitted='kafka' would read a topic from its beginning for each interval "
                "that runs out of order.",
                "use uncommitted='stale', or set back to a limit.",
            )


def check_lookback(lookback: Lookback | None, tables: Mapping[str, Sequence[Column]]) -> None:
    """Refuse a table that is not declared, one with nested columns, and `dead_letters`; raises InvalidPipeline."""
    known = [name for name in tables if name != DEAD_LETTERS]
    for name in lookback.tables if lookback is not None else ():
        if name not in known:
            raise refuse(
                f"lookback: expected a table of the pipeline, found {name!r}.",
                f"use one of {listed(sorted(known))}.",
            )
        # Files of earlier columns are cast column by column, which does not find the parts of a nested one by their ids,
        # and Spark has other types for these three.
        other = next(
            (
                c
                for c in tables[name]
                if c.fields or c.type in ("uuid", "time") or fixed_bytes(c.type)
            ),
            None,
        )
        if other is not None:
            raise refuse(
                f"lookback: expected a table without nested, uuid, time and fixed columns, found {name!r} with "
                f"{other.name!r} of type {other.text}.",
                "declare another table for the lookback, with flat columns of what the job needs of earlier rows.",
            )
