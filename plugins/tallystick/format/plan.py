"""A plan: one contiguous piece of the log for one ledger entry, frozen when it is granted.

It holds all that a Spark job needs but secrets. Its key is its identity: generations only order and explain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tallystick.format import keys
from tallystick.format.canonical import built, corrupt, decode, encode, fields, integers
from tallystick.format.columns import TableColumn, check_columns, parse_column
from tallystick.format.interval import Interval, Request, parse_interval, parse_request
from tallystick.format.offsets import OffsetRange, Position

FORMAT = "tallystick.plan/1"
# A plan whose replacement may turn rows into dead letters. A library that knows only the first would refuse its commit.
FORMAT_2 = "tallystick.plan/2"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRange:
    """Offsets `start <= offset < end` of one partition with the leader epochs of the records before both ends.

    `readable_from` > start where the log had lost `[start, readable_from)` and an operator accepted that.
    """

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
                f"readable_from {self.readable_from} lies outside [{self.start}, {self.end})"
            )

    @property
    def span(self) -> OffsetRange:
        """The whole range, lost offsets too."""
        return OffsetRange(start=self.start, end=self.end)

    @property
    def readable(self) -> OffsetRange:
        """What is to be read."""
        return OffsetRange(start=self.readable_from, end=self.end)

    @property
    def lost(self) -> int:
        """Offsets that were gone when the plan was made."""
        return self.readable_from - self.start

    def to_json(self) -> list[int]:
        """Return the JSON form."""
        return [self.start, self.end, self.start_epoch, self.end_epoch, self.readable_from]


def _parse_range(value: Any, where: str) -> PlannedRange:
    start, end, start_epoch, end_epoch, readable_from = integers(value, where, count=5)
    return built(
        where,
        lambda: PlannedRange(
            start=start,
            end=end,
            start_epoch=start_epoch,
            end_epoch=end_epoch,
            readable_from=readable_from,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """One topic incarnation and its range per partition (the index is the partition number)."""

    name: str
    topic_id: str
    cluster_id: str
    compacted: bool
    ranges: tuple[PlannedRange, ...]

    def __post_init__(self) -> None:
        check_topic_identity(self.name, self.topic_id, self.cluster_id)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "topic_id": self.topic_id,
            "cluster_id": self.cluster_id,
            "compacted": self.compacted,
            "ranges": [r.to_json() for r in self.ranges],
        }


def check_topic_identity(name: str, topic_id: str, cluster_id: str) -> None:
    """Refuse a topic identity with an empty or unprintable part; raises ValueError."""
    for what, value in (("name", name), ("id", topic_id), ("cluster id", cluster_id)):
        if not 0 < len(value) <= 249 or not value.isprintable():
            raise ValueError(f"{value!r} is no topic {what}")


def _parse_topic(value: Any, where: str) -> PlannedTopic:
    f = fields(value, where)
    name, topic_id, cluster_id = (f.take(n, str) for n in ("name", "topic_id", "cluster_id"))
    compacted = f.take("compacted", bool)
    ranges = f.take_list("ranges", _parse_range)
    f.done()
    return built(
        where,
        lambda: PlannedTopic(
            name=name, topic_id=topic_id, cluster_id=cluster_id, compacted=compacted, ranges=ranges
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """A table as the plan's swap knew it: the columns that the job writes, with their ids."""

    name: str
    uuid: str
    columns: tuple[TableColumn, ...]

    def __post_init__(self) -> None:
        keys.check_name(self.name, "table")
        keys.check_uuid(self.uuid)
        check_columns(self.columns)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "uuid": self.uuid,
            "columns": [c.to_json() for c in self.columns],
        }


