"""Makes the records of the benchmark from a seed, fills a topic with them, and writes down what each table must contain.

A record is a click event of about 268 bytes of JSON: 12 fields, two of them in a nested struct. One in 200 is broken: cut
off, without a comma, or with a string for a number. The expected rows come from the same numbers as the JSON, so no
decoder has a part in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.whole_job.contender import CANONICAL, DEAD_LETTERS, EVENTS, TOTALS
from bench.whole_job.places import RecordPlaces, even

BATCH = 100_000
HOUR_MS = 3_600_000
FROM_MS = 1_772_359_200_000  # 2026-03-01T10:00:00Z
BROKEN_SHARE = 0.005
KINDS = ("cut off", "no comma", "wrong type")
TYPES = np.array(["view", "click", "cart", "buy"])
SYSTEMS = np.array(["ios", "android", "web"])
PRODUCER = {
    "log_level": 3,  # errors: a broker that has just started refuses the first try, which is repeated
    "enable.idempotence": True,  # in order: the offset of each record is computed, not read back
    "compression.type": "lz4",
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 500_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBatch:
    """Consecutive records: what is produced, and the rows of those that are not broken.

    `kinds` is the number of the fault of each record, here its index in `KINDS`; -1 if it has none.
    """

    first: int
    partitions: np.ndarray[Any, np.dtype[np.int32]]
    offsets: np.ndarray[Any, np.dtype[np.int64]]
    timestamps: list[int]
    values: list[bytes]
    kinds: np.ndarray[Any, np.dtype[np.int8]]
    rows: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledTopic:
    """A topic with its records, whose timestamps are in `hours` hours.

    `value_bytes` is the sum of all values, `sha256` the digest of all values in order. `canonical`: by table, the columns
    by which a result is compared with the file in `expected`, with their types.
    """

    topic: str
    ends: tuple[int, ...]
    broken: int
    value_bytes: int
    sha256: str
    expected: Path
    hours: int = 1
    canonical: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: CANONICAL)


def clicks(
    seed: int, records: int, *, hours: int = 1, places: RecordPlaces | None = None
) -> Iterator[MadeBatch]:
    """Yield the records in order; the same seed and number of records and hours give the same bytes.

    Each hour has the same number of records, give or take one; without `places`, so has each of 8 partitions.
    """
    for first in range(0, records, BATCH):
        count = min(BATCH, records - first)
        yield _batch(seed, first, count, records, hours, places or even())


def _batch(
    seed: int, first: int, count: int, records: int, hours: int, places: RecordPlaces
) -> MadeBatch:
    partitions, offsets = places.of(first, count)
    chance = np.random.default_rng([seed, first])
    numbers = np.arange(first, first + count, dtype=np.int64)
    timestamps = FROM_MS + numbers * (hours * HOUR_MS) // records
    # Events arrive late: half of them within 42 s, a few of the hour before.
    late_ms = np.minimum(chance.exponential(60_000, count), HOUR_MS).astype(np.int64)
    words = chance.bytes(25 * count).hex()
    columns: dict[str, Any] = {
        "event_id": [_uuid(words[at : at + 32]) for at in range(0, 50 * count, 50)],
        "event_type": TYPES[chance.choice(4, count, p=[0.6, 0.3, 0.07, 0.03])].tolist(),
        "user_id": chance.integers(0, 10**6, count),
        "session": [words[at : at + 18] for at in range(32, 50 * count, 50)],
        "ts": timestamps - late_ms,
        "page": [f"/p/{n}" for n in chance.integers(0, 5_000, count).tolist()],
        "referrer": [f"https://x.example/{n}" for n in chance.integers(0, 99, count).tolist()],
        "price": chance.integers(0, 10_000, count) / 100,
        "qty": chance.integers(0, 9, count).astype(np.int32),
        "os": SYSTEMS[chance.integers(0, 3, count)].tolist(),
        "ver": [f"{n // 10}.{n % 10}" for n in chance.integers(0, 100, count).tolist()],
        "partition": partitions,
        "offset": offsets,
    }
    is_broken = chance.random(count) < BROKEN_SHARE
    kinds = np.where(is_broken, chance.integers(0, len(KINDS), count), -1).astype(np.int8)
    rows = pa.table(columns)
    values = _values(columns)
    for index in np.flatnonzero(is_broken).tolist():
        values[index] = broken(values[index], KINDS[kinds[index]])
    return MadeBatch(
        first=first,
        partitions=partitions,
        offsets=offsets,
        timestamps=timestamps.tolist(),
        values=values,
        kinds=kinds,
        rows=rows.filter(pa.array(~is_broken)),
    )


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _values(columns: dict[str, Any]) -> list[bytes]:
    lists = [c if isinstance(c, list) else c.tolist() for c in columns.values()]
    return [
        f'{{"event_id": "{event_id}", "event_type": "{event_type}", "user_id": {user_id}, '
        f'"session": "{session}", "ts": {ts}, "page": "{page}", "referrer": "{referrer}", '
        f'"price": {price}, "qty": {qty}, "device": {{"os": "{system}", "ver": "{ver}"}}}}'.encode()
        for event_id, event_type, user_id, session, ts, page, referrer, price, qty, system, ver in zip(
            *lists[:11], strict=True
        )
    ]


def broken(value: bytes, kind: str) -> bytes:
    """Return the value with a fault."""
    match kind:
        case "cut off":
            return value[: len(value) // 2]
        case "no comma":
            return value.replace(b'", "event_type"', b'" "event_type"', 1)
        case _:
            return value.replace(b'"user_id": ', b'"user_id": "u', 1).replace(
                b', "session"', b'", "session"', 1
            )


def fill(
    bootstrap: str,
    topic: str,
    *,
    seed: int,
    records: int,
    expected: Path,
    hours: int = 1,
    places: RecordPlaces | None = None,
) -> FilledTopic:
    """Fill a topic with clicks; write all expected tables to `expected`. See `fill_topic`."""
    places = places or even()
    return fill_topic(
        bootstrap,
        topic,
        clicks(seed, records, hours=hours, places=places),
        ExpectedTables(expected),
        ends=places.ends(records),
        hours=hours,
    )


def fill_topic(
    bootstrap: str,
    topic: str,
    batches: Iterable[MadeBatch],
    expected: ExpectedEvents,
    *,
    ends: tuple[int, ...],
    hours: int = 1,
    canonical: Mapping[str, Mapping[str, str]] = CANONICAL,
) -> FilledTopic:
    """Create the topic, produce the records, and write the expected tables as Parquet files.

    `ends` has the number of records of each partition. Raises SystemExit if the broker does not have every record at the
    end. Not safe to repeat: the topic must be new.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, len(ends), 1, config=config)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
    digest, value_bytes, dead = hashlib.sha256(), 0, 0
    with expected as tables:
        for batch in batches:
            _produce(producer, topic, batch)
            tables.add(batch)
            digest.update(b"".join(batch.values))
            value_bytes += sum(map(len, batch.values))
            dead += int((batch.kinds >= 0).sum())
    if producer.flush(120):
        raise SystemExit(f"{topic}: the broker did not accept every record")
    found = _ends(bootstrap, topic, len(ends))
    if found != ends:
        raise SystemExit(f"{topic}: expected the ends {ends}, found {found}")
    return FilledTopic(
        topic=topic,
        ends=ends,
        broken=dead,
        value_bytes=value_bytes,
        sha256=digest.hexdigest(),
        expected=expected.folder,
        hours=hours,
        canonical=canonical,
    )


