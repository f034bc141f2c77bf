"""The root: the only mutable object. One conditional PUT of it is the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import OMITTED, StoredObject, StoredValue
from tallystick.format.columns import FormerName, TableColumn, check_columns, with_parts
from tallystick.format.compaction import CompactionGrant
from tallystick.format.outputs import check_target
from tallystick.format.page import PageRef
from tallystick.format.partition_rules import PartitionField
from tallystick.format.plan import check_topic_identity
from tallystick.format.registrations import Registration
from tallystick.format.upkeep import DEFAULT, Upkeep, check_reader_grace


@dataclass(frozen=True, slots=True, kw_only=True)
class RootTable(StoredValue):
    """A table: uuid, Iceberg metadata (None: not written yet), columns, and partitioning.

    `columns` are those of the table now, `dropped` those that it had, also parts of columns; together they have every id
    that was ever given. `former_names` are the names that columns had before they were renamed. `partition_by` are the
    rules for new files, `partition_fields` the fields of these and of all earlier rules. `upkeep`: as declared; a commit
    of the table writes it into the metadata.
    """

    uuid: str
    metadata: str | None
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...]
    dropped: tuple[TableColumn, ...] = ()
    former_names: tuple[FormerName, ...] = ()
    partition_fields: tuple[PartitionField, ...] = ()
    upkeep: Upkeep = field(default=DEFAULT, metadata=OMITTED)

    def __post_init__(self) -> None:
        keys.check_uuid(self.uuid)
        check_columns(self.columns)
        if missing := sorted(set(self.upkeep.sort_by) - {c.name for c in self.columns}):
            raise ValueError(f"expected sort_by to name columns, found {missing[0]!r}")
        ids = [c.id for c in with_parts((*self.columns, *self.dropped))]
        if len(set(ids)) != len(ids):
            raise ValueError(f"expected unique column ids, also of dropped columns, found {ids}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(StoredValue):
    """The end of a topic incarnation: `ends` per partition, and the ledger's last boundary when another was adopted.

    No offset of it is read any more. The offsets after the boundary at `since`, up to `ends`, are lost by that adoption
    and belong to the interval that begins at `since`.
    """

    since: datetime
    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        keys.check_instant(self.since)
        if any(end < 0 for end in self.ends):
            raise ValueError("expected ends of at least 0, found a negative end")


@dataclass(frozen=True, slots=True, kw_only=True)
class RootTopic(StoredValue):
    """A topic incarnation, and the origin of each partition: its log start when a swap first recorded it; set once.

    `closed` is set when a later incarnation is adopted in its place.
    """

    topic_id: str
    cluster_id: str
    origins: tuple[int, ...]
    closed: Closed | None = None

    def __post_init__(self) -> None:
        check_topic_identity("topic", self.topic_id, self.cluster_id)
        if any(o < 0 for o in self.origins):
            raise ValueError("expected origins of at least 0, found a negative origin")
        if self.closed is not None and (
            len(self.closed.ends) != len(self.origins)
            or any(end < o for end, o in zip(self.closed.ends, self.origins, strict=True))
        ):
            raise ValueError(
                "expected each partition of a closed topic to end at or after its origin"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Root(StoredObject):
    """The lake at one version. `id` is new for every body, so no body and no ETag ever occurs twice (ABA).

    `outputs`: the target of each output by name, set once. `pending`: the keys of the pages with pending outputs.
    `former_names`: the names that the pipeline had before it was renamed, the first one first. `uri`: the lake URI that
    the table metadata has in it, so that a copy under another URI is not taken for the lake. `compacting`: the
    compactions that may be published. `compacted`: the last record that describes compactions. `registrations`: the state
    of each registration by name. `reader_grace`: the declared one; None: that of gc.
    """

    FORMAT: ClassVar[str] = "tallystick.root/1"

    pipeline: str
    version: int
    id: str
    record: keys.RecordKey | None
    tables: Mapping[str, RootTable]
    pages: tuple[PageRef, ...]
    topics: Mapping[str, RootTopic]
    outputs: Mapping[str, str] = field(default_factory=dict)
    pending: tuple[keys.PageKey, ...] = ()
    former_names: tuple[str, ...] = ()
    uri: str | None = None
    compacting: tuple[CompactionGrant, ...] = ()
    compacted: keys.RecordKey | None = None
    registrations: Mapping[str, Registration] = field(default_factory=dict)
    reader_grace: timedelta | None = field(default=None, metadata=OMITTED)

    def __post_init__(self) -> None:
        for name in (self.pipeline, *self.former_names):
            keys.check_name(name, "pipeline")
        keys.check_uuid(self.id)
        if not 1 <= self.version < 10**12:
            raise ValueError(f"expected a version, found {self.version}")
        if self.record is not None and keys.record_version(self.record) > self.version:
            raise ValueError(
                f"expected a record of version {self.version} or earlier, found {self.record}"
            )
        for name, table in self.tables.items():
            keys.check_name(name, "table")
            if table.metadata is not None:
                keys.check_metadata(table.metadata, name)
        for name, topic in self.topics.items():
            keys.check_incarnation(name)
            if (keys.next_incarnation(name) in self.topics) is not (topic.closed is not None):
                raise ValueError(
                    f"topic {name}: expected closed if and only if an incarnation follows it"
                )
            previous = keys.previous_incarnation(name)
            if previous is not None and previous not in self.topics:
                raise ValueError(f"topic {name} follows {previous}, which is missing")
        if any(a.since >= b.since for a, b in zip(self.pages, self.pages[1:], strict=False)):
            raise ValueError("expected the index of pages sorted by time")
        for name, target in self.outputs.items():
            keys.check_name(name, "output")
            check_target(target)
        if list(self.pending) != [ref.key for ref in self.pages if ref.key in set(self.pending)]:
            raise ValueError("expected pending pages to be pages of the index, in its order")
        self._check_compactions()
        self._check_registrations()
        if self.reader_grace is not None:
            check_reader_grace(self.reader_grace)
        if self.pending and not self.outputs:
            raise ValueError("expected no pending pages without an output, found some")

    def _check_compactions(self) -> None:
        granted = [grant.key for grant in self.compacting]
        if len(set(granted)) != len(granted):
            raise ValueError("expected each granted compaction once, found one twice")
        if self.compacted is not None:
            keys.check_record(self.compacted)

    def _check_registrations(self) -> None:
        for name, registration in self.registrations.items():
            keys.check_name(name, "registration")
            if name in self.outputs:
                raise ValueError(f"expected {name!r} as an output or a registration, found both")
            last = registration.registered
            if last is not None and (
                self.record is None or keys.record_version(last) > keys.record_version(self.record)
            ):
                raise ValueError(
                    f"registration {name}: expected {self.record} or an earlier record, found {last}"
                )

    @property
    def origins(self) -> dict[str, tuple[int, ...]]:
        """The origins per topic."""
        return {name: topic.origins for name, topic in self.topics.items()}

    @property
    def first_name(self) -> str:
        """The name under which outputs know the pipeline: its first one, because they must recognise what they have."""
        return self.former_names[0] if self.former_names else self.pipeline

    def open_topic(self, topic: str) -> str:
        """Return the ledger's name of the incarnation of `topic` that is read: the last one; `topic` if none is known."""
        name = topic
        while name in self.topics and self.topics[name].closed is not None:
            name = keys.next_incarnation(name)
        return name


def first_root(pipeline: str, root_id: str, *, uri: str | None = None) -> Root:
    """Build the root of a new lake: no tables, no pages, no topics."""
    return Root(
        pipeline=pipeline,
        version=1,
        id=root_id,
        record=None,
        tables={},
        pages=(),
        topics={},
        uri=uri,
    )
