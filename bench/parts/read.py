"""The CPU cost of a record: tallystick's range reader and confluent-kafka's consume(), into the same four Arrow columns.

    python -m bench.parts.read [--records 2000000] [--rounds 3] [--batch-bytes 1000000]

Starts its own broker in a temporary folder, produces records of about 271 bytes of JSON (lz4, 4 partitions), compares
all rows of both readers, then measures them in turn: CPU seconds of this process (all its threads) per million records.
Exits with 0 only if the rows were equal and tallystick's reader cost a fifth or less.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tallystick.connections.kafka import KafkaSettings
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.decode import TIMESTAMP, warm
from tallystick.kafka.planning import LogPlanner, TopicState
from tallystick.kafka.reader import RangeReader
from tallystick_devstack.kafka import KafkaBroker

PARTITIONS = 4
TOPIC = "events"
BATCH_BYTES = 1_000_000
RATIO_MIN = 5.0
CONSUME_AT_ONCE = 50_000
COLUMNS = ["offset", "timestamp", "key", "value"]
Read = Callable[[int, int], Iterator[pa.RecordBatch]]


def produce(
    bootstrap: str,
    records: int,
    *,
    partitions: int = PARTITIONS,
    codec: str = "lz4",
    batch_bytes: int = BATCH_BYTES,
) -> None:
    """Fill the topic with batches of at most `batch_bytes`, uncompressed. One value in 200 is broken JSON."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(30)
    settings = {
        "compression.type": codec,
        "linger.ms": 50,
        "batch.size": batch_bytes,
        "enable.idempotence": True,
    }
    queue = {"queue.buffering.max.messages": 500_000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings, **queue})
    chance = random.Random(7)
    pool = [_event(chance) for _ in range(20_000)]
    for i in range(records):
        event = pool[i % len(pool)]
        event["ts"] = 1_700_000_000_000 + i * 37
        value = json.dumps(event) if i % 200 else '{"broken": '
        while True:
            try:
                producer.produce(TOPIC, value, key=str(event["user_id"]), partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the broker did not accept every record")


def _event(chance: random.Random) -> dict[str, object]:
    return {
        "event_id": str(uuid.UUID(int=chance.getrandbits(128))),
        "event_type": chance.choice(["view", "click", "cart", "buy"]),
        "user_id": chance.randrange(10**6),
        "session": str(uuid.UUID(int=chance.getrandbits(128)))[:18],
        "ts": 0,
        "page": f"/p/{chance.randrange(5_000)}",
        "referrer": f"https://x.example/{chance.randrange(99)}",
        "price": round(chance.random() * 100, 2),
        "qty": chance.randrange(9),
        "device": {
            "os": chance.choice(["ios", "android", "web"]),
            "ver": f"{chance.randrange(9)}.{chance.randrange(9)}",
        },
    }


def by_tallystick(bootstrap: str, state: TopicState) -> Read:
    """Return tallystick's reader, as a task uses it."""
    reader = RangeReader(
        KafkaSettings(bootstrap_servers=(bootstrap,)),
        topic=TOPIC,
        topic_id=state.topic_id,
        cluster_id=state.cluster_id,
        compacted=state.compacted,
    )
    return lambda partition, end: reader.read(partition, OffsetRange(start=0, end=end))


def by_confluent(bootstrap: str) -> Read:
    """Return a reader by consume() with large fetches and queues, the fastest API of that client for Python."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.message.max.bytes": 16 << 20,
        "queued.max.messages.kbytes": 256 << 10,
        "queued.min.messages": 1_000_000,
    }

    def read(partition: int, end: int) -> Iterator[pa.RecordBatch]:
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        consumed = 0
        while consumed < end:
            messages = consumer.consume(CONSUME_AT_ONCE, 1.0)
            consumed += len(messages)
            columns = [
                pa.array([m.offset() for m in messages], pa.int64()),
                pa.array([m.timestamp()[1] for m in messages], pa.int64()).cast(TIMESTAMP),
                pa.array([m.key() for m in messages], pa.binary()),
                pa.array([m.value() for m in messages], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=COLUMNS)
        consumer.close()

    return read


def measure(read: Read, ends: list[int]) -> tuple[float, float]:
    """Return CPU and wall seconds per million records over the whole topic."""
    cpu, wall, rows = _cpu_s(), time.perf_counter(), 0
    for partition, end in enumerate(ends):
        for batch in read(partition, end):
            rows += batch.num_rows
    if rows != sum(ends):
        raise SystemExit(f"read {rows} rows of {sum(ends)}")
    return (_cpu_s() - cpu) / rows * 1e6, (time.perf_counter() - wall) / rows * 1e6


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def require_equal(left: Read, right: Read, ends: list[int]) -> None:
    """Compare every row of both. Exits at the first partition that differs."""
    for partition, end in enumerate(ends):
        first, second = (
            pa.Table.from_batches(read(partition, end)).select(COLUMNS) for read in (left, right)
        )
        if first.num_rows != end or not first.combine_chunks().equals(
            second.cast(first.schema).combine_chunks()
        ):
            raise SystemExit(f"partition {partition}: the two readers differ")
    print(f"rows equal: {sum(ends):,} in {len(ends)} partitions, all of {', '.join(COLUMNS)}")


def main() -> int:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--batch-bytes", type=int, default=BATCH_BYTES, help="the producer's batch.size"
    )
    arguments = parser.parse_args()
    warm()
    with (
        tempfile.TemporaryDirectory(prefix="bench-read-") as folder,
        KafkaBroker(Path(folder)) as broker,
    ):
        produce(broker.bootstrap, arguments.records, batch_bytes=arguments.batch_bytes)
        with LogPlanner(KafkaSettings(bootstrap_servers=(broker.bootstrap,))) as planner:
            state = planner.describe([TOPIC])[TOPIC]
        ends = [partition.high_watermark for partition in state.partitions]
        ours, theirs = by_tallystick(broker.bootstrap, state), by_confluent(broker.bootstrap)
        require_equal(ours, theirs, ends)
        readers = {"tallystick": ours, "confluent-kafka": theirs}
        figures: dict[str, list[float]] = {name: [] for name in readers}
        for turn in range(1, arguments.rounds + 1):
            results = []
            for name, read in readers.items():
                cpu, wall = measure(read, ends)
                figures[name].append(cpu)
                results.append(f"{name} {cpu:.2f} CPU-s/M ({wall:.2f} s/M wall)")
            print(f"round {turn}: " + ", ".join(results), flush=True)
    ours_s, theirs_s = (statistics.median(figures[name]) for name in readers)
    print(
        f"median: tallystick {ours_s:.2f} CPU-s/M, confluent-kafka {theirs_s:.2f} CPU-s/M, ratio {theirs_s / ours_s:.1f}"
    )
    if theirs_s / ours_s < RATIO_MIN:
        print(
            f"ratio: expected at least {RATIO_MIN:g}, found {theirs_s / ours_s:.1f}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
