"""Finds the gaps whose records topics may drop soon, for the log of a plan task. It reads few pages of the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from tallystick.format.interval import Interval
from tallystick.kafka.wire import TopicRetention
from tallystick.lake import Lake, Snapshot
from tallystick.operations.kafka_log import PartitionView
from tallystick.operations.retention_guard import (
    KeptTopic,
    SpanOutlook,
    endangered,
    left_min,
    outlooks,
)
from tallystick.operations.run_request import EPOCH
from tallystick.operations.status.gaps import trigger_command
from tallystick.operations.status.uncommitted import UncommittedSpan, between
from tallystick.protocol import adoption
from tallystick.protocol.planning import gaps, parts
from tallystick.runtime import whole_ms

MOMENT = timedelta(milliseconds=1)


class KeptLog(Protocol):
    """A topic as a plan task has described it: its partitions, and what it keeps if the broker returned that."""

    @property
    def partitions(self) -> Sequence[PartitionView]:
        """The partitions."""
        ...

    @property
    def kept(self) -> TopicRetention | None:
        """What the topic keeps."""
        ...


def gaps_at_risk(
    lake: Lake, described: Mapping[str, KeptLog], *, dag: str
) -> tuple[SpanOutlook, ...]:
    """Return the gaps of which a topic may soon drop the first record that it still has, the least time left first.

    `described`: by Kafka's name of the topic. `dag`: the DAG whose trigger fills a gap. No request is sent to Kafka. Gaps
    that end before the oldest records that a topic must keep are left out: `tally status` has them. Raises the errors of
    the lake.
    """
    now = lake.runtime.now()
    kept = {name: found for name, topic in described.items() if (found := _kept(topic)) is not None}
    lengths = [topic.kept for topic in kept.values() if topic.kept is not None]
    if not lengths:
        return ()
    oldest = now - max(lengths)
    newest = max(now - length + left_min(length) for length in lengths)
    if newest <= EPOCH:
        return ()
    window = Interval(start=whole_ms(max(oldest, EPOCH)), end=whole_ms(newest + MOMENT))

    def from_snapshot(snapshot: Snapshot) -> tuple[SpanOutlook, ...]:
        spans = gaps_in(snapshot, window, dag=dag)
        topics = {snapshot.root.open_topic(name): topic for name, topic in kept.items()}
        return tuple(o for o in endangered(outlooks(spans, topics, now=now)) if not o.all_gone)

    return lake.read(from_snapshot)


def _kept(topic: KeptLog) -> KeptTopic | None:
    if topic.kept is None or topic.kept.kept_ms is None:
        return None
    return KeptTopic(
        kept=timedelta(milliseconds=topic.kept.kept_ms),
        kept_bytes=topic.kept.kept_bytes,
        starts=tuple(partition.log_start for partition in topic.partitions),
    )


def gaps_in(snapshot: Snapshot, window: Interval, *, dag: str) -> tuple[UncommittedSpan, ...]:
    """Return the gaps that begin or end in `window`, from the boundary before it to the one after it.

    Each has the command that runs exactly this gap. Only pages near the window are loaded.
    """
    ledger = snapshot.ledger(window.start, window.end)
    known = {boundary.at: boundary for boundary in ledger.boundaries}
    start = _nearest(known, window.start, before=True)
    end = _nearest(known, window.end, before=False)
    if start is None or end is None or start >= end:
        return ()
    covered = [e.interval for e in ledger.entries if e.interval.start < end]
    topics = snapshot.root.topics
    return tuple(
        between(topics, known[part.start], known[part.end], command=trigger_command(dag, part))
        for gap in gaps(Interval(start=start, end=end), [i for i in covered if i.end > start])
        for part in parts(gap, adoption.cuts(topics))
        if part.start in known and part.end in known
    )


def _nearest(known: Mapping[datetime, object], at: datetime, *, before: bool) -> datetime | None:
    """Return the nearest boundary on one side of an instant; if there is none, the nearest one on the other side."""
    earlier = max((b for b in known if b <= at), default=None)
    later = min((b for b in known if b >= at), default=None)
    return (earlier or later) if before else (later or earlier)
