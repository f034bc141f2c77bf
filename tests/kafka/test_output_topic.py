"""A topic that gets each row once, on a real broker: kill -9 at each step, two publishers, a restart, lost offsets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.errors import ProducerFencedError
from kafka.structs import OffsetAndMetadata

import kafka
from kafka import KafkaProducer
from support import output_publisher
from support.brokers import TestBroker, done
from support.killed import killed
from support.output_publisher import PER_TRANSACTION, ROWS, before
from support.output_publisher import STEPS as STEPS_OF_A_TRANSACTION
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import (
    OutputBusy,
    OutputRefused,
    OutputUnavailable,
    RetryLater,
    SettingsError,
)
from tallystick.kafka import transactions
from tallystick.kafka.connection import net_client
from tallystick.kafka.transactions import TransactionalProducer
from tallystick.outputs.kafka import topic as kafka_topic
from tallystick.outputs.kafka.topic import PLACE_FORMAT, KafkaTopic, Place, group_of
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.process import free_port, wait_until
from unit.outputs.publications import IN_THE_YEAR_10000, SCOPE, in_the_year_10000, publication

OLD = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
NEW = [{"k": "a", "n": 1}, {"k": "b", "n": 20}, {"k": "d", "n": 4}]


_opened: list[KafkaTopic] = []


def output(bootstrap: str, topic: str, **options: Any) -> KafkaTopic:
    """Return an output that is closed after its test: the thread of its producer would try to connect for ever."""
    _opened.append(output_publisher.output(bootstrap, topic, **options))
    return _opened[-1]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


@dataclass(frozen=True)
class Message:
    """A message as a read_committed consumer gets it."""

    key: bytes | None
    row: dict[str, Any]
    headers: dict[str, str]


def messages_in(broker: TestBroker, topic: str, *, partitions: int = 1) -> list[Message]:
    """Return all messages up to the end that a read_committed consumer reads."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[Message] = []
    ended: set[int] = set()
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def at_the_end() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(_message(message))
        elif message is not None:
            ended.add(message.partition())
        return len(ended) == partitions

    wait_until(at_the_end, deadline_s=60.0, what="the end of the topic", poll_s=0.0)
    consumer.close()
    return found


def _message(message: Any) -> Message:
    headers = {n.removeprefix("tallystick."): v.decode() for n, v in message.headers()}
    return Message(key=message.key(), row=json.loads(message.value()), headers=headers)


