"""Creates and describes topics of the embedded Kafka. The client is librdkafka: no code of the reader is shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tallystick.cli.text import many
from tallystick.errors import InvalidRequest, KafkaUnavailable, OutcomeUnknown
from tallystick_devstack.similar_names import unknown_name

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

TIMEOUT_S = 30.0
RETENTION = "retention.ms"
FOREVER = "-1"
_POLL_S = 0.1
# What ConfigEntry.source means, without 5: Kafka's own default.
_SOURCES = {1: "topic", 2: "broker", 3: "brokers", 4: "broker's file", 6: "group"}

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The offsets `first_offset <= offset < end_offset` of a partition.

    `first_ms` is the timestamp of the first record, `latest_ms` the latest of all, also of the markers of transactions;
    None if it is empty.
    """

    partition: int
    first_offset: int
    end_offset: int
    first_ms: int | None
    latest_ms: int | None

    @property
    def offsets(self) -> int:
        """The number of offsets: records, and the markers of transactions."""
        return self.end_offset - self.first_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of a topic that is not Kafka's default; `source` is where it is set."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as the broker describes it."""

    name: str
    topic_id: str
    partitions: tuple[PartitionState, ...]
    settings: tuple[Setting, ...]

    @property
    def offsets(self) -> int:
        """The number of offsets of all partitions."""
        return sum(one.offsets for one in self.partitions)


