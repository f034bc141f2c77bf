"""Builds the requests of planning and reading to brokers, parses the answers, and retries if that may help."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

import kafka.errors as kerrors
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import IdentityChanged, KafkaUnavailable, LogDamaged, TallystickError
from tallystick.kafka.connection import Connection, RetriableError
from tallystick.kafka.wire import (
    NO_EPOCH,
    AbortedTransaction,
    EpochEnd,
    Fetched,
    FetchOrder,
    Leader,
    TopicLayout,
    topic_id_text,
    topic_id_uuid,
)

T = TypeVar("T")

_CONSUMER: Final = -1
_TOPIC_RESOURCE: Final = 2
_MISSING_S: Final = 2.0
_THROTTLED_S_MAX: Final = 3_600.0
# Topic ids exist in Fetch since v13 (KIP-516, Kafka 3.1), in Metadata since v10.
_FETCH_VERSION_MIN: Final = 13
_METADATA_VERSION_MIN: Final = 10
_LIST_OFFSETS_VERSION_MIN: Final = 4
_EPOCH_VERSION_MIN: Final = 3


class PendingFetch:
    """A fetch in progress; `result` waits for its answer."""

    def __init__(self, client: KafkaClient, sent: Any, order: FetchOrder) -> None:
        self._client = client
        self._sent = sent  # the library's future, or the RetriableError if it could not be sent
        self.order = order

    def result(self) -> Fetched:
        """Wait for the answer. Raises RetriableError if a retry may help, otherwise a TallystickError."""
        return self._client._finish(self)


class KafkaClient:
    """A client of one cluster; use it in a `with` statement. Failures are TallystickErrors with endpoint and setting.

    Calls other than `fetch` retry by themselves, for at most `patience_s` (the settings' request timeout) on `clock`. If
    a broker throttles (KIP-219), every call repeats the request when the throttle time is over. `silence_s` limits how
    long callers of `fetch` accept empty answers (`kafka.silence`).
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._connection = Connection(settings)
        self._timeout_ms = settings.request_timeout_ms
        self.patience_s = settings.request_timeout_ms / 1000
        self.silence_s = settings.empty_fetch_timeout_ms / 1000
        self.endpoint = settings.endpoint
        self._layouts: dict[str, TopicLayout] = {}

    def __enter__(self) -> Self:
        self._connection.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Safe to repeat: closed connections stay closed."""
        self._connection.close()

    def clock(self) -> float:
        """Return seconds on a clock that stops while a broker throttles, as a throttle is not a failure."""
        return time.monotonic() - self._connection.throttled_s

    def cluster_id(self) -> str:
        """Return the cluster's id, as reported by the first broker that answered."""
        return self._connection.cluster_id()

    def layout(self, topic: str, *, topic_id: str | None = None) -> TopicLayout:
        """Return the topic id and the leaders of a topic.

        Raises IdentityChanged if there is no such topic, or if it is not the incarnation `topic_id`.
        """
        layout = self._retrying(f"metadata of topic {topic!r}", lambda: self._layout(topic))
        if topic_id is not None and layout.topic_id != topic_id:
            raise IdentityChanged(
                f"topic {topic!r} was deleted and created again: expected id {topic_id}, found {layout.topic_id}.",
                hint="restore the old topic; or begin a new pipeline, with a warehouse of its own, for the new one. The "
                "old offsets are lost.",
            )
        self._layouts[topic] = layout
        return layout

    def last_layout(self, topic: str, *, topic_id: str) -> TopicLayout:
        """Return the layout of the last `layout` call for this incarnation of the topic, otherwise that of a new call.

        Its leaders may have changed, and the topic may be gone: a broker refuses a fetch of another topic id, or with
        another leader epoch than its own (KIP-320, KIP-516).
        """
        known = self._layouts.get(topic)
        if known is not None and known.topic_id == topic_id:
            return known
        return self.layout(topic, topic_id=topic_id)

    def list_offsets(
        self, layout: TopicLayout, at: Mapping[int, int], *, committed: bool
    ) -> dict[int, int]:
        """Return the offset per partition for a timestamp in milliseconds, LATEST or EARLIEST; -1 if there is none.

        If `committed`, LATEST is the last stable offset, otherwise the high watermark.
        """
        return self._requesting(
            "offsets", layout, lambda current: self._list_offsets(current, at, committed)
        )

    def epoch_ends(self, layout: TopicLayout, epochs: Mapping[int, int]) -> dict[int, EpochEnd]:
        """Return the end of the given epoch of each partition, as reported by its leader (KIP-320)."""
        return self._requesting(
            "leader epochs", layout, lambda current: self._epoch_ends(current, epochs)
        )

    def topic_config(self, topic: str, key: str) -> str:
        """Return one configuration value of a topic."""
        return self.topic_configs(topic, key)[key]

    def topic_configs(self, topic: str, *keys: str, optional: Sequence[str] = ()) -> dict[str, str]:
        """Return configuration values of a topic by their keys, in one request.

        A key of `optional` that the broker does not return is left out.
        """
        return self._retrying(
            f"configuration of topic {topic!r}", lambda: self._topic_configs(topic, keys, optional)
        )

    def replicas(self, topic: str) -> tuple[int, ...]:
        """Return the number of replicas of each partition. Raises IdentityChanged if there is no such topic."""
        found = self._retrying(f"metadata of topic {topic!r}", lambda: self._topic_metadata(topic))
        counts = {one.partition_index: len(one.replica_nodes) for one in found.partitions}
        return tuple(counts[index] for index in sorted(counts))

    def broker_version(self) -> tuple[int, ...]:
        """Return the version of the brokers as far as the versions of their requests show it, e.g. (4, 1)."""
        return self._connection.broker_version()

    def topics(self) -> tuple[str, ...]:
        """Return the names of the topics that this user may see, without Kafka's internal ones, sorted."""
        request = MetadataRequest(
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
            min_version=_METADATA_VERSION_MIN,
        )
        found = self._retrying("names of the topics", lambda: self._connection.call(request))
        return tuple(sorted(one.name for one in found.topics if not one.is_internal))

    def fetch(self, order: FetchOrder) -> PendingFetch:
        """Send a fetch without waiting for the answer.

        It is repeated only if the broker throttles; the caller retries after a failure.
        """
        requested = FetchRequest.FetchTopic(
            topic=order.layout.name,
            topic_id=topic_id_uuid(order.layout.topic_id),
            partitions=[
                FetchRequest.FetchTopic.FetchPartition(
                    partition=order.partition,
                    fetch_offset=order.offset,
                    current_leader_epoch=order.layout.leaders[order.partition].epoch,
                    last_fetched_epoch=NO_EPOCH,
                    log_start_offset=-1,
                    partition_max_bytes=order.bytes_max,
                )
            ],
        )
        request = FetchRequest(
            max_wait_ms=order.wait_ms,
            min_bytes=1,
            max_bytes=order.bytes_max,
            isolation_level=int(order.committed),
            session_id=0,
            session_epoch=-1,  # KIP-227: a full fetch without a session
            topics=[requested],
            forgotten_topics_data=[],
            rack_id=order.rack,
            min_version=_FETCH_VERSION_MIN,
        )
        try:
            sent = self._connection.send(request, self._reachable(order))
        except RetriableError as error:
            sent = error  # raised by `result`, like the failures after sending
        return PendingFetch(self, sent, order)

    def _reachable(self, order: FetchOrder) -> int:
        if order.replica is None:
            return order.layout.leaders[order.partition].node_id
        if not self._connection.knows_broker(order.replica):
            self._connection.refresh()  # the broker leads no requested partition, or joined after the bootstrap
        return order.replica

    def pause(self, attempt: int) -> None:
        """Wait before another attempt, longer after more attempts; the network loop runs meanwhile."""
        self._connection.pause(attempt)

    def unavailable(self, what: str, why: object) -> KafkaUnavailable:
        """Build the error for a broker that does not give `what`."""
        return self._connection.unavailable(what, why)

    def check_fetched(self, error_code: int, what: str) -> None:
        """Raise the RetriableError or TallystickError of an error code that the caller did not handle."""
        self._connection.check(error_code, what)

    def _topic_metadata(self, topic: str) -> Any:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
            min_version=_METADATA_VERSION_MIN,
        )
        answer = self._connection.call(request)
        (found,) = answer.topics
        if found.error_code == kerrors.UnknownTopicOrPartitionError.errno:
            raise _TopicMissingError(topic)
        self._connection.check(found.error_code, f"topic {topic!r}")
        return found

    def _layout(self, topic: str) -> TopicLayout:
        found = self._topic_metadata(topic)
        leaders: dict[int, Leader] = {}
        for one in found.partitions:
            if one.leader_id < 0:
                raise RetriableError(f"partition {one.partition_index} of {topic!r} has no leader")
            leaders[one.partition_index] = Leader(node_id=one.leader_id, epoch=one.leader_epoch)
        if sorted(leaders) != list(range(len(leaders))):
            raise RetriableError(f"the broker names partitions {sorted(leaders)} of {topic!r} only")
        if not all(self._connection.knows_broker(one.node_id) for one in leaders.values()):
            self._connection.refresh()  # a broker joined after the bootstrap
        ordered = tuple(leaders[index] for index in range(len(leaders)))
        return TopicLayout(name=topic, topic_id=topic_id_text(found.topic_id), leaders=ordered)

    def _list_offsets(
        self, layout: TopicLayout, at: Mapping[int, int], committed: bool
    ) -> dict[int, int]:
        kind = ListOffsetsRequest.ListOffsetsTopic
        found: dict[int, int] = {}
        for node_id, partitions in self._by_leader(layout, at).items():
            requested = [
                kind.ListOffsetsPartition(
                    partition_index=partition,
                    current_leader_epoch=layout.leaders[partition].epoch,
                    timestamp=at[partition],
                )
                for partition in partitions
            ]
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=int(committed),
                topics=[kind(name=layout.name, partitions=requested)],
                timeout_ms=self._timeout_ms,
                min_version=_LIST_OFFSETS_VERSION_MIN,
            )
            for one in self._connection.call(request, node_id).topics[0].partitions:
                self._connection.check(
                    one.error_code, f"topic {layout.name!r} partition {one.partition_index}"
                )
                found[one.partition_index] = one.offset
        return found

    def _epoch_ends(self, layout: TopicLayout, epochs: Mapping[int, int]) -> dict[int, EpochEnd]:
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        found: dict[int, EpochEnd] = {}
        for node_id, partitions in self._by_leader(layout, epochs).items():
            requested = [
                kind.OffsetForLeaderPartition(
                    partition=partition,
                    current_leader_epoch=layout.leaders[partition].epoch,
                    leader_epoch=epochs[partition],
                )
                for partition in partitions
            ]
            request = OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER,
                topics=[kind(topic=layout.name, partitions=requested)],
                min_version=_EPOCH_VERSION_MIN,
            )
            for one in self._connection.call(request, node_id).topics[0].partitions:
                self._connection.check(
                    one.error_code, f"topic {layout.name!r} partition {one.partition}"
                )
                found[one.partition] = EpochEnd(epoch=one.leader_epoch, end_offset=one.end_offset)
        return found

    def _topic_configs(
        self, topic: str, keys: Sequence[str], optional: Sequence[str]
    ) -> dict[str, str]:
        kind = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            resources=[
                kind(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=topic,
                    configuration_keys=[*keys, *optional],
                )
            ],
            include_synonyms=False,
            include_documentation=False,
        )
        (result,) = self._connection.call(request).results
        self._connection.check(result.error_code, f"the configuration of topic {topic!r}")
        found = {one.name: str(one.value) for one in result.configs}
        for key in keys:
            if key not in found:
                raise RetriableError(f"the broker did not return {key} of topic {topic!r}")
        return {key: found[key] for key in (*keys, *optional) if key in found}

    def _by_leader(
        self, layout: TopicLayout, partitions: Mapping[int, object]
    ) -> dict[int, list[int]]:
        grouped: dict[int, list[int]] = {}
        for partition in partitions:
            grouped.setdefault(layout.leaders[partition].node_id, []).append(partition)
        return grouped

    def _finish(self, pending: PendingFetch) -> Fetched:
        order = pending.order
        began = time.monotonic()
        while True:
            if isinstance(pending._sent, RetriableError):
                raise pending._sent
            answer = self._connection.wait(pending._sent)
            self._connection.check(answer.error_code, f"topic {order.layout.name!r}")
            if not _withheld(answer):
                break
            if time.monotonic() - began >= _THROTTLED_S_MAX:
                raise self._over_quota(order)
            pending = self.fetch(order)
        try:
            (topic,) = answer.responses
            (part,) = topic.partitions
        except ValueError:
            raise RetriableError("expected an answer with the one requested partition") from None
        if part.partition_index != order.partition:
            raise LogDamaged(
                f"topic {order.layout.name!r}: expected an answer for partition {order.partition}, found "
                f"{part.partition_index}.",
                hint="check what is between this process and the brokers (a proxy?).",
            )
        return Fetched(
            error_code=part.error_code,
            records=part.records or b"",
            log_start=part.log_start_offset,
            high_watermark=part.high_watermark,
            last_stable=part.last_stable_offset,
            aborted=tuple(
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in part.aborted_transactions or ()
            ),
            preferred=None if part.preferred_read_replica < 0 else part.preferred_read_replica,
        )

    def _requesting(self, what: str, layout: TopicLayout, send: Callable[[TopicLayout], T]) -> T:
        """Send requests to the leaders; before a retry, look up the current leaders."""
        current = layout

        def once() -> T:
            nonlocal current
            try:
                return send(current)
            except RetriableError:
                current = self.layout(layout.name, topic_id=layout.topic_id)
                raise

        return self._retrying(f"{what} of topic {layout.name!r}", once)

    def _retrying(self, what: str, send: Callable[[], T]) -> T:
        deadline = self.clock() + self.patience_s
        missing_deadline = self.clock() + min(_MISSING_S, self.patience_s)
        attempt = 0
        while True:
            try:
                return send()
            except _TopicMissingError as missing:
                # Not every broker has the metadata of a new topic yet.
                if self.clock() >= missing_deadline:
                    raise self._missing(missing.topic) from None
            except RetriableError as error:
                if self.clock() >= deadline:
                    raise self.unavailable(what, error) from error
            self.pause(attempt)
            attempt += 1

    def _over_quota(self, order: FetchOrder) -> KafkaUnavailable:
        return KafkaUnavailable(
            f"Kafka at {self.endpoint} has throttled topic {order.layout.name!r} partition {order.partition} from "
            f"offset {order.offset} for {_THROTTLED_S_MAX:g} s, and sent none of it.",
            hint="raise this client's quota, consumer_byte_rate or request_percentage (kafka-configs.sh --describe "
            "--entity-type clients, and users): over its window, 11 s by default, it must allow the largest batch of "
            "the topic, for all tasks that read at the same time.",
        )

    def _missing(self, topic: str) -> IdentityChanged:
        near: list[str] = []
        with suppress(TallystickError):  # the names are only for the hint
            near = difflib.get_close_matches(topic, self.topics(), 3)
        asked = f"did you mean {' or '.join(map(repr, near))}? Otherwise " if near else ""
        return IdentityChanged(
            f"topic {topic!r} does not exist on the cluster at {self.endpoint} (or this user may not see it).",
            hint=f"{asked}check the topic's name in the pipeline and the connection's bootstrap_servers. If it "
            "was deleted, its offsets are lost: begin a new pipeline, with a warehouse of its own, for a new topic.",
        )


def _withheld(answer: Any) -> bool:
    """Return True if a broker withholds the records to throttle this client: such an answer proves nothing about the log.

    Kafka then leaves the partition out (KIP-219, SessionlessFetchContext.getThrottledResponse). A throttled answer with
    an empty partition is treated in the same way, or it could be misread as the end of a compacted log.
    """
    parts = [part for topic in answer.responses for part in topic.partitions]
    return answer.throttle_time_ms > 0 and not any(
        part.records or part.error_code or part.preferred_read_replica >= 0 for part in parts
    )


class _TopicMissingError(Exception):
    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic
