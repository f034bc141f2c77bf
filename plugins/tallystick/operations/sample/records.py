"""Records of one partition to try a declaration on, from Kafka or from a file of JSON lines. Nothing is written."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa

from tallystick.connections.kafka import KafkaSettings
from tallystick.engine.input_splits import InputSplit
from tallystick.errors import InvalidRequest
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.accounting import ReadAccount
from tallystick.kafka.decode import columns_schema
from tallystick.kafka.planning import TopicState
from tallystick.kafka.reader import RangeReader

# A compacted or transactional topic may have offsets without a record: a longer range is read then, this many times.
_TRIES = 3
_LONGER = 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some records of one partition. `from_kafka`: False if their timestamps and offsets are not Kafka's."""

    topic: str
    partition: int
    batches: tuple[pa.RecordBatch, ...]
    from_kafka: bool = True

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def split(self) -> InputSplit:
        """The input split that would read these records."""
        first = self.batches[0].column("offset")[0].as_py()
        last = self.batches[-1].column("offset")[-1].as_py()
        span = OffsetRange(start=first, end=last + 1)
        return InputSplit(index=0, topic=self.topic, partition=self.partition, span=span)

    def values(self) -> Iterator[bytes | None]:
        """Yield the records' values."""
        for batch in self.batches:
            yield from batch.column("value").to_pylist()


@dataclass(slots=True)
class SampleReading:
    """A sample as a task reads an input split."""

    sample: Sample
    aborted_times: Sequence[tuple[int, int]] = field(default_factory=tuple)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        yield from self.sample.batches

    @property
    def account(self) -> ReadAccount:
        """The account: all other offsets count as absent."""
        span, records = self.sample.split.span, self.sample.records
        return ReadAccount(
            span=span, records=records, aborted=0, control=0, absent=span.length - records
        )


def of_topic(
    settings: KafkaSettings, topic: TopicState, count: int, *, both_ends: bool = False
) -> tuple[Sample, ...]:
    """Read about `count` records of a topic, from the beginning of each partition; if `both_ends`, also from its end.

    Raises what RangeReader.read raises.
    """
    extents = {
        p: OffsetRange(start=one.log_start, end=max(one.log_start, one.last_stable))
        for p, one in enumerate(topic.partitions)
    }
    filled = {p: extent for p, extent in extents.items() if not extent.empty}
    share = -(-count // max(1, len(filled)))
    found = []
    for partition, extent in filled.items():
        for span in _spans(extent, share, both_ends=both_ends):
            batches = _read(settings, topic, partition, span, extent)
            if batches:
                found.append(Sample(topic=topic.name, partition=partition, batches=tuple(batches)))
    return tuple(found)


def _spans(extent: OffsetRange, share: int, *, both_ends: bool) -> Iterator[OffsetRange]:
    if not both_ends or extent.length <= share:
        yield OffsetRange(start=extent.start, end=min(extent.end, extent.start + share))
        return
    half = max(1, share // 2)
    yield OffsetRange(start=extent.start, end=extent.start + half)
    yield OffsetRange(start=max(extent.start + half, extent.end - half), end=extent.end)


def _read(
    settings: KafkaSettings,
    topic: TopicState,
    partition: int,
    span: OffsetRange,
    extent: OffsetRange,
) -> list[pa.RecordBatch]:
    reader = RangeReader(
        settings,
        topic=topic.name,
        topic_id=topic.topic_id,
        cluster_id=topic.cluster_id,
        compacted=topic.compacted,
        headers=True,
    )
    wanted = span.length
    for _ in range(_TRIES):
        found = [batch for batch in reader.read(partition, span) if batch.num_rows]
        if found or span.end >= extent.end:
            return found
        longer = min(extent.end, span.end + wanted * _LONGER)
        span, wanted = OffsetRange(start=span.end, end=longer), wanted * _LONGER
    return found


def of_file(path: Path, topic: str, count: int, *, now: datetime) -> Sample:
    """Read the first `count` lines of a file of JSON lines, .gz or not, as records; empty lines are left out.

    Raises InvalidRequest if the file cannot be read or has no line.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            lines: Iterable[bytes] = gzip.GzipFile(fileobj=file) if packed else file
            kept = list(islice((text for line in lines if (text := line.strip())), count))
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise InvalidRequest(
            f"{path} cannot be read: {error}.",
            hint="name a file of JSON lines, or such a file as .gz.",
        ) from error
    if not kept:
        raise InvalidRequest(
            f"{path}: expected JSON lines, found an empty file.", hint="name a file with records."
        )
    schema = columns_schema(headers=True)
    at_ms = round(now.timestamp() * 1000)
    columns = {
        "offset": pa.array(range(len(kept)), pa.int64()),
        "timestamp": pa.array([at_ms] * len(kept), pa.int64()).cast(schema.field("timestamp").type),
        "key": pa.nulls(len(kept), schema.field("key").type),
        "value": pa.array(kept, schema.field("value").type),
        "headers": pa.array([[]] * len(kept), schema.field("headers").type),
    }
    batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    return Sample(topic=topic, partition=0, batches=(batch,), from_kafka=False)