class Topics:
    """The topics of one cluster. `kafka`: librdkafka's settings for the broker, which does not log.

    Every method raises KafkaUnavailable if the broker does not answer within TIMEOUT_S.
    """

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        self._place = str(kafka["bootstrap.servers"])
        self.kafka = {**kafka, "log_level": 0}
        self._client: AdminClient | None = None

    @property
    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._client is None:
            self._client = AdminClient(self.kafka)
        return self._client

    def create(self, name: str, *, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with one replica.

        Raises InvalidRequest if it exists or the broker refuses it, OutcomeUnknown if the answer is lost. Safe to
        repeat: the broker refuses a name that exists, and the topic with that name is not changed.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        new = NewTopic(name, partitions, 1, config=dict(config))
        try:
            self._admin.create_topics([new], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
        except TimeoutError:
            raise self._unknown(name, "no answer") from None
        except KafkaException as error:
            problem = error.args[0]
            if problem.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._exists(name, partitions) from None
            if _is_silence(problem):
                raise self._unknown(name, problem.str()) from None
            raise InvalidRequest(
                f"topic {name} with {many(partitions, 'partition')} and {_spelled(config)}: expected one that the broker "
                f"creates, found its answer: {problem.str().rstrip('.')}.",
                hint="correct what the answer names.",
            ) from None
        self._wait_for_leaders(name, partitions)

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = self._asked("the new topic", lambda: self._admin.list_topics(name, TIMEOUT_S))
            leaders = [one.leader for one in found.topics[name].partitions.values()]
            if len(leaders) == partitions and min(leaders) >= 0:
                return
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"topic {name} at {self._place}: expected {partitions} partitions with a leader within "
                    f"{TIMEOUT_S:g} s of its creation, found {sum(leader >= 0 for leader in leaders)}.",
                    hint="read the broker's log (`tally local status --json` names it).",
                )
            time.sleep(_POLL_S)

    def _unknown(self, name: str, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"creating topic {name} at {self._place}: expected an answer, found: {why}.",
            hint=f"check with `tally local topic describe {name}` if it exists now.",
        )

    def _exists(self, name: str, partitions: int) -> InvalidRequest:
        found = self.describe(name)
        return InvalidRequest(
            f"topic {name}: expected a new topic with {many(partitions, 'partition')}, found one that exists, with "
            f"{many(len(found.partitions), 'partition')} and {many(found.offsets, 'offset')}.",
            hint=f"use it as it is (`tally local topic describe {name}`), or choose another name.",
        )

    def names(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics in order, without Kafka's own (`__consumer_offsets`) unless `internal`."""
        found = self._asked(
            "the list of topics", lambda: self._admin.list_topics(timeout=TIMEOUT_S)
        )
        return sorted(name for name in found.topics if internal or not name.startswith("__"))

    def described(self) -> list[TopicState]:
        """Return all topics in the order of their names, without Kafka's own."""
        return self._described(self.names())

    def describe(self, name: str) -> TopicState:
        """Return a topic. Raises InvalidRequest with similar names if it does not exist."""
        if name not in (known := self.names(internal=True)):
            raise unknown_name(
                "topic",
                name,
                [one for one in known if not one.startswith("__")],
                none=f"create it: `tally local topic create {name}`.",
            )
        return self._described([name])[0]

    def settings(self, name: str) -> dict[str, str]:
        """Return all settings of a topic that exists, the defaults too."""
        return {key: str(entry.value) for key, entry in self._configs([name])[name].items()}

    def _described(self, names: Collection[str]) -> list[TopicState]:
        from confluent_kafka import TopicCollection, TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec as UntypedSpec

        if not names:
            return []
        spec: Any = UntypedSpec
        found = self._answers(
            "the topics", lambda: self._admin.describe_topics(TopicCollection(list(names)))
        )
        places = [TopicPartition(n, p.id) for n in names for p in found[n].partitions]

        def offsets(which: Any) -> dict[tuple[str, int], Any]:
            answers = self._answers(
                "offsets", lambda: self._admin.list_offsets(dict.fromkeys(places, which))
            )
            return {(at.topic, at.partition): answer for at, answer in answers.items()}

        first, end = offsets(spec.earliest()), offsets(spec.latest())
        # The first offset with a timestamp from 1970 on: the first one that holds a record.
        oldest, latest = offsets(spec.for_timestamp(0)), offsets(spec.max_timestamp())
        configs = self._configs(names)
        return [
            TopicState(
                name=name,
                topic_id=str(found[name].topic_id),
                partitions=tuple(
                    PartitionState(
                        partition=number,
                        first_offset=first[name, number].offset,
                        end_offset=end[name, number].offset,
                        first_ms=_found(oldest[name, number].timestamp),
                        latest_ms=_found(latest[name, number].timestamp),
                    )
                    for number in sorted(p.id for p in found[name].partitions)
                ),
                settings=tuple(
                    Setting(name=key, value=str(entry.value), source=_SOURCES[entry.source])
                    for key, entry in sorted(configs[name].items())
                    if entry.source in _SOURCES
                ),
            )
            for name in names
        ]

    def _configs(self, names: Collection[str]) -> dict[str, Any]:
        from confluent_kafka.admin._config import ConfigResource

        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        answers = self._answers("settings", lambda: self._admin.describe_configs(resources))
        return {resource.name: entries for resource, entries in answers.items()}

    def _answers(
        self, what: str, ask: Callable[[], Mapping[Key, Future[Value]]]
    ) -> dict[Key, Value]:
        return self._asked(
            what, lambda: {key: future.result(TIMEOUT_S) for key, future in ask().items()}
        )

    def _asked(self, what: str, ask: Callable[[], Value]) -> Value:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return ask()
            except (KafkaException, TimeoutError) as error:
                problem = error.args[0] if isinstance(error, KafkaException) else None
                if problem is not None and _passes(problem) and time.monotonic() < deadline:
                    time.sleep(_POLL_S)
                    continue
                raise KafkaUnavailable(
                    f"{what} of Kafka at {self._place}: {'no answer' if problem is None else problem.str()}.",
                    hint="check `tally local status`, then try again.",
                ) from None


def _passes(problem: Any) -> bool:
    """Return True for an answer that a broker gives for a moment about a new topic."""
    from confluent_kafka import KafkaError

    return problem.code() in {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        # The metadata can have the epoch of a leader before the leader has it itself.
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    }


def _is_silence(problem: Any) -> bool:
    from confluent_kafka import KafkaError

    return problem.code() in {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.REQUEST_TIMED_OUT,
    }


def _found(at_ms: int) -> int | None:
    return None if at_ms < 0 else at_ms


def _spelled(config: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in config.items()) or "no settings"
