"""The root: the only mutable object. One conditional PUT of it is the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tallystick.format import keys
from tallystick.format.canonical import (
    Fields,
    built,
    corrupt,
    decode,
    encode,
    fields,
    integer,
    text,
)
from tallystick.format.columns import TableColumn, check_columns, parse_column
from tallystick.format.outputs import check_slots, parse_target
from tallystick.format.page import PageRef, parse_page_ref
from tallystick.format.plan import check_topic_identity

FORMAT = "tallystick.root/1"
# A root with a closed topic. A library that knows only the first format must not plan as if the topic were open.
FORMAT_ADOPTED = "tallystick.root/2"
# A root with outputs. A library that does not know them would commit what it owes nobody.
FORMAT_OUTPUTS = "tallystick.root/3"


@dataclass(frozen=True, slots=True, kw_only=True)
class RootTable:
    """A table: its uuid, its Iceberg metadata (None: not written yet), every column id ever given, its partitioning."""

    uuid: str
    metadata: str | None
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...]

    def __post_init__(self) -> None:
        keys.check_uuid(self.uuid)
        check_columns(self.columns)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "uuid": self.uuid,
            "metadata": self.metadata,
            "columns": [c.to_json() for c in self.columns],
            "partition_by": list(self.partition_by),
        }


def parse_table(value: Any, where: str) -> RootTable:
    """Read the JSON form; raises Corrupt."""
    f = fields(value, where)
    uuid, metadata = f.take("uuid", str), f.take_or_none("metadata", str)
    columns, partition_by = f.take_list("columns", parse_column), f.take_list("partition_by", text)
    f.done()
    return built(
        where,
        lambda: RootTable(uuid=uuid, metadata=metadata, columns=columns, partition_by=partition_by),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The end of a topic incarnation: `ends` per partition, and the ledger's last boundary when another was adopted.

    No offset of it is read any more. What no boundary had reached, up to `ends`, is lost by that adoption, and belongs to
    the interval that begins at `since`.
    """

    since: datetime
    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        keys.check_instant(self.since)
        if any(end < 0 for end in self.ends):
            raise ValueError("an end is negative")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"since": keys.instant(self.since), "ends": list(self.ends)}


