"""Topics filled by three clients in every codec, read by our reader and by confluent-kafka's consumer as a reference."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from kafka import KafkaProducer
from support.brokers import TestBroker, send
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.batches import walk
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.reader import RangeReader
from tallystick.kafka.wire import FetchOrder
from tallystick_devstack.java import find_java
from tallystick_devstack.kafka import default_jar_folder

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKNOWLEDGED_S = 120.0
FETCH_BYTES_MAX = 256 << 10
# kafka-python computes checksums in Python: 30 MiB would take it three CPU seconds per codec.
LARGEST_BYTES = {"confluent-kafka": 30 << 20, "kafka-python": 2 << 20}
Headers = list[tuple[str, bytes | None]]
Row = tuple[int, int, bytes | None, bytes | None, Headers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One record, and the feature that it tests."""

    feature: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def texts(chance: random.Random) -> list[Sent]:
    """Return records that a console can type: without tabs and line ends."""
    found = [
        Sent(
            feature="plain", key=b"k%d" % n, value=b'{"n": %d, "pad": "%s"}' % (n, b"x" * (n % 90))
        )
        for n in range(2_000)
    ]
    found += [
        Sent(
            feature="nulls",
            key=chance.choice([None, b"", b"k"]),
            value=chance.choice([None, b"", b"v"]),
        )
        for _ in range(300)
    ]
    many = tuple((f"h{n}", b"%d" % n) for n in range(300))
    twice = (("same", b"1"), ("other", None), ("same", b"2"), ("same", b""))
    for headers in (many, twice) * 20:
        found.append(Sent(feature="headers", value=b"v", headers=headers))
    found.append(Sent(feature="batch > fetch", value=b"L" * 700_000))
    return found


def octets(chance: random.Random, largest_bytes: int) -> list[Sent]:
    """Return records that only a program can send: any bytes, and a record far larger than a fetch."""
    found = [
        Sent(
            feature="any bytes",
            key=chance.randbytes(chance.randrange(40)),
            value=chance.randbytes(chance.randrange(2_000)),
            headers=(("", chance.randbytes(9)), ("ключ", None)) if n % 7 == 0 else (),
        )
        for n in range(500)
    ]
    found.append(Sent(feature="> fetch", value=chance.randbytes(largest_bytes)))
    return found


def by_confluent(broker: TestBroker, topic: str, codec: str, records: list[Sent]) -> None:
    """Send with librdkafka's producer, through confluent-kafka."""
    producer = broker.producer(compression_type=codec, linger_ms=50, message_max_bytes=64 << 20)
    for record in records:
        send(
            producer, topic, record.value, key=record.key, headers=list(record.headers), flush=False
        )
    assert producer.flush(ACKNOWLEDGED_S) == 0, (
        "the broker did not acknowledge every record in time"
    )


def by_kafka_python(broker: TestBroker, topic: str, codec: str, records: list[Sent]) -> None:
    """Send with kafka-python's producer."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        compression_type=None if codec == "none" else codec,
        linger_ms=50,
        batch_size=64 << 10,
        max_request_size=64 << 20,
    )
    try:
        sent = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=0,
            )
            for record in records
        ]
        producer.flush(ACKNOWLEDGED_S)
        for future in sent:
            future.get(ACKNOWLEDGED_S)
    finally:
        producer.close(ACKNOWLEDGED_S)


def by_java(broker: TestBroker, topic: str, codec: str, records: list[Sent]) -> None:
    """Send with Apache Kafka's console producer, from lines of text: headers, key and value."""
    words: list[str] = [
        str(find_java()),
        "-Xmx256m",
        "-cp",
        f"{default_jar_folder()}/*",
        "org.apache.kafka.tools.ConsoleProducer",
    ]
    words += ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    words += ["--compression-codec", codec, "--max-block-ms", "30000"]
    for word in ("parse.key=true", "parse.headers=true", "null.marker=NULL"):
        words += ["--property", word]
    completed = subprocess.run(
        words,
        input=b"".join(map(_line, records)),
        capture_output=True,
        timeout=ACKNOWLEDGED_S,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr.decode()[-2_000:]


def _line(record: Sent) -> bytes:
    headers = b",".join(name.encode() + b":" + _typed(value) for name, value in record.headers)
    return b"\t".join((headers or b"NULL", _typed(record.key), _typed(record.value))) + b"\n"


def _typed(value: bytes | None) -> bytes:
    return b"NULL" if value is None else value


CLIENTS: Mapping[str, Callable[[TestBroker, str, str, list[Sent]], None]] = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "Java console": by_java,
}


