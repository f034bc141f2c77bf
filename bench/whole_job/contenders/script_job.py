"""The job of the contender script: confluent-kafka, msgspec, PyArrow and boto3, without a framework.

    python script_job.py ORDER

ORDER is a JSON file: topic, ends, bootstrap, bucket, prefix, case, processes, scratch. Each process reads some of the
partitions, one after another, and uploads a file per partition and table. Nothing is committed: a second run would leave
other files next to these.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

AT_ONCE = 50_000
POLL_S = 1.0
POLLS_MAX = 60
DEVICE = pa.struct([("os", pa.string()), ("ver", pa.string())])
SCHEMA = pa.schema(
    [
        ("event_id", pa.string()),
        ("event_type", pa.string()),
        ("user_id", pa.int64()),
        ("session", pa.string()),
        ("ts", pa.int64()),
        ("page", pa.string()),
        ("referrer", pa.string()),
        ("price", pa.float64()),
        ("qty", pa.int32()),
        ("device", DEVICE),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
DEAD = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])


class Device(msgspec.Struct, gc=False):
    """The nested object."""

    os: str
    ver: str


class Click(msgspec.Struct, gc=False):
    """One event, as its JSON is."""

    event_id: str
    event_type: str
    user_id: int
    session: str
    ts: int
    page: str
    referrer: str
    price: float
    qty: int
    device: Device


def main(path: Path) -> None:
    """Do the job of an order."""
    order = json.loads(path.read_text())
    partitions = range(len(order["ends"]))
    context = get_context("fork")  # no thread has been started yet
    with ProcessPoolExecutor(order["processes"], mp_context=context) as processes:
        sums = list(processes.map(partition_job, [order] * len(partitions), partitions))
    if order["case"] == "three":
        joined = (
            pa.concat_tables(sums)
            .group_by(["event_type", "hour"])
            .aggregate([("events", "sum"), ("revenue", "sum")])
            .rename_columns(["event_type", "hour", "events", "revenue"])
        )
        file = Path(order["scratch"], "totals.parquet")
        pq.write_table(joined, file, compression="zstd", compression_level=1)
        upload(order, file, "totals/totals.parquet")


def partition_job(order: dict[str, Any], partition: int) -> pa.Table:
    """Read one partition, upload its files, and return the totals of its batches."""
    gc.disable()
    scratch = Path(order["scratch"])
    file = scratch / f"{partition}.parquet"
    decoder = msgspec.json.Decoder(Click)
    is_three = order["case"] == "three"
    sums, dead = [], []
    unique = ["event_type", "page", "referrer", "device.os", "device.ver", "partition"]
    with pq.ParquetWriter(
        file, SCHEMA, compression="zstd", compression_level=1, use_dictionary=unique
    ) as writer:
        for messages in consumed(order, partition):
            rows, broken = decoded(decoder, messages, partition)
            writer.write_table(rows)
            if is_three:
                sums.append(summed(rows))
                dead.append(broken)
    upload(order, file, f"events/{partition}.parquet")
    if not is_three:
        return pa.table({})
    file = scratch / f"dead-{partition}.parquet"
    pq.write_table(pa.concat_tables(dead), file, compression="zstd", compression_level=1)
    upload(order, file, f"dead_letters/{partition}.parquet")
    return pa.concat_tables(sums)


def consumed(order: dict[str, Any], partition: int) -> Iterator[list[Message]]:
    """Yield the messages of the partition up to its ordered end; raises TimeoutError if none come for a minute."""
    consumer = Consumer(
        {
            "bootstrap.servers": order["bootstrap"],
            "group.id": "bench-script",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 16 << 20,
            "queued.max.messages.kbytes": 256 << 10,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(order["topic"], partition, 0)])
    left, polls = order["ends"][partition], 0
    try:
        while left:
            messages = consumer.consume(min(AT_ONCE, left), POLL_S)
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
            polls = 0 if messages else polls + 1
            if polls > POLLS_MAX:
                raise TimeoutError(f"partition {partition}: {left} messages did not arrive")
            left -= len(messages)
            if messages:
                yield messages
    finally:
        consumer.close()


def decoded(
    decoder: msgspec.json.Decoder[Click], messages: list[Message], partition: int
) -> tuple[pa.Table, pa.Table]:
    """Return the rows of the valid messages, and those of the broken ones."""
    clicks, offsets, times, dead = [], [], [], []
    decode = decoder.decode
    for message in messages:
        value = message.value() or b""
        try:
            click = decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            dead.append((message.offset(), value))
            continue
        clicks.append(click)
        offsets.append(message.offset())
        times.append(message.timestamp()[1])
    devices = pa.StructArray.from_arrays(
        [pa.array([c.device.os for c in clicks]), pa.array([c.device.ver for c in clicks])],
        fields=list(DEVICE),
    )
    columns = [
        pa.array([c.event_id for c in clicks], pa.string()),
        pa.array([c.event_type for c in clicks], pa.string()),
        pa.array([c.user_id for c in clicks], pa.int64()),
        pa.array([c.session for c in clicks], pa.string()),
        pa.array([c.ts for c in clicks], pa.int64()),
        pa.array([c.page for c in clicks], pa.string()),
        pa.array([c.referrer for c in clicks], pa.string()),
        pa.array([c.price for c in clicks], pa.float64()),
        pa.array([c.qty for c in clicks], pa.int32()),
        devices,
        pa.repeat(pa.scalar(partition, pa.int32()), len(clicks)),
        pa.array(offsets, pa.int64()),
        pa.array(times, pa.int64()).cast(pa.timestamp("ms", tz="UTC")),
    ]
    broken = {
        "partition": [partition] * len(dead),
        "offset": [offset for offset, _ in dead],
        "value": [value for _, value in dead],
    }
    return pa.table(columns, schema=SCHEMA), pa.table(broken, schema=DEAD)


def summed(rows: pa.Table) -> pa.Table:
    """Return the number and the revenue of the rows per type and hour."""
    amounts = pa.table(
        {
            "event_type": rows["event_type"],
            "hour": pc.divide(rows["ts"], 3_600_000),
            "revenue": pc.multiply(rows["price"], rows["qty"]),
        }
    )
    totals = amounts.group_by(["event_type", "hour"])
    return totals.aggregate([([], "count_all"), ("revenue", "sum")]).rename_columns(
        ["event_type", "hour", "events", "revenue"]
    )


def upload(order: dict[str, Any], file: Path, name: str) -> None:
    """Upload a file and delete it. Safe to repeat: the object is replaced."""
    boto3.client("s3").upload_file(str(file), order["bucket"], f"{order['prefix']}/{name}")
    file.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
