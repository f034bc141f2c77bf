"""Checks that the cluster and the log are still the same; used before, during and after a read."""

from __future__ import annotations

from tallystick.errors import IdentityChanged
from tallystick.format.offsets import EPOCH_UNKNOWN, Position
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.wire import EpochEnd


def require_cluster(client: KafkaClient, cluster_id: str) -> None:
    """Raise IdentityChanged if the connection leads to another cluster."""
    found = client.cluster_id()
    if found != cluster_id:
        raise IdentityChanged(
            f"expected cluster {cluster_id} as in the ledger, found {found} at {client.endpoint}.",
            hint="set the connection to the planned cluster: offsets have no meaning on another one.",
        )


def diverged_message(place: str, position: Position, end: EpochEnd) -> str | None:
    """Return an error message if the log no longer holds the record before `position`, None if it does (KIP-320).

    `end` has the largest epoch up to the requested one, and the offset after its last record. The record before the
    position is still there if that is the same epoch and it ends at the position or later. If retention has deleted the
    whole epoch, the leader answers with the log's start, which is no divergence.
    """
    if position.leader_epoch == EPOCH_UNKNOWN or position.offset == 0:
        return None
    if end.epoch == position.leader_epoch and end.end_offset >= position.offset:
        return None
    return (
        f"{place} was truncated and written again: the record before offset {position.offset} was of leader epoch "
        f"{position.leader_epoch}, but the leader reports that epoch {end.epoch} ends at {end.end_offset}."
    )