def records_of(client: str) -> list[Sent]:
    """Return the records of a client, the same in each codec."""
    chance = random.Random(17)
    found = texts(chance)
    if client != "Java console":
        found += octets(chance, LARGEST_BYTES[client])
    if client == "kafka-python":
        # It sends no record that has neither key nor value, and no header without a value.
        found = [
            replace(record, headers=tuple((name, value or b"") for name, value in record.headers))
            for record in found
            if record.key is not None or record.value is not None
        ]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The rows of a topic that we read, those that the reference consumer got, and the codecs of the topic's batches."""

    ours: list[Row]
    consumed: list[Row]
    codecs: set[int]
    account: tuple[int, int, int, int]


def compare(broker: TestBroker, client: str, codec: str) -> Compared:
    """Fill a topic by `client` in `codec`, and read it with both readers."""
    topic = broker.topic(max_message_bytes=80 << 20)
    CLIENTS[client](broker, topic, codec, records_of(client))
    end = broker.high_watermark(topic)
    with KafkaClient(broker.settings) as kafka:
        topic_id, cluster_id = kafka.layout(topic).topic_id, kafka.cluster_id()
    reader = RangeReader(
        broker.settings,
        topic=topic,
        topic_id=topic_id,
        cluster_id=cluster_id,
        compacted=False,
        headers=True,
        fetch_bytes_max=FETCH_BYTES_MAX,
    )
    ours = list(rows_of(reader.read(0, OffsetRange(start=0, end=end))))
    account = reader.account
    counts = (account.records, account.aborted, account.control, account.absent)
    return Compared(
        ours=ours,
        consumed=list(consumed(broker, topic, end)),
        codecs=codecs_of(broker, topic, end),
        account=counts,
    )


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """Yield the rows of our batches in the form of the reference."""
    for batch in batches:
        plain = batch.set_column(1, "timestamp", batch["timestamp"].cast(pa.int64()))
        for row in plain.to_pylist():
            headers = [(header["key"], header["value"]) for header in row["headers"]]
            yield row["offset"], row["timestamp"], row["key"], row["value"], headers


def consumed(broker: TestBroker, topic: str, end: int) -> Iterator[Row]:
    """Yield the records of [0, end) that confluent-kafka's consumer gets, read_committed."""
    words: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"reference-{topic}",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.message.max.bytes": 80 << 20,
        "receive.message.max.bytes": 128 << 20,
    }
    consumer = Consumer(words)
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            found = consumer.poll(ACKNOWLEDGED_S)
            assert found is not None, f"the reference consumer got nothing for {ACKNOWLEDGED_S} s"
            if found.error() is not None:
                assert found.error().code() == -191, found.error()  # the partition's end
                return
            if found.offset() < end:
                yield (
                    found.offset(),
                    found.timestamp()[1],
                    found.key(),
                    found.value(),
                    list(found.headers() or []),
                )
    finally:
        consumer.close()


def codecs_of(broker: TestBroker, topic: str, end: int) -> set[int]:
    """Return the codecs of the batches in the log: without this, a client that does not compress would pass, too."""
    found: set[int] = set()
    offset = 0
    with KafkaClient(broker.settings) as client:
        layout = client.layout(topic)
        while offset < end:
            order = FetchOrder(
                layout=layout,
                partition=0,
                offset=offset,
                bytes_max=1 << 20,
                wait_ms=100,
                committed=False,
            )
            for batch in walk(client.fetch(order).result().records, place=topic):
                found.add(batch.codec)
                offset = batch.end_offset
    return found
