"""A topic that gets each committed row once: a transactional producer moves messages and the output's place together.

Each transaction contains some messages and one group offset, for partition 0 of the topic, in a group of the output's
own. The offset is the number of the next message, and its metadata names the plan. The next publisher reads this
place; the messages and the place are committed together or not at all (KIP-98, "TxnOffsetCommit").
`init_transactions` ends the transaction that an earlier producer of the same transactional id left open, and fences
that producer (KIP-98, "Transactional Id"): a zombie cannot commit any message.

Group offsets expire (`offsets.retention.minutes`, 7 days by default). The ledger records which publications are in
progress. If the place of one of them is gone, the place is found by reading the topic.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import kafka.errors as kerrors

from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.tls import tls_context
from tallystick.errors import (
    OutputBusy,
    OutputRefused,
    OutputUnavailable,
    SettingsError,
    TallystickError,
)
from tallystick.format import keys
from tallystick.kafka.connection import opened
from tallystick.kafka.transactions import TransactionalProducer
from tallystick.outputs.changes import Change, changes
from tallystick.outputs.encoding import encoded, plain
from tallystick.outputs.kafka import KafkaOutput
from tallystick.outputs.port import Publication, Scope
from tallystick.outputs.times import check_times

ANSWER_S = 60.0
PREFIX = "tallystick."
PLACE_FORMAT = "tallystick.place/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The progress of the last publication: its plan, and the number of its next message."""

    plan: keys.PlanId
    next: int


