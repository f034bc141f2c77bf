"""The use case `status`: what a lake holds, what is missing, who has what, and the command that fills each gap.

Values only; nothing is printed and nothing is written. Each answer comes from one root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from tallystick.errors import Corrupt, InvalidRequest
from tallystick.format import keys
from tallystick.format.canonical import corrupt
from tallystick.format.columns import TableColumn
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Entry, Totals
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.root import Root, RootTable, RootTopic
from tallystick.lake import Lake, Snapshot
from tallystick.operations.status.gaps import Gap, gaps, schedule_length
from tallystick.operations.status.grants import (
    EndedGrant,
    Fewer,
    GrantStatus,
    cancelled,
    fewer,
    grant_status,
)
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.staleness import stale

State = Literal["committed", "granted", "replacing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalStatus:
    """One entry of the ledger. `totals` and `owner` are the committed ones; the grant's owner where nothing is."""

    interval: Interval
    state: State
    generation: int
    totals: Totals | None
    owner: Request
    plan: keys.PlanKey

    @property
    def dead_share(self) -> float | None:
        """The share of dead letters among what was to be decoded, from 0 to 1; None without any such record."""
        return None if self.totals is None else dead_share(self.totals)


def dead_share(totals: Totals) -> float | None:
    """The share of dead letters among records and dead letters; None if there is neither."""
    decoded = totals.records + totals.dead_letters
    return totals.dead_letters / decoded if decoded else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOutput:
    """What an output lacks: the rows of a committed interval. `in_progress`: some of them may be there."""

    output: str
    interval: Interval
    generation: int
    in_progress: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleStatus:
    """A committed interval whose job looked back at `changed`, which holds other records or other rows by now."""

    interval: Interval
    changed: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a root says about its ledger. `every`: the schedule's length, as the ledger's scheduled runs show it.

    `committed_at`: when the last commit was made; None before the first one, and if its record cannot be read. `read_to`:
    by open topic, the offset of each partition at which the latest committed interval ends.
    """

    uri: str
    pipeline: str
    version: int
    record: keys.RecordKey | None
    committed_at: datetime | None
    topics: Mapping[str, RootTopic]
    read_to: Mapping[str, tuple[int, ...]]
    first: datetime | None
    last: datetime | None
    every: timedelta | None
    intervals: tuple[IntervalStatus, ...]
    gaps: tuple[Gap, ...]
    grants: tuple[GrantStatus, ...]
    cancelled: tuple[EndedGrant, ...]
    fewer: tuple[Fewer, ...]
    outputs: Mapping[str, str]
    pending: tuple[PendingOutput, ...]
    stale: tuple[StaleStatus, ...]

    @property
    def totals(self) -> Totals:
        """All committed offsets by class."""
        return Totals.sum_of(one.totals for one in self.committed if one.totals)

    @property
    def committed(self) -> tuple[IntervalStatus, ...]:
        """The intervals with committed rows."""
        return tuple(one for one in self.intervals if one.totals is not None)

    @property
    def committed_to(self) -> datetime | None:
        """Where the latest committed interval ends."""
        return max((one.interval.end for one in self.committed), default=None)

    @property
    def generations(self) -> Mapping[int, int]:
        """How many committed intervals are of each generation; every one above 1 was replaced."""
        return dict(sorted(Counter(one.generation for one in self.committed).items()))

    @property
    def all_dead(self) -> tuple[IntervalStatus, ...]:
        """The committed intervals with dead letters and not one record."""
        return tuple(one for one in self.committed if one.dead_share == 1)

    @property
    def lost(self) -> tuple[IntervalStatus, ...]:
        """The committed intervals with offsets that an operator accepted as lost."""
        return tuple(one for one in self.committed if one.totals is not None and one.totals.lost)


def read_status(lake: Lake) -> Status:
    """Say what the lake's current root holds, and how old its grants are by this machine's clock.

    Raises RootVanished, Corrupt, and what the store raises.
    """
    now = lake.runtime.now()

    def question(snapshot: Snapshot) -> Status:
        root, ledger = snapshot.root, snapshot.whole_ledger()
        instants = [b.at for b in ledger.boundaries]
        return Status(
            uri=lake.store.uri,
            pipeline=root.pipeline,
            version=root.version,
            record=root.record,
            committed_at=_committed_at(lake, root.record),
            topics=root.topics,
            read_to=_read_to(root, ledger),
            first=instants[0] if instants else None,
            last=instants[-1] if instants else None,
            every=schedule_length(ledger.entries),
            intervals=tuple(_interval_status(e) for e in ledger.entries),
            gaps=gaps(ledger, root.topics),
            grants=tuple(
                grant_status(lake, e, now=now) for e in ledger.entries if e.granted is not None
            ),
            cancelled=tuple(c for e in ledger.entries if (c := cancelled(e)) is not None),
            fewer=tuple(f for e in ledger.entries if (f := fewer(lake, e)) is not None),
            outputs=root.outputs,
            pending=tuple(o for e in ledger.entries for o in _pending(e)),
            stale=tuple(
                StaleStatus(interval=interval, changed=changed)
                for interval, changed in stale(ledger.entries).items()
            ),
        )

    return lake.read(question)


def _committed_at(lake: Lake, key: keys.RecordKey | None) -> datetime | None:
    record = None
    # A record that cannot be read has its place in `tally verify`: the rest of the ledger is shown all the same.
    with suppress(Corrupt):
        record = lake.record(key) if key is not None else None
    return record.committed_at if record is not None else None


def _read_to(root: Root, ledger: Ledger) -> dict[str, tuple[int, ...]]:
    ends = [e.interval.end for e in ledger.entries if e.committed is not None]
    boundary = ledger.boundary(max(ends)) if ends else None
    topics = {name: topic for name, topic in root.topics.items() if topic.closed is None}
    origins = {name: topic.origins for name, topic in topics.items()}
    if boundary is None:
        return origins
    return {
        name: tuple(boundary.position(name, p, origins).offset for p in range(len(of)))
        for name, of in origins.items()
    }


def _pending(entry: Entry) -> Iterator[PendingOutput]:
    for name in entry.pending:
        assert entry.committed is not None  # an output has slots of what is committed alone
        yield PendingOutput(
            output=name,
            interval=entry.interval,
            generation=entry.committed.generation,
            in_progress=entry.outputs[name].in_progress is not None,
        )


def _interval_status(entry: Entry) -> IntervalStatus:
    slot = entry.committed or entry.granted
    assert slot is not None  # an entry has one slot at least
    state: State = (
        "granted" if entry.committed is None else "replacing" if entry.granted else "committed"
    )
    return IntervalStatus(
        interval=entry.interval,
        state=state,
        generation=slot.generation,
        totals=entry.committed.totals if entry.committed else None,
        owner=slot.request,
        plan=slot.plan,
    )


# ---------------------------------------------------------------- log


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLine:
    """One commit. `replaces` of an interval names the record of the commit that it replaced."""

    record: keys.RecordKey
    version: int
    committed_at: datetime
    library: str
    intervals: tuple[CommittedInterval, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLog:
    """Commits, newest first. `before`: the record of the next older one, None after the first commit of all."""

    uri: str
    pipeline: str
    version: int
    commits: tuple[CommitLine, ...]
    before: str | None


def read_log(lake: Lake, *, limit: int) -> CommitLog:
    """Follow the chain of records from the root, at most `limit` of them. Raises RootVanished and Corrupt."""
    root = lake.load_existing().root
    commits: list[CommitLine] = []
    key = root.record
    while key is not None and len(commits) < limit:
        record = _record(lake, key)
        commits.append(
            CommitLine(
                record=record.key,
                version=record.version,
                committed_at=record.committed_at,
                library=record.library,
                intervals=record.intervals,
            )
        )
        key = record.parent
    return CommitLog(
        uri=lake.store.uri,
        pipeline=root.pipeline,
        version=root.version,
        commits=tuple(commits),
        before=key,
    )


def _record(lake: Lake, key: keys.RecordKey) -> Record:
    record = lake.record(key)
    if record is None:
        raise corrupt(
            lake.where(key), "the chain of commits names this record, and it is not there"
        )
    return record


# ---------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A table of one root; `metadata` is the URI that any Iceberg reader opens, None where no row was ever committed."""

    name: str
    metadata: str | None
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...]
    rows: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTables:
    """All tables as one root has them."""

    uri: str
    pipeline: str
    version: int
    tables: tuple[TableStatus, ...]