def _parse_closed(f: Fields) -> Closed:
    since, ends = f.take("since", str), f.take_list("ends", integer)
    f.done()
    return built(f.where, lambda: Closed(since=keys.parse_instant(since), ends=ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class RootTopic:
    """A topic incarnation, and the origin of each partition: its log start when a swap first saw it; set once.

    `closed` once a later incarnation was adopted in its place.
    """

    topic_id: str
    cluster_id: str
    origins: tuple[int, ...]
    closed: Closed | None = None

    def __post_init__(self) -> None:
        check_topic_identity("topic", self.topic_id, self.cluster_id)
        if any(o < 0 for o in self.origins):
            raise ValueError("an origin is negative")
        if self.closed is not None and (
            len(self.closed.ends) != len(self.origins)
            or any(end < o for end, o in zip(self.closed.ends, self.origins, strict=True))
        ):
            raise ValueError("each partition of a closed topic ends at or after its origin")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; `closed` stands only in the second format."""
        return {
            "topic_id": self.topic_id,
            "cluster_id": self.cluster_id,
            "origins": list(self.origins),
        }


def _parse_topic(value: Any, where: str) -> RootTopic:
    return _topic_of(fields(value, where), None)


def _parse_topic_or_closed(value: Any, where: str) -> RootTopic:
    f = fields(value, where)
    closed = f.take_fields_or_none("closed")
    return _topic_of(f, None if closed is None else _parse_closed(closed))


def _topic_of(f: Fields, closed: Closed | None) -> RootTopic:
    topic_id, cluster_id = f.take("topic_id", str), f.take("cluster_id", str)
    origins = f.take_list("origins", integer)
    f.done()
    return built(
        f.where,
        lambda: RootTopic(topic_id=topic_id, cluster_id=cluster_id, origins=origins, closed=closed),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What the lake is at one version. `id` is fresh for every body, so no body and no ETag ever comes twice (ABA).

    `outputs`: what each output's name stands for, set once. `owed`: the keys of the pages with something to publish.
    """

    pipeline: str
    version: int
    id: str
    record: str | None
    tables: Mapping[str, RootTable]
    pages: tuple[PageRef, ...]
    topics: Mapping[str, RootTopic]
    outputs: Mapping[str, str] = field(default_factory=dict)
    owed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        keys.check_name(self.pipeline, "pipeline")
        keys.check_uuid(self.id)
        if not 1 <= self.version < 10**12:
            raise ValueError(f"{self.version} is no version")
        if self.record is not None and keys.record_version(self.record) > self.version:
            raise ValueError(f"record {self.record} is later than version {self.version}")
        for name, table in self.tables.items():
            keys.check_name(name, "table")
            if table.metadata is not None:
                keys.check_metadata(table.metadata, name)
        for name, topic in self.topics.items():
            keys.check_incarnation(name)
            if (keys.next_incarnation(name) in self.topics) is not (topic.closed is not None):
                raise ValueError(f"topic {name} is closed exactly where another follows it")
            previous = keys.previous_incarnation(name)
            if previous is not None and previous not in self.topics:
                raise ValueError(f"topic {name} follows {previous}, which is not there")
        if any(a.since >= b.since for a, b in zip(self.pages, self.pages[1:], strict=False)):
            raise ValueError("the index of pages is sorted by time")
        check_slots(self.outputs)
        if list(self.owed) != [ref.key for ref in self.pages if ref.key in set(self.owed)]:
            raise ValueError(
                "the pages with something to publish are pages of the index, in its order"
            )
        if self.owed and not self.outputs:
            raise ValueError("something is to be published, and there is no output")

    @property
    def origins(self) -> dict[str, tuple[int, ...]]:
        """Origins per topic."""
        return {name: topic.origins for name, topic in self.topics.items()}

    def open_topic(self, topic: str) -> str:
        """How the ledger names the incarnation of `topic` that is read: the last one; `topic` itself if none is known."""
        name = topic
        while name in self.topics and self.topics[name].closed is not None:
            name = keys.next_incarnation(name)
        return name

    @property
    def format_name(self) -> str:
        """The oldest format that can say what this root says."""
        if self.outputs:
            return FORMAT_OUTPUTS
        adopted = any(topic.closed is not None for topic in self.topics.values())
        return FORMAT_ADOPTED if adopted else FORMAT

    def _topics_to_json(self) -> dict[str, Any]:
        forms = {name: topic.to_json() for name, topic in self.topics.items()}
        if self.format_name != FORMAT:
            for name, topic in self.topics.items():
                forms[name]["closed"] = topic.closed.to_json() if topic.closed else None
        return forms

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        said_later = {"outputs": dict(self.outputs), "owed": list(self.owed)}
        return encode(
            {
                "format": self.format_name,
                "pipeline": self.pipeline,
                "version": self.version,
                "id": self.id,
                "record": self.record,
                "tables": {name: t.to_json() for name, t in self.tables.items()},
                "pages": [p.to_json() for p in self.pages],
                "topics": self._topics_to_json(),
                **(said_later if self.outputs else {}),
            }
        )


def parse_root(body: bytes, *, where: str) -> Root:
    """Read a root's bytes; raises Corrupt naming `where`."""
    f = decode(body, where=where, format_name=FORMAT, later=(FORMAT_ADOPTED, FORMAT_OUTPUTS))
    pipeline, root_id = f.take("pipeline", str), f.take("id", str)
    version, record = f.take("version", int), f.take_or_none("record", str)
    tables = f.take_map("tables", parse_table)
    first = f.format_name == FORMAT
    topics = f.take_map("topics", _parse_topic if first else _parse_topic_or_closed)
    pages = f.take_list("pages", parse_page_ref)
    outputs: Mapping[str, str] = {}
    owed: tuple[str, ...] = ()
    if f.format_name == FORMAT_OUTPUTS:
        outputs, owed = f.take_map("outputs", parse_target), f.take_list("owed", text)
    f.done()
    root = built(
        where,
        lambda: Root(
            pipeline=pipeline,
            version=version,
            id=root_id,
            record=record,
            tables=tables,
            pages=pages,
            topics=topics,
            outputs=outputs,
            owed=owed,
        ),
    )
    if root.format_name != f.format_name:
        raise corrupt(where, f"{f.format_name}, and {root.format_name} can say all of it")
    return root


def first_root(pipeline: str, root_id: str) -> Root:
    """The root of a lake in which nothing has happened."""
    return Root(
        pipeline=pipeline, version=1, id=root_id, record=None, tables={}, pages=(), topics={}
    )
