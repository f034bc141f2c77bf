"""How far a job looks back: the earlier intervals whose rows it reads beside its own records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

from tallystick.errors import listed
from tallystick.format.canonical import Fields, text
from tallystick.pipeline.columns import refuse, several
from tallystick.pipeline.tables import DEAD_LETTERS

Uncommitted = Literal["kafka", "stale"]
UNCOMMITTED: tuple[Uncommitted, ...] = get_args(Uncommitted)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookback:
    """The tables whose rows of [start - back, start) a job reads beside its interval's records.

    Their rows must be partial: made of their own interval's records alone, never of what was looked back at. `back` None:
    everything earlier. `uncommitted`: what stands for earlier time that is not committed. `kafka`: its records are read
    and go through the job; `stale`: nothing, and the interval is stale as soon as that time is committed.
    """

    tables: Sequence[str]
    back: timedelta | None
    uncommitted: Uncommitted = "kafka"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", several(self.tables, "lookback: tables"))
        if not self.tables or len(set(self.tables)) != len(self.tables):
            raise refuse(
                f"lookback: tables are {listed(self.tables)}.", "name one at least, each once."
            )
        if self.uncommitted not in UNCOMMITTED:
            raise refuse(
                f"lookback: uncommitted={self.uncommitted!r} is not allowed.",
                f"use one of {', '.join(UNCOMMITTED)}.",
            )
        if self.back is not None and (self.back < _MS or self.back % _MS):
            raise refuse(
                f"lookback: back={self.back} is not allowed.",
                "use whole milliseconds, one at least.",
            )
        if self.back is None and self.uncommitted == "kafka":
            raise refuse(
                "lookback: back=None with uncommitted='kafka' would read a topic from its beginning for each interval "
                "that runs out of order.",
                "use uncommitted='stale', or say how far it looks back.",
            )

    def to_json(self) -> dict[str, Any]:
        """The form in a plan's spec."""
        return {
            "tables": list(self.tables),
            "back_ms": None if self.back is None else self.back // _MS,
            "uncommitted": self.uncommitted,
        }


def parse_lookback(f: Fields) -> Lookback:
    """Read the form in a plan's spec; raises Corrupt or InvalidPipeline."""
    tables, back_ms = f.take_list("tables", text), f.take_or_none("back_ms", int)
    uncommitted: Any = f.take("uncommitted", str)
    f.done()
    back = None if back_ms is None else back_ms * _MS
    return Lookback(tables=tables, back=back, uncommitted=uncommitted)


def check_lookback(lookback: Lookback | None, tables: Collection[str]) -> None:
    """Refuse a table that is not declared, and tallystick's own; raises InvalidPipeline."""
    known = [name for name in tables if name != DEAD_LETTERS]
    for name in lookback.tables if lookback is not None else ():
        if name not in known:
            raise refuse(
                f"the job looks back at {name!r}, which is no table of the pipeline.",
                f"name one of {listed(sorted(known))}.",
            )


def lookback_spec(lookback: Lookback | None) -> Mapping[str, Any]:
    """The part of a declaration that decides rows: nothing where no job looks back."""
    return {} if lookback is None else {"lookback": lookback.to_json()}