def read_tables(lake: Lake, *, count: bool = True, as_of: int | None = None) -> LakeTables:
    """Say where the tables of a root lie; `count` rows and files, from manifests.

    `as_of`: the tables as the root of that version had them, from the chain of commit records; the answer's version is
    that of the commit which made them so. Raises Corrupt, InvalidRequest for a version that was not yet, had no
    rows, or was collected by gc.
    """

    def question(snapshot: Snapshot) -> LakeTables:
        version, tables = snapshot.root.version, snapshot.root.tables
        if as_of is not None:
            found = _record_at(lake, snapshot, as_of)
            version, tables = found.version, found.tables
            _refuse_collected(lake, snapshot, found)
        return LakeTables(
            uri=lake.store.uri,
            pipeline=snapshot.root.pipeline,
            version=version,
            tables=tuple(
                _table_status(lake, name, table, count=count)
                for name, table in sorted(tables.items())
            ),
        )

    return lake.read(question)


def _record_at(lake: Lake, snapshot: Snapshot, as_of: int) -> Record:
    """The newest commit of the chain whose version is `as_of` or lower."""
    if not 1 <= as_of <= snapshot.root.version:
        raise InvalidRequest(
            f"{lake.store.uri} has no version {as_of}; it is at version {snapshot.root.version}.",
            hint="`tally log` shows the versions that committed something.",
        )
    key = snapshot.root.record
    while key is not None:
        record = _record(lake, key)
        if record.version <= as_of:
            return record
        key = record.parent
    raise InvalidRequest(
        f"nothing was committed to {lake.store.uri} by version {as_of}.",
        hint="`tally log` shows the versions that committed something.",
    )


def _refuse_collected(lake: Lake, snapshot: Snapshot, record: Record) -> None:
    """Raise InvalidRequest where gc has taken an older version's tables; it takes their metadata first."""
    current = {table.metadata for table in snapshot.root.tables.values()}
    for table in record.tables.values():
        if table.metadata in current or table.metadata is None:
            continue
        if lake.store.get(table.metadata) is None:
            raise InvalidRequest(
                f"version {record.version} of {lake.store.uri} can be read no more: gc has collected {table.metadata}.",
                hint="older versions stay readable for gc's reader grace; ask for a later one, or for none.",
            )


def _table_status(lake: Lake, name: str, table: RootTable, *, count: bool) -> TableStatus:
    rows = files = size_bytes = 0
    if count and table.metadata is not None:
        # PyIceberg is slow to import: only those who count pay for it.
        from tallystick.tables.reading import live_files

        for file in live_files(lake.store, table.metadata):
            rows, files, size_bytes = rows + file.rows, files + 1, size_bytes + file.size_bytes
    return TableStatus(
        name=name,
        metadata=None if table.metadata is None else lake.where(table.metadata),
        columns=table.columns,
        partition_by=table.partition_by,
        rows=rows,
        files=files,
        size_bytes=size_bytes,
    )