class KafkaTopic:
    """The output that a KafkaOutput declares."""

    def __init__(self, declared: KafkaOutput, settings: Callable[[], KafkaSettings]) -> None:
        self.declared, self._settings = declared, settings
        self._producer: Any = None
        self._group = ""
        self._place: Place | None = None

    # ------------------------------------------------------------ the port

    def begin(self, scope: Scope) -> None:
        """Fence earlier publishers of this output, and read the place of the last publication.

        Safe to repeat: the last producer has the output.
        """
        self.close()
        self._group = group_of(scope, self.declared.name)
        with self._translated(f"output {self.declared.name}"):
            self._producer = TransactionalProducer(self._options(), transactional_id=self._group)
            self._producer.take()
            self._place = self._read_place()

    def prepare(self, publication: Publication) -> None:
        """Refuse a missing topic, a null key and a time that receivers cannot read, before anything is sent.

        Safe to repeat: it only reads.
        """
        check_times(publication)
        if self.declared.key:
            with closing(changes(publication, publication.identity)) as found:
                for change in found:
                    self._key_of(publication, change)
        with self._translated(str(publication)):
            self._partitions()

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Send the messages that are not sent yet, several per transaction, each transaction with its new place.

        Safe to repeat: it continues at the place, which was committed with the messages; a fenced producer can commit
        neither.
        """
        assert self._producer is not None, "begin comes first"
        with self._translated(str(publication)):
            start = self._start_of(publication, resumed=resumed)
            with closing(changes(publication, publication.identity)) as found:
                messages = islice(found, start, None)
                while some := list(islice(messages, self.declared.transaction_rows)):
                    self._send(publication, some)

    def abort(self, publication: Publication) -> None:
        """Do nothing, because `prepare` sets nothing aside. Safe to repeat."""

    def close(self) -> None:
        """Close the producer. Safe to repeat. If a transaction is open, the next `begin` aborts it."""
        if self._producer is not None:
            self._producer.close()
        self._producer = None

    # ------------------------------------------------------------ the place

    def _start_of(self, publication: Publication, *, resumed: bool) -> int:
        if self._place is not None and self._place.plan == publication.plan:
            return self._place.next
        if not resumed or self._place is not None:
            # The place is of another plan. If a message of this plan were committed, the place would be of this plan.
            return 0
        # In progress, but no place: either nothing was committed, or the offset expired.
        return self._read_topic(publication)

    def _read_place(self) -> Place | None:
        """Return the committed offset of the output's own group, if there is one.

        It waits until no transaction can change the offset any more (KIP-447, RequireStable). A broker may report a
        transaction as complete some milliseconds before its offsets can be read (KAFKA-17507). If an earlier place
        were read, its messages would be sent again.
        """
        from kafka import KafkaConsumer, TopicPartition

        consumer = opened(
            KafkaConsumer,
            **self._options(),
            group_id=self._group,
            isolation_level="read_committed",  # requests stable offsets; the admin client cannot
            enable_auto_commit=False,
        )
        try:
            found = consumer.committed(
                TopicPartition(self.declared.topic, 0),
                metadata=True,
                timeout_ms=round(ANSWER_S * 1000),
            )
        except kerrors.KafkaTimeoutError:
            # The library does not keep the reason: it tries again after each error that may pass.
            raise self._unavailable(
                f"output {self.declared.name}: no offset of group {self._group} in topic {self.declared.topic} within "
                f"{ANSWER_S:g} s: no coordinator answers, or an open transaction holds the offset"
            ) from None
        finally:
            consumer.close()
        if found is None:
            return None
        try:
            content = json.loads(found.metadata or "")
            if content["format"] != PLACE_FORMAT:
                raise ValueError(content["format"])
            return Place(plan=keys.PlanId(keys.check_uuid(content["plan"])), next=found.offset)
        except (ValueError, KeyError, TypeError):
            raise OutputRefused(
                f"output {self.declared.name}: expected offsets of group {self._group} from this version of tallystick, "
                f"found {found.metadata!r} at {found.offset}.",
                hint="find out who commits offsets of that group, or run the version that wrote them. Nothing was "
                "sent.",
            ) from None

    def _read_topic(self, publication: Publication) -> int:
        """Return how many messages of a plan are in the topic, from the number of its last one."""
        from kafka import KafkaConsumer, TopicPartition

        consumer = opened(
            KafkaConsumer,
            **self._options(),
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            everywhere = [TopicPartition(self.declared.topic, p) for p in self._partitions()]
            consumer.assign(everywhere)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(everywhere)
            found, deadline = 0, time.monotonic() + ANSWER_S
            while any(consumer.position(one) < ends[one] for one in everywhere):
                batches = consumer.poll(timeout_ms=1_000)
                for message in (m for batch in batches.values() for m in batch):
                    found = max(found, _number_of(message, publication.plan) + 1)
                if batches:
                    deadline = time.monotonic() + ANSWER_S
                elif time.monotonic() >= deadline:
                    raise self._unavailable(
                        f"{publication}: the published messages could not be read back"
                    )
            return found
        finally:
            consumer.close()

    # ------------------------------------------------------------ sending

    def _send(self, publication: Publication, some: Sequence[Change]) -> None:
        """Send one transaction. If it fails, the next `begin` aborts it, or finds it committed."""
        place = Place(plan=publication.plan, next=some[-1].number + 1)
        metadata = json.dumps(
            {
                "format": PLACE_FORMAT,
                "plan": place.plan,
                "interval": publication.interval.part,
                "generation": publication.generation,
            }
        )
        messages = (
            (
                self._key_of(publication, change),
                encoded(change.row),
                list(headers_of(publication, change).items()),
            )
            for change in some
        )
        self._producer.send_all(
            self.declared.topic, messages, group=self._group, offset=place.next, metadata=metadata
        )
        self._place = place

    def _key_of(self, publication: Publication, change: Change) -> bytes | None:
        if not self.declared.key:
            return None
        row = change.row
        values = [row.get(name) for name in self.declared.key]
        for name, value in zip(self.declared.key, values, strict=True):
            if value is None:
                raise OutputRefused(
                    f"{publication}: row {change.row_number}: expected a value in key column {name!r}, found "
                    + ("null." if name in row else "no such column."),
                    hint="fix the job, so that the key has a value, and clear `plan`; or declare another key. "
                    "Nothing of it was sent, and the tables are committed.",
                )
        if len(values) == 1 and isinstance(values[0], str):
            return values[0].encode()
        return json.dumps(
            [plain(v) for v in values], separators=(",", ":"), ensure_ascii=False
        ).encode()

    # ------------------------------------------------------------ connections and errors

    def _options(self) -> dict[str, Any]:
        settings = self._settings()
        return settings.client_options() | {
            "ssl_context": tls_context(settings),
            "allow_auto_create_topics": False,
        }

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        from kafka import KafkaAdminClient

        options = {k: v for k, v in self._options().items() if k != "allow_auto_create_topics"}
        admin = opened(KafkaAdminClient, **options)
        try:
            yield admin
        finally:
            admin.close()

    def _partitions(self) -> list[int]:
        """Return the topic's partitions. Never creates the topic.

        Raises UnknownTopicOrPartitionError if there is no such topic.
        """
        with self._admin() as admin:
            (found,) = admin.describe_topics([self.declared.topic])
        error = kerrors.for_code(found["error_code"])
        if error is not kerrors.NoError:
            raise error(found["name"])
        return sorted(one["partition_index"] for one in found["partitions"])

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Turn kafka-python's errors into tallystick's: with the output, the interval, the cause and what to do."""
        try:
            yield
        except kerrors.KafkaError as error:
            failure = self._failure(what, error)
        else:
            return
        # Raised outside the handler: if it were raised inside, it would keep kafka-python's error as its context.
        raise failure

    def _failure(self, what: str, error: kerrors.KafkaError) -> TallystickError:
        where = f"topic {self.declared.topic} of connection {self.declared.kafka}"
        # The library formats lists in Python syntax: remove brackets and quotes.
        text = (str(error) or type(error).__name__).translate(str.maketrans("", "", "[]'"))
        if isinstance(error, kerrors.ProducerFencedError | kerrors.InvalidProducerEpochError):
            return OutputBusy(
                f"{what}: another publisher has taken output {self.declared.name} ({where}).",
                hint="do nothing: that publisher sends the same rows. Messages that are already committed are not "
                "sent again.",
            )
        if isinstance(error, kerrors.UnknownTopicOrPartitionError):
            return OutputRefused(
                f"{what}: {where} does not exist.",
                hint="create it (tallystick never does), then clear `publish`. The tables are committed.",
            )
        if isinstance(error, kerrors.MessageSizeTooLargeError | kerrors.RecordListTooLargeError):
            return OutputRefused(
                f"{what}: {where} refused a message: {text}.",
                hint="raise the topic's max.message.bytes, then clear `publish`.",
            )
        if isinstance(error, kerrors.AuthorizationError | kerrors.SaslAuthenticationFailedError):
            return SettingsError(
                f"{what}: {where}: {text}.",
                hint="allow Write and Read on the topic, Write on the transactional id, and Read on the group; "
                "docs/reference/outputs.md has the names of the last two.",
            )
        return self._unavailable(f"{what}: {where}: {text}")

    def _unavailable(self, message: str) -> OutputUnavailable:
        return OutputUnavailable(
            f"{message}.",
            hint="wait for the next try, which continues at this point; if it persists, check the brokers.",
        )


