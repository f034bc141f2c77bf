"""Reads a plan's pieces from Kafka: the range reader, as a task wants it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tallystick.connections.kafka import KafkaSettings
from tallystick.engine.input_splits import InputSplit
from tallystick.format import keys
from tallystick.format.offsets import Position
from tallystick.format.plan import PlannedTopic
from tallystick.kafka.accounting import ReadAccount
from tallystick.kafka.reader import RangeReader


class KafkaReading:
    """One piece of one topic incarnation, read from its leader.

    Each piece proves for itself, after its last fetch, that the log still reaches the end of its whole planned range: a
    cut of the log after one piece was read shows in those that are read later. Headers are always read, because a dead
    letter shows only after its batch was fetched, and carries them. `tell_aborted`: for the log's clock, which aborted
    records move.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: PlannedTopic,
        split: InputSplit,
        *,
        tell_aborted: bool = False,
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
            headers=True,
            tell_aborted=tell_aborted,
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the piece's committed records in order; raises what RangeReader.read raises."""
        return self._reader.read(
            self._split.partition,
            self._split.span,
            leader_epoch=self._split.start_epoch,
            planned_end=self._planned_end,
        )

    @property
    def aborted_times(self) -> Sequence[tuple[int, int]]:
        """Where records of aborted transactions were passed so far, and the latest timestamp (ms) among them."""
        if not self._reader.tell_aborted:
            # A clock that took silence for "none" would be wrong without a word.
            raise RuntimeError("this reading was not asked to tell of aborted records")
        return self._reader.aborted_times

    @property
    def account(self) -> ReadAccount:
        """What became of each offset, once all batches were taken."""
        return self._reader.account
