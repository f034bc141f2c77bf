"""Divides a plan into input splits: contiguous offsets of one partition, identified by a number, which one task reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.format.offsets import EPOCH_UNKNOWN, OffsetRange
from tallystick.format.plan import Plan, PlannedTopic

TASK_OFFSETS_MIN = 50_000
"""Splits with fewer offsets together share a task: starting it, and on its core a Python worker, costs more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSplit(StoredValue):
    """The offsets of one partition that one task reads; `index` numbers a plan's splits from 0.

    `start_epoch`: the leader epoch of the record before the start. The plan has it only for the start of a planned range;
    it is EPOCH_UNKNOWN for other splits.
    """

    index: int
    topic: str
    partition: int
    span: OffsetRange
    start_epoch: int = EPOCH_UNKNOWN

    def __post_init__(self) -> None:
        if self.index < 0 or self.partition < 0 or self.span.empty:
            raise ValueError(
                f"expected an input split, found {self.topic}[{self.partition}] {self.span} with index {self.index}"
            )

    @property
    def source(self) -> str:
        """The topic's name in Kafka; `topic` is the ledger's name, which differs per incarnation."""
        return keys.kafka_topic(self.topic)

    @property
    def place(self) -> tuple[str, int]:
        """The topic, by its name in the ledger, and the partition."""
        return self.topic, self.partition

    @property
    def task(self) -> str:
        """The split's part of a data file's key."""
        return f"{self.index:05d}"

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] {self.span}"


def split_plan(plan: Plan, *, records_per_task: int) -> tuple[InputSplit, ...]:
    """Divide the readable offsets of a plan into splits of at most `records_per_task` offsets, always the same ones.

    A range is divided evenly into as few splits as this limit allows: a task costs 10 to 17 ms, so short tasks are
    inefficient. A range without offsets has no split. Offsets that were lost before the plan was made are not read.
    """
    return split_topics(plan.topics, records_per_task=records_per_task)


def grouped(
    splits: Sequence[InputSplit], *, records_per_task: int
) -> tuple[tuple[InputSplit, ...], ...]:
    """Return the splits of each task: small ones that follow each other share a task, which reads them one by one.

    A task has one split, or several with at most TASK_OFFSETS_MIN offsets together (at most `records_per_task`, if that
    is less). So large splits never share a task, however many small ones there are.
    """
    most = min(TASK_OFFSETS_MIN, records_per_task)
    groups: list[list[InputSplit]] = []
    room = 0
    for split in splits:
        if not groups or split.span.length > room:
            groups.append([])
            room = most
        groups[-1].append(split)
        room -= split.span.length
    return tuple(map(tuple, groups))


def split_topics(
    topics: Sequence[PlannedTopic], *, records_per_task: int, first: int = 0
) -> tuple[InputSplit, ...]:
    """Divide the readable ranges of some topics as `split_plan` does, and number the splits from `first`."""
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
            # If offsets are lost, the record before the first readable one is lost too.
            start_epoch=planned.start_epoch if start == planned.start else EPOCH_UNKNOWN,
        )
        for i, (start, end) in enumerate(pairwise(edges))
    ]
