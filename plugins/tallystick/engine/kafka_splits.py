"""Reads a plan's input splits from Kafka: adapts the range reader to the interface of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tallystick.connections.kafka import KafkaSettings
from tallystick.engine.input_splits import InputSplit
from tallystick.engine.records import BATCH_BYTES, BATCH_ROWS
from tallystick.format import keys
from tallystick.format.offsets import Position
from tallystick.format.plan import PlannedTopic
from tallystick.kafka.accounting import ReadAccount
from tallystick.kafka.reader import RangeReader
from tallystick.kafka.shared import SharedClient


class KafkaReading:
    """One input split of one topic incarnation, read from the partition's leader.

    After its last fetch, each split checks that the log still reaches the end of its whole planned range. If the log is
    truncated after one split is read, the splits that are read later detect it. Headers are always read, because a dead
    letter contains them and is detected only after its batch is fetched. `collect_aborted`: collect `aborted_times` for
    the log's clock, which aborted records advance. `shared`: the client of all splits of a task.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: PlannedTopic,
        split: InputSplit,
        *,
        collect_aborted: bool = False,
        shared: SharedClient | None = None,
    ) -> None:
        self._split = split
        planned = topic.ranges[split.partition]
        self._planned_end = Position(offset=planned.end, leader_epoch=planned.end_epoch)
        self._reader = RangeReader(
            settings,
            topic=keys.kafka_topic(topic.name),
            topic_id=topic.topic_id,
            cluster_id=topic.cluster_id,
            compacted=topic.compacted,
            batch_rows=BATCH_ROWS,
            batch_bytes=BATCH_BYTES,
            headers=True,
            collect_aborted=collect_aborted,
            shared=shared,
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the split's committed records in order; raises what RangeReader.read raises."""
        return self._reader.read(
            self._split.partition,
            self._split.span,
            leader_epoch=self._split.start_epoch,
            planned_end=self._planned_end,
        )

    @property
    def aborted_times(self) -> Sequence[tuple[int, int]]:
        """The offset and the latest timestamp (ms) of each batch of aborted records that was passed so far."""
        if not self._reader.collect_aborted:
            # An empty list would mean "none aborted", and the clock would be wrong without an error.
            raise RuntimeError(
                "aborted_times: expected a reader with aborted records included, found one without"
            )
        return self._reader.aborted_times

    @property
    def account(self) -> ReadAccount:
        """The account of the split's offsets, available after all batches are read."""
        return self._reader.account
