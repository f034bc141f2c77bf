"""Ranges read from a real broker: the records that Kafka's consumer reads, and an account of every offset."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from kafka import KafkaConsumer, TopicPartition
from support.brokers import TestBroker, read_while_cleaning, send
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import (
    IdentityChanged,
    KafkaUnavailable,
    LogDamaged,
    NotYet,
    OutsideRetention,
)
from tallystick.format.offsets import OffsetRange, Position
from tallystick.kafka.accounting import ReadAccount
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.reader import RangeReader
from tallystick_devstack.process import free_port, wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def reader(broker: TestBroker, topic: str, **options: Any) -> RangeReader:
    with KafkaClient(broker.settings) as client:
        topic_id, cluster_id = client.layout(topic).topic_id, client.cluster_id()
    defaults: dict[str, Any] = {"topic_id": topic_id, "cluster_id": cluster_id, "compacted": False}
    return RangeReader(broker.settings, topic=topic, **(defaults | {"headers": True} | options))


def rows(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    found: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        for record in batch.set_column(
            1, "timestamp", batch["timestamp"].cast(pa.int64())
        ).to_pylist():
            headers = [(header["key"], header["value"]) for header in record["headers"]]
            found.append(
                (record["offset"], record["timestamp"], record["key"], record["value"], headers)
            )
    return found


def read(
    broker: TestBroker, topic: str, start: int, end: int, **options: Any
) -> tuple[list[Row], ReadAccount]:
    ours = reader(broker, topic, **options)
    found = rows(ours.read(0, OffsetRange(start=start, end=end)))
    return found, ours.account


def consumed(broker: TestBroker, topic: str, start: int, end: int) -> list[Row]:
    """Read the same range with the consumer of kafka-python, read_committed."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        group_id=None,
    )
    here = TopicPartition(topic, 0)
    consumer.assign([here])
    consumer.seek(here, start)
    found: list[Row] = []

    def passed() -> bool:
        for record in itertools.chain.from_iterable(consumer.poll(timeout_ms=200).values()):
            if record.offset < end:
                found.append(
                    (
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        list(record.headers),
                    )
                )
        return bool(consumer.position(here) >= end)

    wait_until(passed, deadline_s=30, what=f"the consumer passing offset {end} of {topic}")
    consumer.close()
    return found


def counts(account: ReadAccount) -> tuple[int, int, int, int]:
    return account.records, account.aborted, account.control, account.absent


@pytest.fixture(scope="module")
def mixed(broker: TestBroker) -> dict[str, tuple[str, int]]:
    """Create per codec a topic of plain, null, empty, large and transactional records of several producers."""
    topics = {}
    for codec in CODECS:
        topic = broker.topic()
        _fill(broker, topic, codec, random.Random(7))
        with KafkaClient(broker.settings) as client:
            end = client.list_offsets(client.layout(topic), {0: -1}, committed=True)[0]
        topics[codec] = (topic, end)
    return topics


def _fill(broker: TestBroker, topic: str, codec: str, rng: random.Random) -> None:
    def value() -> bytes | None:
        return rng.choice([None, b"", b"short", b"x" * rng.randrange(2_000), b'{"a": 1}' * 50])

    plain = broker.producer(compression_type=codec)
    first = broker.transactions(f"{topic}-1", compression_type=codec)
    second = broker.transactions(f"{topic}-2", compression_type=codec)
    for turn in range(6):
        headers = [("n", b"%d" % turn), ("n", None), ("", b"")] if turn % 2 else []
        send(
            plain,
            topic,
            *(value() for _ in range(40)),
            key=None if turn % 3 else b"k",
            headers=headers,
        )
        send(plain, topic, b"L" * 300_000, key=b"large", timestamp=1_357_000_000_000 + turn)
        first.begin_transaction()
        second.begin_transaction()
        for _ in range(3):  # the two are interleaved
            send(first, topic, value(), value(), b"of the first", key=b"1")
            send(plain, topic, b"between")
            send(second, topic, value(), b"of the second", key=None)
        # Each aborts in half of the turns, at different ones; the order of the markers changes, too.
        ends = [(first, turn % 2 != 0), (second, turn % 3 != 0)]
        for producer, abort in reversed(ends) if turn % 4 else ends:
            broker.end(producer, topic, abort=abort)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("fetch_bytes_max", [1, 2 << 20], ids=["small", "usual"])
