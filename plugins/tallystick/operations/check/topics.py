"""The findings on the topics of a pipeline: are they there, what they hold, and what retention deletes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Protocol

from tallystick.errors import TallystickError
from tallystick.kafka.planning import TopicState
from tallystick.operations.check.finding import Checked, not_checked, of_error, ok, warning

TOPIC, RETENTION = "topic", "retention"


class TopicsLog(Protocol):
    """What is asked of Kafka; `tallystick.kafka.planning.LogPlanner` answers it."""

    def describe(self, topics: list[str]) -> dict[str, TopicState]:
        """Return the identity and the extent of each topic."""
        ...

    def retention_ms(self, topic: str) -> int | None:
        """Return how long the topic keeps records, None without a limit."""
        ...


def topic_findings(
    log: TopicsLog, topic: str, *, first: datetime | None, now: datetime, found: list[TopicState]
) -> Iterator[Checked]:
    """Yield the findings on one topic, and add its state to `found`. `first`: where the pipeline begins."""
    try:
        state = log.describe([topic])[topic]
    except TallystickError as error:
        yield of_error(TOPIC, error)
        return
    found.append(state)
    kept = sum(max(0, p.high_watermark - p.log_start) for p in state.partitions)
    count = len(state.partitions)
    text = f"{topic}: {count} {'partition' if count == 1 else 'partitions'}, {kept:,} offsets"
    if kept:
        yield ok(TOPIC, text)
    else:
        yield warning(TOPIC, f"{text}: it has no records yet", "produce records, then check again.")
    try:
        yield _retention(log, state, first, now)
    except TallystickError as error:
        yield not_checked(RETENTION, f"{topic}: {error.message}")


def _retention(log: TopicsLog, state: TopicState, first: datetime | None, now: datetime) -> Checked:
    kept_ms = log.retention_ms(state.name)
    if kept_ms is None:
        return ok(RETENTION, f"{state.name}: no record is deleted by its age")
    kept = timedelta(milliseconds=kept_ms)
    text = f"{state.name}: retention.ms={kept_ms}, which is {_length(kept)}"
    begun = any(p.log_start > 0 for p in state.partitions)
    if first is None or kept > now - datetime.min.replace(tzinfo=now.tzinfo):
        return ok(RETENTION, text)
    cut = now - kept
    if first >= cut:
        return ok(RETENTION, f"{text}; the first interval begins at {first:%Y-%m-%d %H:%M}")
    already = "; the topic has deleted records already" if begun else ""
    return warning(
        RETENTION,
        f"{text}: records before {cut:%Y-%m-%d %H:%M} are deleted, or will be soon; the first interval begins at "
        f"{first:%Y-%m-%d %H:%M}{already}",
        "raise retention.ms until all intervals are committed, or set a later start_date. A run of an interval whose "
        "records are gone is refused.",
    )


def _length(kept: timedelta) -> str:
    days, rest = divmod(int(kept.total_seconds()), 86_400)
    return f"{days} d" if days and not rest else f"{kept.total_seconds() / 3600:g} h"