def rows(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the rows of messages."""
    return [message.row for message in messages]


def topic_of(broker: TestBroker, partitions: int = 1) -> str:
    """Create a topic."""
    return broker.topic(partitions)


def published(broker: TestBroker, topic: str, *publications: Any, **options: Any) -> KafkaTopic:
    """Publish these one after the other, and return the output."""
    feed = output(broker.bootstrap, topic, **options)
    feed.begin(SCOPE)
    for each in publications:
        feed.prepare(each)
        feed.publish(each, resumed=False)
    feed.close()
    return feed


def test_each_row_is_one_message_with_headers_of_its_origin(broker: TestBroker) -> None:
    topic = topic_of(broker)
    published(broker, topic, publication(OLD))
    found = messages_in(broker, topic)
    assert rows(found) == OLD
    assert [m.key for m in found] == [b"a", b"b", b"c"]
    assert found[1].headers == {
        "operation": "row",
        "interval": "20130101T000000000Z-20130102T000000000Z",
        "generation": "1",
        "plan": f"{1:032x}",
        "message": "1",
        "row": "1",
        "identity": '["b"]',
    }


def test_publishing_again_sends_nothing(broker: TestBroker) -> None:
    topic = topic_of(broker)
    feed = published(broker, topic, publication(ROWS))
    feed.begin(SCOPE)
    feed.publish(publication(ROWS), resumed=True)
    published(broker, topic).close()
    assert rows(messages_in(broker, topic)) == ROWS


def test_a_replacement_sends_the_changes_and_the_generation_that_they_correct(
    broker: TestBroker,
) -> None:
    topic = topic_of(broker)
    new = publication(NEW, plan=2, generation=2, instead_of=1, before=OLD)
    published(broker, topic, publication(OLD), new)
    corrections = messages_in(broker, topic)[len(OLD) :]
    changes = [(m.headers["operation"], m.headers.get("corrects"), m.row) for m in corrections]
    assert changes == [
        ("correction", "1", {"k": "b", "n": 20}),
        ("row", None, {"k": "d", "n": 4}),
        ("retraction", "1", {"k": "c", "n": 3}),
    ]
    assert {m.headers["generation"] for m in corrections} == {"2"}


# The step of the kill, and how many transactions are committed then; None: the last one may be committed or not.
STEPS = [
    ("begin_transaction", 1, 0),
    ("send", 1, 0),
    ("send", 2, 0),
    ("the offset", 1, 0),
    ("after the offset", 1, 0),
    ("the commit", 1, None),
    ("after the commit", 1, 1),
    ("begin_transaction", 2, 1),
    ("send", 3, 1),
    ("after the offset", 2, 1),
    ("after the commit", 2, 2),
    ("after the commit", 3, 3),
]


@pytest.mark.parametrize(("step", "nth", "committed"), STEPS)
def test_the_publisher_after_one_killed_at_any_step_completes_its_work(
    broker: TestBroker, step: str, nth: int, committed: int | None
) -> None:
    topic = topic_of(broker)
    killed(output_publisher.main, broker.bootstrap, topic, step, nth)
    feed = output(broker.bootstrap, topic)
    feed.begin(SCOPE)
    sent = rows(messages_in(broker, topic))
    if committed is None:
        assert sent in ([], ROWS[:PER_TRANSACTION])
    else:
        assert sent == ROWS[: committed * PER_TRANSACTION]
    feed.publish(publication(ROWS), resumed=True)
    feed.publish(publication(ROWS), resumed=True)
    feed.close()
    found = messages_in(broker, topic)
    assert rows(found) == ROWS
    assert [m.headers["message"] for m in found] == [str(n) for n in range(len(ROWS))]


def test_the_later_of_two_publishers_sends_and_the_other_fails_as_busy(broker: TestBroker) -> None:
    topic = topic_of(broker)
    first, second = output(broker.bootstrap, topic), output(broker.bootstrap, topic)
    first.begin(SCOPE)
    second.begin(SCOPE)
    second.publish(publication(OLD), resumed=True)
    with pytest.raises(OutputBusy, match="another publisher has taken output feed"):
        first.publish(publication(ROWS, plan=2, first=2), resumed=False)
    first.publish(publication(OLD), resumed=True)  # it finds that nothing is left to send
    assert rows(messages_in(broker, topic)) == OLD


@pytest.mark.parametrize("seen", ["between two sends", "before the offset is sent"])
def test_a_fenced_producer_raises_that_it_is_fenced_at_each_call(
    broker: TestBroker, seen: str
) -> None:
    """The library's thread learns it at any time. Then each of the library's calls fails with an error of its own."""
    topic = topic_of(broker)
    options = KafkaSettings(bootstrap_servers=(broker.bootstrap,)).client_options()
    with (
        closing(TransactionalProducer(options, transactional_id=f"fenced {topic}")) as fenced,
        closing(TransactionalProducer(options, transactional_id=f"fenced {topic}")) as later,
    ):
        fenced.take()
        later.take()
        manager = fenced._producer._transaction_manager

        def messages() -> Iterator[tuple[None, bytes, list[Any]]]:
            yield None, b"1", []
            wait_until(manager.has_error, what="the fenced producer's error", deadline_s=60)
            if seen == "between two sends":
                yield None, b"2", []

        with pytest.raises(ProducerFencedError):
            fenced.send_all(topic, messages(), group=topic, offset=2, metadata="")
    assert messages_in(broker, topic) == []


def test_a_position_in_an_open_transaction_is_waited_for(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction can complete before its offset can be read (KAFKA-17507): rows after the old place are published.

    Here, another producer has an offset of the group in an open transaction.
    """
    topic = topic_of(broker)
    feed = published(broker, topic, publication(OLD))
    other = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        transactional_id=f"of {topic}",
        kafka_client=net_client,
    )
    other.init_transactions()
    other.begin_transaction()
    place = json.dumps({"format": PLACE_FORMAT, "plan": f"{2:032x}"})
    moved = {kafka.TopicPartition(topic, 0): OffsetAndMetadata(9, place, -1)}
    other.send_offsets_to_transaction(moved, group_of(SCOPE, "feed"))
    with monkeypatch.context() as patched:
        patched.setattr(kafka_topic, "ANSWER_S", 1.0)
        with pytest.raises(
            OutputUnavailable, match=r"output feed: no offset of group .* within 1 s: .*transaction"
        ):
            feed.begin(SCOPE)
    other.commit_transaction()
    other.close()
    feed.begin(SCOPE)
    feed.close()
    assert feed._place == Place(plan=f"{2:032x}", next=9)