def _produce(producer: Producer, topic: str, batch: MadeBatch) -> None:
    partitions = batch.partitions.tolist()
    for index, value in enumerate(batch.values):
        number = batch.first + index
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    str(number % 100_003).encode(),
                    partition=partitions[index],
                    timestamp=batch.timestamps[index],
                )
                break
            except BufferError:
                producer.poll(0.1)
        if index % 1_000 == 0:
            producer.poll(0)


def _ends(bootstrap: str, topic: str, partitions: int) -> tuple[int, ...]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-ends"})
    try:
        places = [TopicPartition(topic, p) for p in range(partitions)]
        return tuple(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
    finally:
        consumer.close()


class ExpectedEvents:
    """Writes the expected table of events, batch by batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._events: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._events is not None:
            self._events.close()

    def add(self, batch: MadeBatch) -> None:
        """Add the rows of a batch. Not safe to repeat: rows of the same batch would be there twice."""
        if self._events is None:
            self._events = pq.ParquetWriter(
                self.folder / f"{EVENTS}.parquet", batch.rows.schema, compression="zstd"
            )
        self._events.write_table(batch.rows)


class ExpectedTables(ExpectedEvents):
    """Writes all expected tables of clicks. The revenue is summed in whole cents, so it is exact."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._dead: list[pa.Table] = []
        self._totals: list[pa.Table] = []

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if raised[0] is None:
            pq.write_table(pa.concat_tables(self._dead), self.folder / f"{DEAD_LETTERS}.parquet")
            pq.write_table(self._summed(), self.folder / f"{TOTALS}.parquet")

    def add(self, batch: MadeBatch) -> None:
        """Add the rows of a batch to each table. Not safe to repeat, as for the events."""
        super().add(batch)
        rows = batch.rows
        bad = np.flatnonzero(batch.kinds >= 0)
        self._dead.append(
            pa.table(
                {
                    "partition": pa.array(batch.partitions[bad]),
                    "offset": pa.array(batch.offsets[bad]),
                    "value": pa.array([batch.values[i] for i in bad.tolist()], pa.binary()),
                }
            )
        )
        cents = pc.round(pc.multiply(rows["price"], 100)).cast(pa.int64())
        self._totals.append(
            pa.table(
                {
                    "event_type": rows["event_type"],
                    "hour": pc.divide(rows["ts"], HOUR_MS),
                    "cents": pc.multiply(cents, rows["qty"].cast(pa.int64())),
                }
            )
            .group_by(["event_type", "hour"])
            .aggregate([([], "count_all"), ("cents", "sum")])
        )

    def _summed(self) -> pa.Table:
        summed = (
            pa.concat_tables(self._totals)
            .group_by(["event_type", "hour"])
            .aggregate([("count_all", "sum"), ("cents_sum", "sum")])
        )
        return pa.table(
            {
                "event_type": summed["event_type"],
                "hour": summed["hour"],
                "events": summed["count_all_sum"],
                "revenue": pc.divide(summed["cents_sum_sum"].cast(pa.float64()), 100.0),
            }
        )