def test_the_reader_returns_the_same_bytes_as_the_consumer(
    broker: TestBroker, mixed: dict[str, tuple[str, int]], codec: str, fetch_bytes_max: int
) -> None:
    topic, end = mixed[codec]
    found, account = read(broker, topic, 0, end, fetch_bytes_max=fetch_bytes_max)
    assert found == consumed(broker, topic, 0, end)
    assert account.aborted > 0
    assert account.control == 12
    assert account.absent == 0
    assert {key for _, _, key, _, _ in found} >= {None, b"k"}
    assert {None, b""} <= {value for _, _, _, value, _ in found}


def test_any_range_gives_the_same_rows_and_its_account_adds_up(
    broker: TestBroker, mixed: dict[str, tuple[str, int]]
) -> None:
    topic, end = mixed["lz4"]
    whole, account = read(broker, topic, 0, end)
    classes = _classes(broker, topic, end)
    assert [offset for offset, *_ in whole] == [
        o for o, kind in enumerate(classes) if kind == "record"
    ]
    assert counts(account) == tuple(
        classes.count(kind) for kind in ("record", "aborted", "control", "absent")
    )
    rng = random.Random(11)
    ours = reader(broker, topic)
    for _ in range(60):
        start, stop = sorted(rng.sample(range(end + 1), 2))
        found = rows(ours.read(0, OffsetRange(start=start, end=stop)))
        assert found == [row for row in whole if start <= row[0] < stop], (start, stop)
        part = classes[start:stop]
        assert counts(ours.account) == tuple(
            part.count(kind) for kind in ("record", "aborted", "control", "absent")
        )


def _classes(broker: TestBroker, topic: str, end: int) -> list[str]:
    """Return the class of each offset, from kafka-python's consumer: aborted is what only read_uncommitted returns."""
    committed = {offset for offset, *_ in consumed(broker, topic, 0, end)}
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, enable_auto_commit=False, group_id=None
    )
    here = TopicPartition(topic, 0)
    consumer.assign([here])
    consumer.seek(here, 0)
    every: set[int] = set()

    def passed() -> bool:
        for record in itertools.chain.from_iterable(consumer.poll(timeout_ms=200).values()):
            every.add(record.offset)
        return bool(consumer.position(here) >= end)

    wait_until(passed, deadline_s=30, what="the uncommitted consumer reaching the end")
    consumer.close()
    return [
        "record" if offset in committed else "aborted" if offset in every else "control"
        for offset in range(end)
    ]


def test_a_transaction_that_begins_before_the_range_and_aborts_after_it_is_excluded(
    broker: TestBroker,
) -> None:
    topic = broker.topic()
    tx = broker.transactions(f"{topic}-a")
    tx.begin_transaction()
    for value in (b"0", b"1", b"2", b"3"):
        send(tx, topic, value)
    broker.end(tx, topic, abort=True)
    send(broker.producer(), topic, b"5")
    assert counts(read(broker, topic, 1, 3)[1]) == (0, 2, 0, 0)
    assert counts(read(broker, topic, 4, 5)[1]) == (0, 0, 1, 0)
    found, account = read(broker, topic, 3, 6)
    assert ([row[3] for row in found], counts(account)) == ([b"5"], (1, 1, 1, 0))


def test_a_producer_that_aborts_and_then_commits_loses_only_the_aborted(broker: TestBroker) -> None:
    topic = broker.topic()
    tx = broker.transactions(f"{topic}-a")
    for turn in range(6):
        tx.begin_transaction()
        send(tx, topic, b"%d" % turn)
        broker.end(tx, topic, abort=turn % 2 == 0)
    found, account = read(broker, topic, 0, 12)
    assert [row[3] for row in found] == [b"1", b"3", b"5"]
    assert counts(account) == (3, 3, 6, 0)


def test_an_open_transaction_before_the_end_is_not_yet(broker: TestBroker) -> None:
    topic = broker.topic()
    send(broker.producer(), topic, b"0", b"1")
    tx = broker.transactions(f"{topic}-open")
    tx.begin_transaction()
    send(tx, topic, b"2")
    send(broker.producer(), topic, b"3")
    assert [row[3] for row in read(broker, topic, 0, 2)[0]] == [b"0", b"1"]
    with pytest.raises(
        NotYet, match=r"partition 0: expected a last stable offset of at least 4, found 2 "
    ):
        read(broker, topic, 0, 4)
    broker.end(tx, topic)
    assert [row[3] for row in read(broker, topic, 0, 4)[0]] == [b"0", b"1", b"2", b"3"]