def test_lakes_and_pipelines_do_not_fence_each_other(broker: TestBroker) -> None:
    topic = topic_of(broker)
    first, other = output(broker.bootstrap, topic), output(broker.bootstrap, topic)
    first.begin(SCOPE)
    other.begin(type(SCOPE)(lake="memory://other", pipeline=SCOPE.pipeline))
    for feed in (first, other):
        feed.publish(publication(OLD), resumed=False)
    assert rows(messages_in(broker, topic)) == OLD * 2


def test_if_the_offsets_are_gone_the_topic_is_read_for_published_rows(broker: TestBroker) -> None:
    """As after `offsets.retention.minutes`. The topic has rows of another interval, too, which are not counted."""
    topic = topic_of(broker, 3)
    feed = published(broker, topic, publication(OLD, plan=7, first=2))
    feed.begin(SCOPE)
    pub = publication(ROWS)
    feed._send(pub, list(_first(pub, 3)))
    feed.close()
    done(broker.admin.delete_consumer_groups([group_of(SCOPE, "feed")]))
    again = output(broker.bootstrap, topic)
    again.begin(SCOPE)
    assert again._place is None
    again.publish(pub, resumed=True)
    found = [m for m in messages_in(broker, topic, partitions=3) if m.headers["plan"] == pub.plan]
    assert sorted(m.headers["message"] for m in found) == [str(n) for n in range(len(ROWS))]


def _first(pub: Any, count: int) -> Any:
    from itertools import islice

    from tallystick.outputs.changes import changes

    return islice(changes(pub, pub.identity), count)


def test_a_key_that_is_null_is_refused_before_anything_is_sent(broker: TestBroker) -> None:
    topic = topic_of(broker)
    feed = output(broker.bootstrap, topic)
    feed.begin(SCOPE)
    for bad, reason in (
        (None, "expected a value in key column 'k', found null"),
        ("gone", "expected a value in key column 'k', found no such column"),
    ):
        values = [{"k": "a", "n": 1}, {"k": bad, "n": 2} if bad is None else {"n": 2}]
        pub = publication(values if bad is None else [{"n": 1}], identity=("n",))
        with pytest.raises(OutputRefused, match=reason) as caught:
            feed.prepare(pub)
        assert "output feed of [2013-01-01" in str(caught.value)
    assert messages_in(broker, topic) == []


@pytest.mark.parametrize("key", [["k"], []], ids=["by key", "without a key"])
def test_a_time_that_no_consumer_can_read_is_refused_before_anything_is_sent(
    broker: TestBroker, key: list[str]
) -> None:
    topic = topic_of(broker)
    feed = output(broker.bootstrap, topic, key=key)
    feed.begin(SCOPE)
    with pytest.raises(OutputRefused) as caught:
        feed.prepare(in_the_year_10000())
    assert caught.value.message == IN_THE_YEAR_10000
    assert messages_in(broker, topic) == []