def group_of(scope: Scope, output: str) -> str:
    """Return the name of the output's consumer group and transactional id: one per lake, pipeline and output."""
    lake = hashlib.sha256(scope.lake.encode()).hexdigest()[:12]
    return f"{PREFIX}{scope.pipeline}.{output}.{lake}"


def headers_of(publication: Publication, change: Change) -> dict[str, bytes]:
    """Return the headers that describe a message, in addition to its value."""
    identity = json.dumps(
        [*(plain(v) for v in change.identity), *([change.occurrence] if change.occurrence else [])],
        separators=(",", ":"),
        ensure_ascii=False,
    )
    headers = {
        "operation": change.operation,
        "interval": publication.interval.part,
        "generation": str(publication.generation),
        "plan": publication.plan,
        "message": str(change.number),
        "row": str(change.row_number),
        "identity": identity,
    }
    if change.operation != "row":
        headers["corrects"] = str(publication.generation_before)
    return {f"{PREFIX}{name}": value.encode() for name, value in headers.items()}


def _number_of(message: Any, plan: str) -> int:
    """Return the number of a message of that plan; -1 for any other message."""
    found = dict(message.headers or ())
    if found.get(f"{PREFIX}plan") != plan.encode():
        return -1
    return int(found[f"{PREFIX}message"] or 0)