def test_an_empty_range_opens_no_connection() -> None:
    nowhere = KafkaSettings(bootstrap_servers=(f"127.0.0.1:{free_port()}",))
    ours = RangeReader(nowhere, topic="t", topic_id="x", cluster_id="c", compacted=False)
    assert list(ours.read(0, OffsetRange(start=7, end=7))) == []
    assert counts(ours.account) == (0, 0, 0, 0)


def test_there_is_no_account_of_a_range_that_was_not_read_to_its_end(
    broker: TestBroker, mixed: dict[str, tuple[str, int]]
) -> None:
    topic, end = mixed["none"]
    ours = reader(broker, topic, fetch_bytes_max=1, batch_rows=1)
    batches = ours.read(0, OffsetRange(start=0, end=end))
    next(batches)
    with pytest.raises(RuntimeError, match="no account"):
        _ = ours.account
    batches.close()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="no account"):
        _ = ours.account


@pytest.mark.parametrize(
    ("limits", "rows_max"),
    [({"batch_rows": 250}, 250), ({"batch_bytes": 256 << 10}, 262), ({"batch_bytes": 1}, 100)],
    ids=["rows", "bytes", "a record batch is not divided"],
)
def test_arrow_batches_have_at_most_the_configured_size(
    broker: TestBroker, limits: dict[str, int], rows_max: int
) -> None:
    topic = broker.topic()
    producer = broker.producer(linger_ms=50, batch_num_messages=100)
    send(producer, topic, *(b"v" * 1_000 for _ in range(3_000)))
    batches = reader(broker, topic, **limits).read(0, OffsetRange(start=0, end=3_000))
    sizes = [batch.num_rows for batch in batches]
    assert sum(sizes) == 3_000
    assert max(sizes) <= rows_max


def test_a_record_larger_than_a_fetch_makes_progress(broker: TestBroker) -> None:
    topic = broker.topic(max_message_bytes=80 << 20)
    big = random.Random(3).randbytes(9 << 20)
    send(broker.producer(message_max_bytes=80 << 20), topic, b"0", big, b"2")
    found, account = read(broker, topic, 0, 3, fetch_bytes_max=1 << 10)
    assert [row[3] for row in found] == [b"0", big, b"2"]
    assert counts(account) == (3, 0, 0, 0)


def test_compacted_offsets_are_absent_and_the_others_are_read(broker: TestBroker) -> None:
    topic = broker.topic(
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.001,
        delete_retention_ms=100,
    )
    producer = broker.producer()
    send(producer, topic, *(b"%d" % i for i in range(200)), key=b"same")
    everything = [b"%d" % i for i in range(200)]

    def compacted() -> bool:
        # The cleaner ignores the active segment: each new record rolls it.
        send(producer, topic, b"roll", key=b"other")
        return len(read(broker, topic, 0, 200, compacted=True)[0]) < 200

    wait_until(compacted, deadline_s=60, what="the cleaner removing records", poll_s=0.3)
    (found, account), expected = read_while_cleaning(
        lambda: read(broker, topic, 0, 200, compacted=True),
        lambda: consumed(broker, topic, 0, 200),
    )
    assert found == expected
    assert (account.records, account.absent) == (len(found), 200 - len(found))
    assert {row[3] for row in found} <= set(everything)
    with pytest.raises(
        LogDamaged, match=r"has no records at \d+ of the offsets .* the topic is not compacted"
    ):
        read(broker, topic, 0, 200, compacted=False)


def test_expired_offsets_are_an_error_that_names_the_log_start(broker: TestBroker) -> None:
    topic = broker.topic()
    send(broker.producer(), topic, *(b"%d" % i for i in range(10)))
    broker.delete_records(topic, 6)
    with pytest.raises(
        OutsideRetention, match=r"partition 0: expected offsets \[2, 8\), .* the log begins at 6"
    ):
        read(broker, topic, 2, 8)
    assert [row[0] for row in read(broker, topic, 6, 10)[0]] == [6, 7, 8, 9]


