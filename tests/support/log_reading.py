"""Lets code that reads Kafka read a `FakeLog`: its planner and its reader are replaced, and nothing above them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import pyarrow as pa
import pytest

from support.fakes import FakeLog
from tallystick.engine.input_splits import InputSplit
from tallystick.format import keys
from tallystick.format.plan import PlannedTopic

BROKEN = b"{"
ENVIRON = {"TALLYSTICK_KAFKA_DEFAULT": '{"bootstrap_servers": "fake:9092"}'}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(slots=True, kw_only=True)
class CountedOffsets:
    """The offsets of a split by class, as a reader counts them: a dead letter is a record."""

    records: int = 0
    aborted: int = 0
    control: int = 0
    absent: int = 0


class FakeLogReading:
    """One input split of a `FakeLog`, in one batch; it implements `Reading`."""

    aborted_times: Sequence[tuple[int, int]] = ()

    def __init__(self, log: FakeLog, topic: PlannedTopic, split: InputSplit) -> None:
        self._log, self._topic, self._split = log, keys.kafka_topic(topic.name), split
        self.account = CountedOffsets()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the split."""
        span = self._split.span
        found = []
        for offset, record in self._log.read(
            self._topic, self._split.partition, span.start, span.end
        ):
            counted = "records" if record.kind in ("data", "dead") else record.kind
            setattr(self.account, counted, getattr(self.account, counted) + 1)
            if counted == "records":
                body = BROKEN if record.kind == "dead" else json.dumps(dict(record.value)).encode()
                found.append((offset, datetime.fromtimestamp(record.at_ms / 1000, UTC), body))
        if found:
            yield _batch(found)


def _batch(found: Sequence[tuple[int, datetime, bytes]]) -> pa.RecordBatch:
    offsets, times, bodies = zip(*found, strict=True)
    return pa.record_batch(
        {
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("ms", tz="UTC")),
            "key": pa.array([b"k"] * len(found), pa.binary()),
            "value": pa.array(bodies, pa.binary()),
            "headers": pa.array([[]] * len(found), _HEADERS),
        }
    )


class OpenedLog:
    """A `FakeLog` as a context manager, as a planner is; counts how often it was opened. `closed`: called at its end."""

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self.opened = 0
        self.closed: Callable[[], None] = lambda: None

    def __call__(self, *_: object) -> OpenedLog:
        return self

    def __enter__(self) -> FakeLog:
        self.opened += 1
        return self._log

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Call `closed`, which a test may set."""
        self.closed()


def use_log(monkeypatch: pytest.MonkeyPatch, log: FakeLog) -> OpenedLog:
    """Make this process read the log in place of Kafka, also when it plans."""
    opened = OpenedLog(log)

    def reading(_: object, topic: PlannedTopic, split: InputSplit, **__: Any) -> FakeLogReading:
        return FakeLogReading(log, topic, split)

    monkeypatch.setattr("tallystick.engine.kafka_splits.KafkaReading", reading)
    monkeypatch.setattr("tallystick.kafka.planning.LogPlanner", opened)
    return opened