def test_keys_of_several_columns_or_other_types_are_json(broker: TestBroker) -> None:
    topic = topic_of(broker)
    published(broker, topic, publication(OLD[:1]), key=["k", "n"])
    published(broker, topic, publication(OLD[1:2], plan=2, first=2), key=["n"])
    published(broker, topic, publication(OLD[2:], plan=3, first=3), key=[])
    assert [m.key for m in messages_in(broker, topic)] == [b'["a",1]', b"[2]", None]


def test_a_missing_topic_is_never_created(broker: TestBroker) -> None:
    feed = output(broker.bootstrap, "nowhere")
    with pytest.raises(OutputRefused, match="topic nowhere of connection default does not exist"):
        feed.prepare(publication(OLD))
    assert "nowhere" not in broker.admin.list_topics(timeout=10).topics


def test_a_message_that_is_too_large_is_refused_and_nothing_is_published(
    broker: TestBroker,
) -> None:
    topic = broker.topic(1, max_message_bytes=100_000)
    feed = output(broker.bootstrap, topic)
    feed.begin(SCOPE)
    with pytest.raises(OutputRefused, match=r"output feed of .* refused a message") as caught:
        feed.publish(publication([OLD[0], {"k": "x" * 200_000, "n": 1}]), resumed=False)
    assert caught.value.hint == "raise the topic's max.message.bytes, then clear `publish`."
    feed.begin(SCOPE)
    assert messages_in(broker, topic) == []
    feed.publish(publication(OLD), resumed=True)
    assert rows(messages_in(broker, topic)) == OLD
    feed.close()


def test_offsets_of_another_program_are_refused(broker: TestBroker) -> None:
    topic = topic_of(broker)
    other = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group_of(SCOPE, "feed")})
    other.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    other.close()
    feed = output(broker.bootstrap, topic)
    with pytest.raises(
        OutputRefused, match=r"expected offsets of group .* from this version of tallystick"
    ):
        feed.begin(SCOPE)


def test_an_unreachable_broker_is_retried_later() -> None:
    feed = output(f"127.0.0.1:{free_port()}", "any")
    before = threading.active_count()
    with pytest.raises(OutputUnavailable, match=r"output feed of .*topic any of connection"):
        feed.prepare(publication(OLD))
    with pytest.raises(OutputUnavailable, match=r"output feed: topic any of connection"):
        feed.begin(SCOPE)
    assert threading.active_count() <= before, [t.name for t in threading.enumerate()]


def test_a_missing_certificate_file_is_named() -> None:
    settings = KafkaSettings(
        bootstrap_servers=("a:1",), security_protocol="SSL", ssl_cafile="/nowhere/ca.pem"
    )
    feed = KafkaTopic(output("a:1", "any").declared, lambda: settings)
    with pytest.raises(SettingsError, match=r"ssl_cafile /nowhere/ca.pem cannot be used"):
        feed.prepare(publication(OLD))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """Start a broker that these tests may kill. Its port never changes, as with a real one."""
    with KafkaBroker(tmp_path_factory.mktemp("broker"), port=free_port()) as running:
        yield TestBroker(running, AdminClient({"bootstrap.servers": running.bootstrap}))


# kafka-python leaves the sockets of a dead server to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("step", STEPS_OF_A_TRANSACTION)
def test_a_broker_that_dies_in_mid_transaction_loses_and_doubles_nothing(
    own: TestBroker, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_wait", transactions._wait)  # restored after the test
    topic = own.topic(1)
    feed = output(own.bootstrap, topic)
    feed.begin(SCOPE)
    restarts: list[str] = []

    def restart() -> None:
        restarts.append(step)
        own.kafka.process.kill()
        own.kafka.start()

    before(feed, step, 1, restart)
    outcome = "published"
    try:
        feed.publish(publication(ROWS), resumed=False)
    except RetryLater as error:
        outcome = error.kind
    assert restarts == [step]
    feed.begin(SCOPE)
    feed.publish(publication(ROWS), resumed=True)
    feed.close()
    assert rows(messages_in(own, topic)) == ROWS, outcome
