"""The instants at which the log is split: the missing ones, and the positions of a new one between its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from tallystick.format.offsets import Position
from tallystick.format.page import Boundary
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.planning import Grant


def missing_boundaries(ledger: Ledger, grants: Iterable[Grant]) -> tuple[datetime, ...]:
    """Return the instants at which the grants need a boundary and none is set yet, in order."""
    instants = {at for g in grants for at in (g.interval.start, g.interval.end)}
    return tuple(sorted(at for at in instants if ledger.boundary(at) is None))


def floors(
    ledger: Ledger, at: datetime, origins: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the offsets at which the search for B(at) may begin: the left neighbour's, or the origins if it has none."""
    left, _ = ledger.neighbours(at)
    return {
        topic: tuple(
            starts[p] if left is None else left.position(topic, p, origins).offset
            for p in range(len(starts))
        )
        for topic, starts in origins.items()
    }


def clamped(
    ledger: Ledger,
    at: datetime,
    found: Mapping[str, tuple[Position, ...]],
    origins: Mapping[str, tuple[int, ...]],
) -> Boundary:
    """Return the boundary at `at`: the positions found in the log, clamped between the neighbours in this same ledger.

    Adjacent intervals share a boundary, so intervals tile the log regardless of the order in which they run (I1, I2).
    """
    left, right = ledger.neighbours(at)
    positions: dict[str, tuple[Position, ...]] = {}
    for topic, offsets in found.items():
        row: list[Position] = []
        for partition, looked_up in enumerate(offsets):
            position = looked_up
            low = Position(offset=origins[topic][partition])
            if left is not None:
                low = left.position(topic, partition, origins)
            if position.offset < low.offset:
                position = low
            if right is not None:
                high = right.position(topic, partition, origins)
                if position.offset > high.offset:
                    position = high
            row.append(position)
        positions[topic] = tuple(row)
    return Boundary(at=at, positions=positions)