def _parse_table(value: Any, where: str) -> PlannedTable:
    f = fields(value, where)
    name, uuid = f.take("name", str), f.take("uuid", str)
    columns = f.take_list("columns", parse_column)
    f.done()
    return built(where, lambda: PlannedTable(name=name, uuid=uuid, columns=columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to read, for whom, into which tables, and what it replaces.

    `spec` is the pipeline's declaration in its canonical JSON form (tallystick.pipeline reads it back).
    """

    key: str
    pipeline: str
    interval: Interval
    generation: int
    request: Request
    fingerprint: str
    replaces: str | None
    topics: tuple[PlannedTopic, ...]
    tables: tuple[PlannedTable, ...]
    spec: Mapping[str, Any]
    accept_loss: bool
    accept_compaction: bool
    planned_at: datetime
    library: str
    accept_dead_letters: bool = False

    def __post_init__(self) -> None:
        keys.check_name(self.pipeline, "pipeline")
        part, _ = keys.plan_parts(self.key)
        if part != self.interval.part:
            raise ValueError(f"{self.key} is not a key of {self.interval}")
        if self.replaces is not None:
            keys.check_plan(self.replaces)
        if self.generation < 1:
            raise ValueError(f"{self.generation} is no generation")
        if len({t.name for t in self.topics}) != len(self.topics):
            raise ValueError("a topic is planned twice")
        if len({t.name for t in self.tables}) != len(self.tables):
            raise ValueError("a table is planned twice")
        keys.check_instant(self.planned_at)

    @property
    def empty(self) -> bool:
        """True where the plan's ranges hold no offset at all."""
        return all(r.span.empty for topic in self.topics for r in topic.ranges)

    @property
    def read_names(self) -> dict[str, str]:
        """Kafka's name of each topic, and the ledger's name of its incarnation that is read: of several the last."""
        ordered = sorted((keys.incarnation(t.name), t.name) for t in self.topics)
        return {keys.kafka_topic(name): name for _, name in ordered}

    def table(self, name: str) -> PlannedTable | None:
        """The planned table of that name."""
        return next((t for t in self.tables if t.name == name), None)

    def encode(self) -> bytes:
        """Return the canonical bytes; `accept_dead_letters` is in the second format only, for plans that have it."""
        later = {"accept_dead_letters": True} if self.accept_dead_letters else {}
        return encode(
            {
                "format": FORMAT_2 if later else FORMAT,
                **later,
                "key": self.key,
                "pipeline": self.pipeline,
                "interval": self.interval.to_json(),
                "generation": self.generation,
                "request": self.request.to_json(),
                "fingerprint": self.fingerprint,
                "replaces": self.replaces,
                "topics": [t.to_json() for t in self.topics],
                "tables": [t.to_json() for t in self.tables],
                "spec": self.spec,
                "accept_loss": self.accept_loss,
                "accept_compaction": self.accept_compaction,
                "planned_at": keys.instant(self.planned_at),
                "library": self.library,
            }
        )

    @property
    def sha256(self) -> str:
        """Digest of the canonical bytes, hexadecimal: argv and the report carry it."""
        return hashlib.sha256(self.encode()).hexdigest()


def parse_plan(body: bytes, *, where: str) -> Plan:
    """Read a plan's bytes; raises Corrupt naming `where`."""
    f = decode(body, where=where, format_name=FORMAT, later=(FORMAT_2,))
    accept_dead_letters = f.format_name == FORMAT_2
    if accept_dead_letters and not f.take("accept_dead_letters", bool):
        raise corrupt(where, f"accept_dead_letters is false: {FORMAT} can say all of it")
    key, pipeline, fingerprint = (f.take(n, str) for n in ("key", "pipeline", "fingerprint"))
    library, planned_at = f.take("library", str), f.take("planned_at", str)
    interval = parse_interval(f.take("interval", list), f"{where}.interval")
    generation = f.take("generation", int)
    request = parse_request(f.take("request", list), f"{where}.request")
    replaces = f.take_or_none("replaces", str)
    topics, tables = f.take_list("topics", _parse_topic), f.take_list("tables", _parse_table)
    spec = f.take("spec", dict)
    accept_loss, accept_compaction = f.take("accept_loss", bool), f.take("accept_compaction", bool)
    f.done()
    return built(
        where,
        lambda: Plan(
            key=key,
            pipeline=pipeline,
            interval=interval,
            generation=generation,
            request=request,
            fingerprint=fingerprint,
            replaces=replaces,
            topics=topics,
            tables=tables,
            spec=spec,
            accept_loss=accept_loss,
            accept_compaction=accept_compaction,
            planned_at=keys.parse_instant(planned_at),
            library=library,
            accept_dead_letters=accept_dead_letters,
        ),
    )
