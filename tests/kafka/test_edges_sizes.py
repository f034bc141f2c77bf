"""Records and partitions of any size: a byte, 64 MiB, 300 headers, five million records next to an empty partition."""

from __future__ import annotations

import base64
import json
import os
import resource
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from support.brokers import TestBroker, send
from support.kafka_batches import Sent, batch
from support.log_lake import LogLake, at, consumed, days, decoded, ms, value
from support.raw_produce import produce_raw
from tallystick.pipeline import DEAD_LETTERS, Column

MIB = 1 << 20
HEADERS: list[tuple[str, bytes | None]] = [
    *((f"h{n}", b"%d" % n) for n in range(297)),
    ("twice", b"1"),
    ("twice", None),
    ("", b""),
]


def padded(number: int, size_bytes: int) -> bytes:
    """Return a valid value of exactly this size."""
    bare = len(value(number, ""))
    return value(number, "x" * (size_bytes - bare))


VALUES: dict[str, tuple[bytes | None, str | None]] = {
    # the value, and the beginning of the reason of its dead letter (None: it becomes a row)
    "null": (None, "tombstone: "),
    "empty": (b"", "json: "),
    "one byte": (b"{", "json: "),
    "300 headers": (value(3), None),
    "300 headers and no JSON": (b"[", "json: "),
    "1 MiB": (padded(5, MIB), None),
    "30 MiB": (padded(6, 30 * MIB), "size: the value has 31457280 bytes, more than 16777216"),
    "64 MiB": (padded(7, 64 * MIB), "size: the value has 67108864 bytes, more than 16777216"),
    "small again": (value(8), None),
}


def test_a_record_of_any_size_is_a_row_or_a_whole_dead_letter(broker: TestBroker) -> None:
    topic = broker.topic(max_message_bytes=80 * MIB)
    producer = broker.producer(message_max_bytes=80 * MIB)
    for name, (sent, _) in VALUES.items():
        headers = HEADERS if "headers" in name else []
        send(producer, topic, sent, key=name.encode(), headers=headers, timestamp=ms(at(0.5)))
    lake = LogLake(broker, [topic])
    lake.run(days(0, 1))
    places = {(topic, 0, offset): name for offset, name in enumerate(VALUES)}
    expected = consumed(broker, topic)
    dead = {places[place]: row for place, row in lake.rows(DEAD_LETTERS).items()}
    good = {places[place]: row for place, row in lake.rows().items()}
    assert set(dead) == {name for name, (_, reason) in VALUES.items() if reason is not None}
    assert set(good) == set(VALUES) - set(dead)
    for place, name in places.items():
        assert expected[place] == (ms(at(0.5)), VALUES[name][0])
    for name, row in dead.items():
        assert row["value"] == VALUES[name][0]
        assert row["key"] == name.encode()
        assert row["reason"].startswith(VALUES[name][1]), row["reason"]
    assert good["1 MiB"]["text"] == "x" * (MIB - len(value(5, "")))
    headers = json.loads(dead["300 headers and no JSON"]["headers"])
    assert [(n, v if v is None else base64.b64decode(v)) for n, v in headers] == HEADERS
    lake.assert_verified()


RECORDS_PER_BATCH = 50_000
RECORDS = int(os.environ.get("EDGE_RECORDS", "5_000_000"))
MEMORY_MIB_MAX = 400


def test_a_partition_of_five_million_records_next_to_an_empty_one(broker: TestBroker) -> None:
    """One interval, five tasks, in limited memory: no split is ever in memory as a whole."""
    topic = broker.topic(2)
    records = batch(
        *(
            Sent(value=b'{"n":%d}' % (n % 10), timestamp=ms(at(0.5)))
            for n in range(RECORDS_PER_BATCH)
        ),
        codec="lz4",
    )
    produce_raw(broker, topic, *(records for _ in range(RECORDS // RECORDS_PER_BATCH)))
    lake = LogLake(broker, [topic])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = lake.run(days(0, 1))
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert done is not None
    assert [account.records for account in lake.record(days(0, 1)).accounts] == [RECORDS, 0]
    assert {split.partition for split in lake.tasks_run} == {0}
    assert len(lake.tasks_run) == -(-RECORDS // 1_000_000)
    offsets, numbers = _stored(lake)
    assert np.array_equal(np.sort(offsets), np.arange(RECORDS))
    assert np.array_equal(numbers[np.argsort(offsets)], np.arange(RECORDS) % 10)
    assert grown_mib < MEMORY_MIB_MAX


def _stored(lake: LogLake) -> tuple[Any, Any]:
    """Return offsets and values of the files that the commit added, read from Parquet directly."""
    tables = []
    for key in lake.record(days(0, 1)).added["events"]:
        found = lake.lake.store.get(key)
        assert found is not None
        tables.append(pq.read_table(pa.BufferReader(found.body), columns=["_offset", "n"]))
    whole = pa.concat_tables(tables)
    return whole["_offset"].to_numpy(), whole["n"].to_numpy()


def test_a_tombstone_is_a_row_if_the_pipeline_keeps_tombstones(broker: TestBroker) -> None:
    topic = broker.topic()
    send(broker.producer(), topic, None, value(1), None, key=b"k", timestamp=ms(at(0.5)))
    columns = (
        Column("n", "long", required=False),
        Column("text", "string", required=False),
    )
    lake = LogLake(broker, [decoded(topic, *columns, tombstones="keep")])
    lake.run(days(0, 1))
    assert [row["n"] for row in lake.rows().values()] == [None, 1, None]
    lake.assert_equals_kafka(topic)