def test_records_that_expire_while_they_are_read_are_an_error(broker: TestBroker) -> None:
    topic = broker.topic()
    producer = broker.producer()
    for _ in range(30):
        send(producer, topic, b"x" * 20_000)
    ours = reader(broker, topic, fetch_bytes_max=1, batch_rows=1)
    batches = ours.read(0, OffsetRange(start=0, end=30))
    next(batches)
    broker.delete_records(topic, 29)
    with pytest.raises(OutsideRetention, match="the log begins at 29"):
        list(batches)


def test_an_end_beyond_the_log_is_not_yet_and_a_start_beyond_it_is_truncation(
    broker: TestBroker,
) -> None:
    topic = broker.topic()
    send(broker.producer(), topic, b"0")
    with pytest.raises(NotYet, match="expected a last stable offset of at least 5, found 1"):
        read(broker, topic, 0, 5)
    with pytest.raises(
        LogDamaged,
        match=r"expected the planned offsets \[3, 5\), found the end at offset 1: the log was truncated",
    ):
        read(broker, topic, 3, 5)


def test_a_recreated_topic_is_refused(broker: TestBroker) -> None:
    topic = broker.topic()
    send(broker.producer(), topic, b"old")
    ours = reader(broker, topic)
    broker.delete_topic(topic)
    with pytest.raises(
        IdentityChanged, match=f"topic '{topic}' does not exist on the cluster at 127"
    ):
        rows(ours.read(0, OffsetRange(start=0, end=1)))
    broker.topic(name=topic)
    send(broker.producer(), topic, b"new")
    with pytest.raises(
        IdentityChanged,
        match=rf"deleted and created again: expected id {ours.topic_id}, found",
    ):
        rows(ours.read(0, OffsetRange(start=0, end=1)))


def test_a_topic_recreated_during_a_read_returns_no_new_records(broker: TestBroker) -> None:
    topic = broker.topic()
    producer = broker.producer()
    for _ in range(20):
        send(producer, topic, b"old" * 1_000)
    ours = reader(broker, topic, fetch_bytes_max=1, batch_rows=1)
    batches = ours.read(0, OffsetRange(start=0, end=20))
    next(batches)
    broker.delete_topic(topic)
    broker.topic(name=topic)
    send(broker.producer(), topic, *(b"new" for _ in range(20)))
    values: list[bytes] = []
    with pytest.raises(IdentityChanged, match="deleted and created again"):
        values.extend(value for batch in batches for value in batch["value"].to_pylist())
    assert b"new" not in values


