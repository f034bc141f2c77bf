"""A topic that gets each row once, on a real broker: kill -9 at each step, two publishers, a restart, lost offsets."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.structs import OffsetAndMetadata

import kafka
from kafka import KafkaProducer
from support import output_publisher
from support.brokers import TestBroker, done
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
from tallystick.outputs.kafka import topic as kafka_topic
from tallystick.outputs.kafka.topic import PLACE_FORMAT, KafkaTopic, Place, group_of
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.process import free_port, wait_until
from unit.outputs.sendings import IN_THE_YEAR_10000, SCOPE, in_the_year_10000, publication

OLD = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
NEW = [{"k": "a", "n": 1}, {"k": "b", "n": 20}, {"k": "d", "n": 4}]


_made: list[KafkaTopic] = []


def output(bootstrap: str, topic: str, **how: Any) -> KafkaTopic:
    """An output that is closed when its test is over: its producer's thread would look for the broker for ever."""
    _made.append(output_publisher.output(bootstrap, topic, **how))
    return _made[-1]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


@dataclass(frozen=True)
class Seen:
    """One message as a consumer of committed ones sees it."""

    key: bytes | None
    row: dict[str, Any]
    told: dict[str, str]


def seen(broker: TestBroker, topic: str, *, partitions: int = 1) -> list[Seen]:
    """All messages that a consumer of committed ones reads up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[Seen] = []
    ended: set[int] = set()
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def at_the_end() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(_seen(message))
        elif message is not None:
            ended.add(message.partition())
        return len(ended) == partitions

    wait_until(at_the_end, deadline_s=60.0, what="the end of the topic", poll_s=0.0)
    consumer.close()
    return found


def _seen(message: Any) -> Seen:
    headers = {n.removeprefix("tallystick."): v.decode() for n, v in message.headers()}
    return Seen(key=message.key(), row=json.loads(message.value()), told=headers)


def rows(messages: Sequence[Seen]) -> list[dict[str, Any]]:
    """Their values."""
    return [message.row for message in messages]


def topic_of(broker: TestBroker, partitions: int = 1) -> str:
    """A fresh topic."""
    return broker.topic(partitions)


def published(broker: TestBroker, topic: str, *sendings: Any, **how: Any) -> KafkaTopic:
    """An output that has published these, one after the other."""
    feed = output(broker.bootstrap, topic, **how)
    feed.begin(SCOPE)
    for one in sendings:
        feed.prepare(one)
        feed.publish(one, resumed=False)
    feed.close()
    return feed


def test_each_row_is_one_message_that_says_where_it_comes_from(broker: TestBroker) -> None:
    topic = topic_of(broker)
    published(broker, topic, publication(OLD))
    found = seen(broker, topic)
    assert rows(found) == OLD
    assert [m.key for m in found] == [b"a", b"b", b"c"]
    assert found[1].told == {
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
    assert rows(seen(broker, topic)) == ROWS


def test_a_replacement_sends_what_changed_and_names_what_it_corrects(broker: TestBroker) -> None:
    topic = topic_of(broker)
    new = publication(NEW, plan=2, generation=2, instead_of=1, before=OLD)
    published(broker, topic, publication(OLD), new)
    corrections = seen(broker, topic)[len(OLD) :]
    told = [(m.told["operation"], m.told.get("corrects"), m.row) for m in corrections]
    assert told == [
        ("correction", "1", {"k": "b", "n": 20}),
        ("row", None, {"k": "d", "n": 4}),
        ("retraction", "1", {"k": "c", "n": 3}),
    ]
    assert {m.told["generation"] for m in corrections} == {"2"}


# Where it dies, and how many transactions are committed then for certain; None: it may have been, or not.
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
def test_a_publisher_killed_at_any_step_is_followed_by_one_that_ends_its_work(
    broker: TestBroker, step: str, nth: int, committed: int | None
) -> None:
    topic = topic_of(broker)
    died = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).parents[1] / "support" / "output_publisher.py"),
            broker.bootstrap,
            topic,
            step,
            str(nth),
        ],
        check=False,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert died.returncode == -9, died.stderr
    feed = output(broker.bootstrap, topic)
    feed.begin(SCOPE)
    out = rows(seen(broker, topic))
    if committed is None:
        assert out in ([], ROWS[:PER_TRANSACTION])
    else:
        assert out == ROWS[: committed * PER_TRANSACTION]
    feed.publish(publication(ROWS), resumed=True)
    feed.publish(publication(ROWS), resumed=True)
    feed.close()
    found = seen(broker, topic)
    assert rows(found) == ROWS
    assert [m.told["message"] for m in found] == [str(n) for n in range(len(ROWS))]


def test_of_two_publishers_the_later_one_sends_and_the_other_is_told(broker: TestBroker) -> None:
    topic = topic_of(broker)
    first, second = output(broker.bootstrap, topic), output(broker.bootstrap, topic)
    first.begin(SCOPE)
    second.begin(SCOPE)
    second.publish(publication(OLD), resumed=True)
    with pytest.raises(OutputBusy, match="another publisher has taken output feed"):
        first.publish(publication(ROWS, plan=2, first=2), resumed=False)
    first.publish(publication(OLD), resumed=True)  # it finds that nothing is left to send
    assert rows(seen(broker, topic)) == OLD


def test_a_place_that_may_yet_move_is_waited_for(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may call one complete before its offset can be read (KAFKA-17507): what follows the old place is out.

    Here another producer holds an offset of the group in a transaction that is open.
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
            OutputUnavailable, match=r"output feed: group .* within 1 s .*transaction"
        ):
            feed.begin(SCOPE)
    other.commit_transaction()
    other.close()
    feed.begin(SCOPE)
    feed.close()
    assert feed._place == Place(plan=f"{2:032x}", next=9)


def test_lakes_and_pipelines_do_not_fence_each_other(broker: TestBroker) -> None:
    topic = topic_of(broker)
    one, other = output(broker.bootstrap, topic), output(broker.bootstrap, topic)
    one.begin(SCOPE)
    other.begin(type(SCOPE)(lake="memory://other", pipeline=SCOPE.pipeline))
    for feed in (one, other):
        feed.publish(publication(OLD), resumed=False)
    assert rows(seen(broker, topic)) == OLD * 2


def test_where_the_offsets_are_gone_the_topic_is_read_for_what_is_out(broker: TestBroker) -> None:
    """As after `offsets.retention.minutes`: an earlier interval stands there too, and is not taken for this one."""
    topic = topic_of(broker, 3)
    feed = published(broker, topic, publication(OLD, plan=7, first=2))
    feed.begin(SCOPE)
    some = publication(ROWS)
    feed._send(some, list(_first(some, 3)))
    feed.close()
    done(broker.admin.delete_consumer_groups([group_of(SCOPE, "feed")]))
    again = output(broker.bootstrap, topic)
    again.begin(SCOPE)
    assert again._place is None
    again.publish(some, resumed=True)
    found = [m for m in seen(broker, topic, partitions=3) if m.told["plan"] == some.plan]
    assert sorted(m.told["message"] for m in found) == [str(n) for n in range(len(ROWS))]


def _first(some: Any, count: int) -> Any:
    from itertools import islice

    from tallystick.outputs.changes import changes

    return islice(changes(some, some.identity), count)


def test_a_key_that_is_null_is_refused_before_anything_is_sent(broker: TestBroker) -> None:
    topic = topic_of(broker)
    feed = output(broker.bootstrap, topic)
    feed.begin(SCOPE)
    for bad, why in ((None, "no value in its key column 'k'"), ("gone", "there is no such column")):
        values = [{"k": "a", "n": 1}, {"k": bad, "n": 2} if bad is None else {"n": 2}]
        one = publication(values if bad is None else [{"n": 1}], identity=("n",))
        with pytest.raises(OutputRefused, match=why) as caught:
            feed.prepare(one)
        assert "output feed of [2013-01-01" in str(caught.value)
    assert seen(broker, topic) == []


@pytest.mark.parametrize("key", [["k"], []], ids=["by key", "without a key"])
def test_a_time_that_no_consumer_understands_is_refused_before_anything_is_sent(
    broker: TestBroker, key: list[str]
) -> None:
    topic = topic_of(broker)
    feed = output(broker.bootstrap, topic, key=key)
    feed.begin(SCOPE)
    with pytest.raises(OutputRefused) as caught:
        feed.prepare(in_the_year_10000())
    assert caught.value.message == IN_THE_YEAR_10000
    assert seen(broker, topic) == []


def test_keys_of_several_columns_or_other_types_are_json(broker: TestBroker) -> None:
    topic = topic_of(broker)
    published(broker, topic, publication(OLD[:1]), key=["k", "n"])
    published(broker, topic, publication(OLD[1:2], plan=2, first=2), key=["n"])
    published(broker, topic, publication(OLD[2:], plan=3, first=3), key=[])
    assert [m.key for m in seen(broker, topic)] == [b'["a",1]', b"[2]", None]


def test_a_topic_that_is_not_there_is_never_created(broker: TestBroker) -> None:
    feed = output(broker.bootstrap, "nowhere")
    with pytest.raises(OutputRefused, match="topic nowhere of connection default is not there"):
        feed.prepare(publication(OLD))
    assert "nowhere" not in broker.admin.list_topics(timeout=10).topics


def test_a_message_that_is_too_large_is_told_and_nothing_of_it_is_seen(broker: TestBroker) -> None:
    topic = broker.topic(1, max_message_bytes=100_000)
    feed = output(broker.bootstrap, topic)
    feed.begin(SCOPE)
    with pytest.raises(OutputRefused, match=r"output feed of .* does not take it") as caught:
        feed.publish(publication([OLD[0], {"k": "x" * 200_000, "n": 1}]), resumed=False)
    assert caught.value.hint == "raise the topic's max.message.bytes, then clear `publish`."
    feed.begin(SCOPE)
    assert seen(broker, topic) == []
    feed.publish(publication(OLD), resumed=True)
    assert rows(seen(broker, topic)) == OLD
    feed.close()


def test_offsets_that_somebody_else_wrote_are_not_guessed_at(broker: TestBroker) -> None:
    topic = topic_of(broker)
    other = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group_of(SCOPE, "feed")})
    other.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    other.close()
    feed = output(broker.bootstrap, topic)
    with pytest.raises(OutputRefused, match="were not written by this version of tallystick"):
        feed.begin(SCOPE)


def test_a_broker_that_is_away_is_tried_again_later() -> None:
    feed = output(f"127.0.0.1:{free_port()}", "any")
    before = threading.active_count()
    with pytest.raises(OutputUnavailable, match=r"output feed of .*topic any of connection"):
        feed.prepare(publication(OLD))
    with pytest.raises(OutputUnavailable, match=r"output feed: topic any of connection"):
        feed.begin(SCOPE)
    assert threading.active_count() <= before, [t.name for t in threading.enumerate()]


def test_a_certificate_that_is_not_there_is_named() -> None:
    settings = KafkaSettings(
        bootstrap_servers=("a:1",), security_protocol="SSL", ssl_cafile="/nowhere/ca.pem"
    )
    feed = KafkaTopic(output("a:1", "any").declared, lambda: settings)
    with pytest.raises(SettingsError, match=r"ssl_cafile /nowhere/ca.pem cannot be used"):
        feed.prepare(publication(OLD))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[TestBroker]:
    """A broker that this test may kill; it stays on one port, as a real one does."""
    with KafkaBroker(tmp_path, port=free_port()) as running:
        yield TestBroker(running, AdminClient({"bootstrap.servers": running.bootstrap}))


# kafka-python leaves the sockets of a server that dies to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("step", STEPS_OF_A_TRANSACTION)
def test_a_broker_that_dies_in_mid_transaction_loses_and_doubles_nothing(
    own: TestBroker, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_wait", transactions._wait)  # put back afterwards
    topic = own.topic(1)
    feed = output(own.bootstrap, topic)
    feed.begin(SCOPE)
    killed: list[str] = []

    def restarted() -> None:
        killed.append(step)
        own.kafka.process.kill()
        own.kafka.start()

    before(feed, step, 1, restarted)
    ended = "well"
    try:
        feed.publish(publication(ROWS), resumed=False)
    except RetryLater as error:
        ended = error.kind
    assert killed == [step]
    feed.begin(SCOPE)
    feed.publish(publication(ROWS), resumed=True)
    feed.close()
    assert rows(seen(own, topic)) == ROWS, ended
