"""The two Assets of a pipeline, for DAGs that are scheduled by its commits, and what their events contain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.sdk import Asset

from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.pipeline import Pipeline

GROUP = "tallystick"
_PER_INTERVAL = "&per=interval"


def asset_of(pipeline: Pipeline) -> Asset:
    """Return the Asset that a commit updates; schedule consumers by it.

    The extra of its events contains `version`, `interval` and `covered`. If a commit task is cleared, it emits the event
    again: a consumer skips versions that it has seen.
    """
    # If two Assets share only the name or only the URI, Airflow keeps one of them active and fails the tasks of the other
    # before they run. The URI therefore contains the pipeline: if a pipeline has the lake of another one by mistake, it
    # must not stop the commits of that pipeline.
    return Asset(uri=_uri(pipeline), group=GROUP)


def interval_asset_of(pipeline: Pipeline) -> Asset:
    """Return the Asset with one event per committed interval; schedule DAGs that run once per interval by it.

    The partition key of an event is the start of the interval in UTC in the form of Airflow's own partition timetables,
    e.g. `2013-01-04T06:00:00`, so that Airflow's mappers read it. There is one event when the interval is committed, and
    one each time when it is replaced. `committed_intervals` reads them in a run of the consumer.
    """
    return Asset(uri=f"{_uri(pipeline)}{_PER_INTERVAL}", group=GROUP)


def _uri(pipeline: Pipeline) -> str:
    return f"{pipeline.warehouse}?pipeline={pipeline.name}"


def partition_key(start: datetime) -> str:
    """Return the partition key of the interval that begins at `start`.

    The intervals of a ledger do not overlap, so the start identifies one. If it is not at a whole second, which only
    the end of a run by hand can be, the key has its milliseconds, too.
    """
    return keys.instant(start).removesuffix("Z").removesuffix(".000")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalCommitted:
    """A commit of one interval: `generation` increases each time when it is replaced, `version` is the lake's."""

    pipeline: str
    interval: Interval
    generation: int
    version: int


def committed_intervals(context: Mapping[str, Any]) -> tuple[IntervalCommitted, ...]:
    """Return the commits that caused this run of a consumer: of each pipeline and interval the newest generation.

    `context`: the task's context. The events are those of `interval_asset_of`; events of other Assets are not read.
    """
    newest: dict[tuple[str, Interval], IntervalCommitted] = {}
    for events in context["triggering_asset_events"].values():
        for event in events:
            found = _committed(event.partition_key, event.extra or {})
            if found is None:
                continue
            before = newest.get((found.pipeline, found.interval))
            if before is None or before.generation < found.generation:
                newest[found.pipeline, found.interval] = found
    return tuple(newest[key] for key in sorted(newest))


def _committed(key: str | None, extra: Mapping[str, Any]) -> IntervalCommitted | None:
    described = extra.get("intervals", {}).get(key) if key else None
    if described is None:
        return None
    start, end = described["interval"]
    return IntervalCommitted(
        pipeline=extra["pipeline"],
        interval=Interval(start=keys.parse_instant(start), end=keys.parse_instant(end)),
        generation=described["generation"],
        version=extra["version"],
    )