def test_a_topic_that_is_recreated_after_the_last_fetch_is_refused(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new topic has the same records, offsets and leader epochs, so only its id differs."""
    topic = broker.topic()
    send(broker.producer(), topic, b"0", b"1")
    ours = reader(broker, topic)
    asked = KafkaClient.epoch_ends

    def after_it_is_recreated(client: KafkaClient, *words: Any) -> Any:
        broker.delete_topic(topic)
        broker.topic(name=topic)
        send(broker.producer(), topic, b"0", b"1")
        return asked(client, *words)

    monkeypatch.setattr(KafkaClient, "epoch_ends", after_it_is_recreated)
    batches = ours.read(
        0, OffsetRange(start=0, end=2), planned_end=Position(offset=2, leader_epoch=0)
    )
    with pytest.raises(IdentityChanged, match=f"expected id {ours.topic_id}, found"):
        rows(batches)


def test_another_cluster_is_refused(broker: TestBroker) -> None:
    topic = broker.topic()
    send(broker.producer(), topic, b"0")
    with pytest.raises(
        IdentityChanged, match=r"expected cluster elsewhere as in the ledger, found .* at 127"
    ):
        read(broker, topic, 0, 1, cluster_id="elsewhere")


def test_a_partition_that_does_not_exist_is_named(broker: TestBroker) -> None:
    topic = broker.topic()
    with pytest.raises(
        IdentityChanged, match="partition 3 does not exist: the topic has 1 partitions"
    ):
        list(reader(broker, topic).read(3, OffsetRange(start=0, end=1)))


def test_an_epoch_that_the_log_never_had_is_truncation(broker: TestBroker) -> None:
    topic = broker.topic()
    send(broker.producer(), topic, b"0", b"1")
    ours = reader(broker, topic)
    assert len(rows(ours.read(0, OffsetRange(start=1, end=2), leader_epoch=0))) == 1
    with pytest.raises(LogDamaged, match="the record before offset 1 was of leader epoch 9"):
        rows(ours.read(0, OffsetRange(start=1, end=2), leader_epoch=9))


def test_a_planned_end_that_the_log_no_longer_reaches_is_truncation(broker: TestBroker) -> None:
    topic = broker.topic()
    send(broker.producer(), topic, b"0", b"1")
    ours = reader(broker, topic)
    span = OffsetRange(start=0, end=2)
    present = Position(offset=2, leader_epoch=0)
    assert len(rows(ours.read(0, span, planned_end=present))) == 2
    for lost in (Position(offset=3, leader_epoch=0), Position(offset=2, leader_epoch=9)):
        message = f"the record before offset {lost.offset} was of leader epoch {lost.leader_epoch}"
        with pytest.raises(LogDamaged, match=message):
            rows(ours.read(0, span, planned_end=lost))


def refusal(settings: KafkaSettings) -> str:
    ours = RangeReader(settings, topic="t", topic_id="x", cluster_id="c", compacted=False)
    try:
        list(ours.read(0, OffsetRange(start=0, end=1)))
    except KafkaUnavailable as error:
        return str(error)
    pytest.fail("the range was read")


def test_an_address_without_a_broker_is_named_in_the_error() -> None:
    port = free_port()
    text = refusal(
        KafkaSettings(bootstrap_servers=(f"127.0.0.1:{port}",), bootstrap_timeout_ms=300)
    )
    assert (
        f"127.0.0.1:{port}: KafkaConnectionError: 111 ECONNREFUSED. Next: check that the brokers are up"
        in text
    )


def test_a_slow_caller_loses_nothing(broker: TestBroker) -> None:
    """The caller is slower than the request timeout with a fetch in flight: the reader reconnects and continues."""
    topic = broker.topic()
    producer = broker.producer()
    for _ in range(6):
        send(producer, topic, *(random.Random(1).randbytes(1_000) for _ in range(900)))
    options = {
        "request_timeout_ms": 400,
        "bootstrap_timeout_ms": 5_000,
        "bootstrap_servers": (broker.bootstrap,),
    }
    ours = reader(broker, topic, fetch_bytes_max=512 << 10, batch_rows=900)
    ours.settings = KafkaSettings(**options)  # type: ignore[arg-type]
    found: list[int] = []
    pause = threading.Event()
    for batch in ours.read(0, OffsetRange(start=0, end=5_400)):
        found.extend(batch["offset"].to_pylist())
        pause.wait(0.5)
    assert found == list(range(5_400))


def test_a_batch_remains_valid_after_the_next_one(
    broker: TestBroker, mixed: dict[str, tuple[str, int]]
) -> None:
    """Arrow batches own their bytes: buffers are not reused while a caller keeps the batch."""
    topic, end = mixed["zstd"]
    ours = reader(broker, topic, fetch_bytes_max=1, batch_rows=1)
    batches: Sequence[pa.RecordBatch] = list(ours.read(0, OffsetRange(start=0, end=end)))
    assert rows(iter(batches)) == consumed(broker, topic, 0, end)


@pytest.mark.parametrize("start", [0, 3])
def test_a_reader_can_return_the_ranges_and_latest_times_of_aborted_records(
    broker: TestBroker, start: int
) -> None:
    """Even if a range begins or ends inside their batch: boundaries are at records, not at batches."""
    topic = broker.topic()
    producer = broker.transactions(f"{topic}-aborts")
    for stamps, abort in (([10], False), ([20, 50, 30, 40], True), ([60], False)):
        producer.begin_transaction()
        for stamp in stamps:
            producer.produce(topic, b"{}", partition=0, timestamp=stamp)
        assert producer.flush(30) == 0
        broker.end(producer, topic, abort=abort)
    # 0 a record, 1 its marker, 2 to 5 aborted, 6 their marker, 7 a record
    ours = reader(broker, topic, collect_aborted=True)
    rows(ours.read(0, OffsetRange(start=start, end=8)))
    assert ours.aborted_times == [(max(2, start), 50)]
    rows(ours.read(0, OffsetRange(start=4, end=5)))
    assert ours.aborted_times == [(4, 30)]
    silent = reader(broker, topic)
    rows(silent.read(0, OffsetRange(start=0, end=8)))
    assert not silent.aborted_times
