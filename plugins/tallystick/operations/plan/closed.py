"""Plans the topics that an adoption has closed: their ends are known, and their unread offsets are lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from tallystick.errors import InvalidRequest, OutsideRetention
from tallystick.format import keys
from tallystick.format.offsets import Position
from tallystick.format.plan import PlannedRange, PlannedTopic
from tallystick.format.root import RootTopic
from tallystick.protocol import adoption, planning
from tallystick.protocol.ledger import Ledger


def positions_without_lookup(
    ledger: Ledger, topics: Mapping[str, RootTopic], at: datetime, *, accept_loss: bool
) -> dict[str, tuple[Position, ...]]:
    """Return the positions at `at` of the topics that need no look-up in Kafka, because an adoption determines them.

    If a closed topic has unread offsets before the ledger's first boundary, and `accept_loss` is set, its position is its
    origin: all of them belong to the time after `at`. Raises InvalidRequest if a closed topic has unread offsets around
    `at` otherwise: how many are before and after it cannot be known.
    """
    found: dict[str, tuple[Position, ...]] = {}
    for name in topics:
        positions = adoption.positions_without_log(ledger, topics, name, at)
        if isinstance(positions, adoption.Unsplit):
            if positions.start is not None or not accept_loss:
                raise _unsplit(positions, at)
            positions = tuple(Position(offset=origin) for origin in topics[name].origins)
        if positions is not None:
            found[name] = positions
    return found


def _unsplit(gap: adoption.Unsplit, at: datetime) -> InvalidRequest:
    end = keys.instant(gap.end)
    if gap.start is None:
        return InvalidRequest(
            f"topic {gap.name} has offsets before {end} that were never read, and was closed when another incarnation "
            f"was adopted: the log can no longer show which of them come after {keys.instant(at)}.",
            hint=f"begin at {end}; or run with accept_loss=true, which records them as lost before it.",
        )
    start = keys.instant(gap.start)
    return InvalidRequest(
        f"topic {gap.name} has unread offsets between {start} and {end}, and was closed when another incarnation was "
        f"adopted: the log can no longer show how they split at {keys.instant(at)}.",
        hint=f"request that gap as one interval, from {start} to {end}, with accept_loss=true.",
    )


def closed_topics(
    ledger: Ledger, grant: planning.Grant, topics: Mapping[str, RootTopic], *, accept_loss: bool
) -> Iterator[PlannedTopic]:
    """Yield the closed topics that have offsets in the granted interval. All these offsets are lost, none is read.

    Raises OutsideRetention if the interval begins before the adoption and `accept_loss` is not set. The adoption itself
    accepted only the loss of the offsets after the last boundary.
    """
    start, end = (ledger.boundary(at) for at in (grant.interval.start, grant.interval.end))
    assert start is not None
    assert end is not None
    for name, topic in topics.items():
        if topic.closed is None:
            continue
        lost = adoption.offsets_between(start, end, name, topic)
        if not lost:
            continue
        origins = {name: topic.origins}
        pairs = [
            (start.position(name, p, origins), end.position(name, p, origins))
            for p in range(len(topic.origins))
        ]
        if grant.interval.start < topic.closed.since and not accept_loss:
            raise OutsideRetention(
                f"{grant.interval} lacks {lost} offsets of topic {name}, which is no longer read: another incarnation "
                "was adopted. Nothing was changed.",
                hint="run with accept_loss=true, which records them as lost in the ledger (and with take_over=true if "
                "another run holds it).",
            )
        yield PlannedTopic(
            name=name,
            topic_id=topic.topic_id,
            cluster_id=topic.cluster_id,
            compacted=False,
            ranges=tuple(
                PlannedRange(
                    start=low.offset,
                    end=high.offset,
                    start_epoch=low.leader_epoch,
                    end_epoch=high.leader_epoch,
                    readable_from=high.offset,
                )
                for low, high in pairs
            ),
        )
