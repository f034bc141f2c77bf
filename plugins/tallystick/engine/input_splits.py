"""Cuts a plan into the pieces that tasks read: each one contiguous span of one partition, known by its number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.format.offsets import EPOCH_UNKNOWN, OffsetRange
from tallystick.format.plan import Plan, PlannedTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSplit(StoredValue):
    """Offsets of one partition that one task reads; `index` numbers a plan's pieces from 0.

    `start_epoch` is the leader epoch of the record before its start, where the plan knows it: only at the start of a
    planned range, else EPOCH_UNKNOWN.
    """

    index: int
    topic: str
    partition: int
    span: OffsetRange
    start_epoch: int = EPOCH_UNKNOWN

    def __post_init__(self) -> None:
        if self.index < 0 or self.partition < 0 or self.span.empty:
            raise ValueError(f"{self.topic}[{self.partition}] {self.span} is no piece {self.index}")

    @property
    def source(self) -> str:
        """The topic's name in Kafka; `topic` is the ledger's, which tells incarnations apart."""
        return keys.kafka_topic(self.topic)

    @property
    def task(self) -> str:
        """The piece's part of a data file's key."""
        return f"{self.index:05d}"

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] {self.span}"


def split_plan(plan: Plan, *, records_per_task: int) -> tuple[InputSplit, ...]:
    """Cut what a plan can read into pieces of at most `records_per_task` offsets, the same ones each time.

    A range is cut evenly, into as few pieces as that bound allows: a task costs 10 to 17 ms, a short one is waste.
    Ranges without offsets give none, and offsets that were lost before the plan was made are not read.
    """
    return split_topics(plan.topics, records_per_task=records_per_task)


def split_topics(
    topics: Sequence[PlannedTopic], *, records_per_task: int, first: int = 0
) -> tuple[InputSplit, ...]:
    """Cut the readable ranges of some topics as `split_plan` does, numbering the pieces from `first` on."""
    splits: list[InputSplit] = []
    for topic in topics:
        for partition in range(len(topic.ranges)):
            splits.extend(_cut_range(topic, partition, records_per_task, first=first + len(splits)))
    return tuple(splits)


def _cut_range(
    topic: PlannedTopic, partition: int, records_per_task: int, *, first: int
) -> list[InputSplit]:
    planned = topic.ranges[partition]
    readable = planned.readable
    count = -(-readable.length // records_per_task)
    edges = (
        [readable.start + readable.length * i // count for i in range(count)] + [readable.end]
        if count
        else []
    )
    return [
        InputSplit(
            index=first + i,
            topic=topic.name,
            partition=partition,
            span=OffsetRange(start=start, end=end),
            # What was lost took the record before the first readable one with it.
            start_epoch=planned.start_epoch if start == planned.start else EPOCH_UNKNOWN,
        )
        for i, (start, end) in enumerate(pairwise(edges))
    ]
