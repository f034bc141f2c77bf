"""A plan: the offset ranges of one interval, for one ledger entry, frozen when it is granted.

It contains all that a Spark job needs except secrets. Its key is its identity: generations only order plans and explain
them to people.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from tallystick.format import keys
from tallystick.format.codec import OMITTED, StoredObject, StoredValue
from tallystick.format.columns import TableColumn, check_columns
from tallystick.format.interval import Interval, Request
from tallystick.format.offsets import OffsetRange, Position
from tallystick.format.registries import PlannedRegistry
from tallystick.format.upkeep import COMPRESSIONS, DEFAULT, PARQUET_VERSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRange(StoredValue):
    """Offsets `start <= offset < end` of one partition, with the leader epochs of the records before both ends.

    `readable_from` > start if the log had lost `[start, readable_from)` and an operator accepted the loss.
    """

    AS_LIST: ClassVar[bool] = True

    start: int
    end: int
    start_epoch: int
    end_epoch: int
    readable_from: int

    def __post_init__(self) -> None:
        OffsetRange(start=self.start, end=self.end)
        Position(offset=self.start, leader_epoch=self.start_epoch)
        Position(offset=self.end, leader_epoch=self.end_epoch)
        if not self.start <= self.readable_from <= self.end:
            raise ValueError(
                f"readable_from: expected an offset in [{self.start}, {self.end}), found {self.readable_from}"
            )

    @property
    def span(self) -> OffsetRange:
        """The whole range, including lost offsets."""
        return OffsetRange(start=self.start, end=self.end)

    @property
    def readable(self) -> OffsetRange:
        """The range that the job reads."""
        return OffsetRange(start=self.readable_from, end=self.end)

    @property
    def lost(self) -> int:
        """The number of offsets that the log no longer had when the plan was made."""
        return self.readable_from - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic(StoredValue):
    """One topic incarnation and its range per partition (the index is the partition number)."""

    name: str
    topic_id: str
    cluster_id: str
    compacted: bool
    ranges: tuple[PlannedRange, ...]

    def __post_init__(self) -> None:
        check_topic_identity(self.name, self.topic_id, self.cluster_id)


def check_topic_identity(name: str, topic_id: str, cluster_id: str) -> None:
    """Refuse a topic identity with an empty or unprintable part; raises ValueError."""
    for what, value in (("name", name), ("id", topic_id), ("cluster id", cluster_id)):
        if not 0 < len(value) <= 249 or not value.isprintable():
            raise ValueError(f"expected a topic {what}, found {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable(StoredValue):
    """A table in the root of the plan's swap: the columns that the job writes, with their ids, and the partitioning.

    `file_size_bytes`, `compression`, `parquet_version`: those of its upkeep.
    """

    name: str
    uuid: str
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...] = ()
    file_size_bytes: int = field(default=DEFAULT.file_size_bytes, metadata=OMITTED)
    compression: str = field(default=DEFAULT.compression, metadata=OMITTED)
    parquet_version: int = field(default=DEFAULT.parquet_version, metadata=OMITTED)

    def __post_init__(self) -> None:
        keys.check_name(self.name, "table")
        keys.check_uuid(self.uuid)
        check_columns(self.columns)
        if self.file_size_bytes < 1 or self.compression not in COMPRESSIONS:
            raise ValueError(
                f"expected a file size and one of {', '.join(COMPRESSIONS)}, found {self.file_size_bytes} and "
                f"{self.compression!r}"
            )
        if self.parquet_version not in PARQUET_VERSIONS:
            raise ValueError(f"expected Parquet version 1 or 2, found {self.parquet_version!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(StoredObject):
    """The topics to read, the request, the tables to write, and the committed plan that is replaced.

    `spec` is the pipeline's declaration in its canonical JSON form (tallystick.pipeline parses it). `registries`: the
    schemas of the topics whose formats read them from a registry.
    """

    FORMAT: ClassVar[str] = "tallystick.plan/1"

    key: keys.PlanKey
    pipeline: str
    interval: Interval
    generation: int
    request: Request
    fingerprint: str
    replaces: keys.PlanKey | None
    topics: tuple[PlannedTopic, ...]
    tables: tuple[PlannedTable, ...]
    spec: Mapping[str, Any]
    accept_loss: bool
    accept_compaction: bool
    planned_at: datetime
    library: str
    accept_dead_letters: bool = False
    registries: tuple[PlannedRegistry, ...] = ()

    def __post_init__(self) -> None:
        keys.check_name(self.pipeline, "pipeline")
        part, _ = keys.plan_parts(self.key)
        if part != self.interval.part:
            raise ValueError(f"expected a key of {self.interval}, found {self.key}")
        if self.replaces is not None:
            keys.check_plan(self.replaces)
        if self.generation < 1:
            raise ValueError(f"expected a generation, found {self.generation}")
        if len({t.name for t in self.topics}) != len(self.topics):
            raise ValueError("expected each topic once, found a topic twice")
        if len({t.name for t in self.tables}) != len(self.tables):
            raise ValueError("expected each table once, found a table twice")
        if len({r.name for r in self.registries}) != len(self.registries):
            raise ValueError("expected each registry once, found a registry twice")
        keys.check_instant(self.planned_at)

    @property
    def empty(self) -> bool:
        """True if no range of the plan contains an offset."""
        return all(r.span.empty for topic in self.topics for r in topic.ranges)

    @property
    def read_names(self) -> dict[str, str]:
        """The ledger's name of the incarnation that is read, by Kafka's topic name; the last one if there are several."""
        ordered = sorted((keys.incarnation(t.name), t.name) for t in self.topics)
        return {keys.kafka_topic(name): name for _, name in ordered}

    def table(self, name: str) -> PlannedTable | None:
        """Return the planned table with that name, or None."""
        return next((t for t in self.tables if t.name == name), None)

    @property
    def sha256(self) -> str:
        """The hexadecimal digest of the canonical bytes; argv and the report contain it."""
        return hashlib.sha256(self.encode()).hexdigest()
