"""Is it still the same cluster, the same topic, the same log? Asked before, while and after reading."""

from __future__ import annotations

from tallystick.errors import IdentityChanged
from tallystick.format.offsets import EPOCH_UNKNOWN, Position
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.wire import EpochEnd


def require_cluster(client: KafkaClient, cluster_id: str) -> None:
    """Raise IdentityChanged where the connection leads to another cluster."""
    found = client.cluster_id()
    if found != cluster_id:
        raise IdentityChanged(
            f"the connection leads to cluster {found} at {client.endpoint}, the ledger knows cluster {cluster_id}.",
            hint="point the connection at the cluster that was planned; offsets mean nothing on another one.",
        )


def diverged_message(place: str, position: Position, end: EpochEnd) -> str | None:
    """Say how the log no longer holds the record before `position`, or None where it does (KIP-320).

    The leader names the largest epoch up to the asked one, and the offset after its last record. The record before the
    position is still there where that is the same epoch and it ends at the position or later. Where retention has
    taken the whole epoch the leader answers with the log's start, which is no divergence.
    """
    if position.leader_epoch == EPOCH_UNKNOWN or position.offset == 0:
        return None
    if end.epoch == position.leader_epoch and end.end_offset >= position.offset:
        return None
    return (
        f"{place} was truncated and written anew: the record before offset {position.offset} was of leader epoch "
        f"{position.leader_epoch}, the leader now says that epoch {end.epoch} ends at {end.end_offset}."
    )
