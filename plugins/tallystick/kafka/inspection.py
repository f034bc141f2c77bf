"""Reads what `tally doctor` needs of a cluster and its topics: extents, rights, settings, records from the future."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from tallystick.errors import KafkaUnavailable
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.connection import RetriableError
from tallystick.kafka.planning import RETENTION_KEYS, retention_of
from tallystick.kafka.wire import (
    EARLIEST,
    LATEST,
    FetchOrder,
    TopicLayout,
    TopicRetention,
)

T = TypeVar("T")
BROKER_MIN: Final = (3, 1)
"""The first version of brokers that has topic ids in fetches, which a reader needs."""
_TRIES: Final = 3
_UNCLEAN, _INSYNC, _STAMP = (
    "unclean.leader.election.enable",
    "min.insync.replicas",
    "message.timestamp.type",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic that matter to a replay. None: the broker did not return the setting."""

    kept: TopicRetention
    unclean_election: bool | None
    insync_min: int | None
    timestamp_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExtent:
    """A topic as it is now: its layout, and the first and the next offset of each partition."""

    layout: TopicLayout
    starts: tuple[int, ...]
    ends: tuple[int, ...]


def topic_extent(client: KafkaClient, topic: str) -> TopicExtent:
    """Return where the partitions of a topic begin and end. Raises IdentityChanged if there is no such topic."""
    layout = client.layout(topic)
    every = range(len(layout.leaders))
    starts = client.list_offsets(layout, dict.fromkeys(every, EARLIEST), committed=False)
    ends = client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=False)
    return TopicExtent(
        layout=layout,
        starts=tuple(starts[p] for p in every),
        ends=tuple(ends[p] for p in every),
    )


def check_may_read(client: KafkaClient, extent: TopicExtent) -> None:
    """Fetch from the end of the first partition, where nothing is. Raises SettingsError if that is not allowed."""
    order = FetchOrder(
        layout=extent.layout,
        partition=0,
        offset=extent.ends[0],
        bytes_max=1,
        wait_ms=0,
        committed=True,
    )

    def fetch() -> None:
        fetched = client.fetch(order).result()
        client.check_fetched(fetched.error_code, f"topic {extent.layout.name!r} partition 0")

    _tried(client, f"an answer to a fetch of topic {extent.layout.name!r}", fetch)


def topic_settings(client: KafkaClient, topic: str) -> TopicSettings:
    """Return the settings of a topic, in one request. Raises SettingsError without the right DESCRIBE_CONFIGS."""
    found = client.topic_configs(topic, *RETENTION_KEYS, optional=(_UNCLEAN, _INSYNC, _STAMP))
    insync = found.get(_INSYNC, "")
    return TopicSettings(
        kept=retention_of(found),
        unclean_election=_switch(found, _UNCLEAN),
        insync_min=int(insync) if insync.isdigit() else None,
        timestamp_type=found.get(_STAMP),
    )


def partitions_with_future(client: KafkaClient, layout: TopicLayout, after_ms: int) -> int:
    """Return how many partitions have a record with a timestamp at or after `after_ms`, which is in the future."""
    every = dict.fromkeys(range(len(layout.leaders)), after_ms)
    found = client.list_offsets(layout, every, committed=False)
    return sum(offset >= 0 for offset in found.values())


def _switch(found: Mapping[str, str], key: str) -> bool | None:
    return None if key not in found else found[key].lower() == "true"


def _tried(client: KafkaClient, what: str, call: Callable[[], T]) -> T:
    """Call at most three times while a retry may help. Raises KafkaUnavailable after that, and what the client raises."""
    why: RetriableError | KafkaUnavailable
    for attempt in range(_TRIES):
        try:
            return call()
        except RetriableError as error:
            why = error
            client.pause(attempt)
    raise client.unavailable(what, why)
