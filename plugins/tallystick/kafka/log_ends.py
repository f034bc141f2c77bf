"""Reads where the logs of topics begin and end, and when the first record after an offset was produced: for the lag.

It answers questions of people and monitoring. Plans use `tallystick.kafka.planning`, which proves what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import SettingsError
from tallystick.kafka.batches import Scratch, each_record, walk
from tallystick.kafka.client import KafkaClient, PendingFetch
from tallystick.kafka.connection import RetriableError
from tallystick.kafka.planning import RETENTION_KEYS, retention_of
from tallystick.kafka.wire import (
    EARLIEST,
    LATEST,
    FetchOrder,
    PartitionEnds,
    TopicEnds,
    TopicLayout,
    TopicRetention,
)


def read_topic_ends(
    settings: KafkaSettings, offsets: Mapping[str, Sequence[int]]
) -> Mapping[str, TopicEnds]:
    """Return the ends of each topic, and the time of the first record at or after each partition's offset.

    `offsets`: by topic, one offset per partition. For a partition without one, it is the beginning of its log. Raises
    IdentityChanged if a topic does not exist, and the errors of the client.
    """
    with KafkaClient(settings) as client:
        return {topic: _topic_ends(client, topic, offsets[topic]) for topic in offsets}


def _topic_ends(client: KafkaClient, topic: str, offsets: Sequence[int]) -> TopicEnds:
    layout = client.layout(topic)
    every = range(len(layout.leaders))
    starts = client.list_offsets(layout, dict.fromkeys(every, EARLIEST), committed=False)
    ends = client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=False)
    wanted = {p: max(starts[p], offsets[p] if p < len(offsets) else 0) for p in every}
    # All requests are sent before the first answer is read.
    sent = {p: _send(client, layout, p, at) for p, at in wanted.items() if at < ends[p]}
    times = {p: _timestamp(pending, layout, p, wanted[p]) for p, pending in sent.items()}
    kept = _retention(client, topic)
    return TopicEnds(
        topic_id=layout.topic_id,
        cluster_id=client.cluster_id(),
        partitions=tuple(
            PartitionEnds(start=starts[p], end=ends[p], next_at_ms=times.get(p)) for p in every
        ),
        kept_ms=kept.kept_ms,
        kept_bytes=kept.kept_bytes,
    )


def _retention(client: KafkaClient, topic: str) -> TopicRetention:
    try:
        return retention_of(client.topic_configs(topic, *RETENTION_KEYS))
    except SettingsError:  # a user for monitoring need not have DESCRIBE_CONFIGS
        return TopicRetention()


def _send(client: KafkaClient, layout: TopicLayout, partition: int, offset: int) -> PendingFetch:
    order = FetchOrder(
        layout=layout,
        partition=partition,
        offset=offset,
        bytes_max=1,  # KIP-74: the broker returns the first batch, regardless of its size
        wait_ms=0,
        committed=False,
    )
    return client.fetch(order)


def _timestamp(
    pending: PendingFetch, layout: TopicLayout, partition: int, offset: int
) -> int | None:
    try:
        fetched = pending.result()
    except RetriableError:
        return None
    if fetched.error_code:
        return None
    batch = next(walk(fetched.records, place=f"{layout.name}[{partition}]"), None)
    if batch is None:
        return None
    if batch.base_offset >= offset or batch.append_time:
        return batch.max_timestamp if batch.append_time else batch.base_timestamp
    records = Scratch().records(batch)
    return next((at for found, at, _ in each_record(batch, records) if found >= offset), None)
