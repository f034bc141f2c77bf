"""What a plan makes of topics that were closed when another incarnation was adopted: known ends, and losses by name."""

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
    """The topics whose split at `at` adoptions tell; the log is to be asked about all others.

    Before the ledger's first boundary a closed topic begins with the interval that is asked for, where its loss is
    accepted. Raises InvalidRequest where it has unread offsets on both sides, and nobody can say how many on each.
    """
    found: dict[str, tuple[Position, ...]] = {}
    for name in topics:
        positions = adoption.settled(ledger, topics, name, at)
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
            f"was adopted: which of them come after {keys.instant(at)} can no longer be looked up.",
            hint=f"begin at {end}; or run with accept_loss=true, which records them as lost before it.",
        )
    start = keys.instant(gap.start)
    return InvalidRequest(
        f"topic {gap.name} has unread offsets between {start} and {end}, and was closed when another incarnation was "
        f"adopted: how they split at {keys.instant(at)} can no longer be looked up.",
        hint=f"take that gap as one interval, from {start} to {end}, with accept_loss=true.",
    )


def closed_topics(
    ledger: Ledger, grant: planning.Grant, topics: Mapping[str, RootTopic], *, accept_loss: bool
) -> Iterator[PlannedTopic]:
    """Yield the closed topics of which the granted interval has offsets: all of those are lost, none is read.

    Raises OutsideRetention where nobody gave them up: only the tail behind the last boundary went with the adoption.
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
                f"{grant.interval} lacks {lost} offsets of topic {name}, which is read no more: another incarnation was "
                "adopted. Nothing was changed.",
                hint="run with accept_loss=true, which records them as lost in the ledger (and with take_over=true, "
                "where another run holds it).",
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
