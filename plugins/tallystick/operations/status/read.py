"""The use case `status`: read the intervals, grants, gaps and outputs of a lake, its commit log, and its tables.

The functions return values; they print and write nothing. Each result comes from one root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.columns import TableColumn
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Boundary, Entry, Totals
from tallystick.format.record import CommittedInterval
from tallystick.format.root import Root, RootTable, RootTopic
from tallystick.lake import Lake, Snapshot
from tallystick.operations.status.gaps import BoundedLedger, Gap, gaps, schedule_length
from tallystick.operations.status.grants import (
    EndedGrant,
    Fewer,
    GrantStatus,
    cancelled,
    grant_status,
)
from tallystick.operations.status.newest import OlderIntervals, newest_ledger
from tallystick.operations.status.outline import StatusCache
from tallystick.operations.status.past import AsOf, commit_at, existing_record
from tallystick.operations.status.uncommitted import (
    UncommittedSpan,
    offsets_at,
    uncommitted_spans,
)
from tallystick.protocol import registering
from tallystick.protocol.staleness import stale

State = Literal["committed", "granted", "replacing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalStatus:
    """One entry of the ledger.

    `totals`, `generation`, `owner` and `plan` are those of the commit. If nothing is committed, `totals` is None, and the
    others are those of the grant.
    """

    interval: Interval
    state: State
    generation: int
    totals: Totals | None
    owner: Request
    plan: keys.PlanKey

    @property
    def dead_share(self) -> float | None:
        """The share of dead letters among records and dead letters, from 0 to 1; None if there is neither."""
        return None if self.totals is None else dead_share(self.totals)


def dead_share(totals: Totals) -> float | None:
    """Return the share of dead letters among records and dead letters, from 0 to 1; None if there is neither."""
    decoded = totals.records + totals.dead_letters
    return totals.dead_letters / decoded if decoded else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOutput:
    """A committed interval that an output lacks. `in_progress`: True if some of its rows may be there."""

    output: str
    interval: Interval
    generation: int
    in_progress: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRegistration:
    """A registration that lacks the last commit. `registered`: the version that it has, None if it has none yet."""

    registration: str
    target: str
    registered: int | None
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleStatus:
    """A stale interval. `changed`: the earlier interval of its lookback that has other records or other rows now."""

    interval: Interval
    changed: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of a lake under one root.

    `committed_at`: the time of the last commit; None if there is no commit or its record cannot be read. `read_to`: by
    open topic, the offset of each partition at which the latest committed interval ends. `first`, `last`: the first and
    the last boundary; `first_offsets`, `last_offsets`: their positions of each partition, by open topic; empty if there
    is no boundary. `every`: the length of the schedule's intervals, derived from scheduled runs. `outputs`: the target
    of each output. `uncommitted`: the spans whose records no table has yet. `registrations`: the target of each
    registration that is declared; `unregistered`: those that lack the last commit. `older`: committed intervals that
    `intervals` does not have, see `read_status`.
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
    first_offsets: Mapping[str, tuple[int, ...]]
    last_offsets: Mapping[str, tuple[int, ...]]
    every: timedelta | None
    intervals: tuple[IntervalStatus, ...]
    gaps: tuple[Gap, ...]
    grants: tuple[GrantStatus, ...]
    cancelled: tuple[EndedGrant, ...]
    fewer: tuple[Fewer, ...]
    outputs: Mapping[str, str]
    pending: tuple[PendingOutput, ...]
    stale: tuple[StaleStatus, ...]
    uncommitted: tuple[UncommittedSpan, ...] = ()
    registrations: Mapping[str, str] = field(default_factory=dict)
    unregistered: tuple[PendingRegistration, ...] = ()
    older: OlderIntervals = field(default_factory=OlderIntervals)

    @property
    def totals(self) -> Totals:
        """The number of committed offsets by class, over all intervals."""
        newer = [one.totals for one in self.committed if one.totals]
        return Totals.sum_of([self.older.totals, *newer])

    @property
    def count(self) -> int:
        """The number of all intervals, committed and granted."""
        return self.older.count + len(self.intervals)

    @property
    def committed_count(self) -> int:
        """The number of all intervals with committed rows."""
        return self.older.count + len(self.committed)

    @property
    def dags(self) -> frozenset[str]:
        """The DAGs whose runs own the intervals."""
        return self.older.dags | {one.owner.dag for one in self.intervals}

    @property
    def committed(self) -> tuple[IntervalStatus, ...]:
        """The intervals with committed rows, without older ones."""
        return tuple(one for one in self.intervals if one.totals is not None)

    @property
    def committed_to(self) -> datetime | None:
        """The end of the latest committed interval; None if there is none."""
        return max((one.interval.end for one in self.committed), default=None)

    @property
    def generations(self) -> Mapping[int, int]:
        """The number of committed intervals by generation."""
        found = Counter(one.generation for one in self.committed)
        found.update(self.older.generations)
        return dict(sorted(found.items()))

    @property
    def all_dead(self) -> tuple[IntervalStatus, ...]:
        """The committed intervals that have dead letters and no records."""
        return tuple(one for one in self.committed if one.dead_share == 1)

    @property
    def lost(self) -> tuple[IntervalStatus, ...]:
        """The committed intervals with offsets that an operator accepted as lost."""
        return tuple(one for one in self.committed if one.totals is not None and one.totals.lost)


def read_status(
    lake: Lake, *, cache: StatusCache | None = None, newest: int | None = None
) -> Status:
    """Return the state of the lake under its current root. The age of grants is by this machine's clock.

    `cache`: of this lake, if its status is read often; then only pages that are new since the last time are read.
    `newest`: the number of the latest intervals that are needed one by one. `Status.older` then has the sums of the
    others, except those about which something is reported. It takes a tenth of the time if the ledger has no gap and no
    lookbacks; otherwise, every interval is read.
    Raises RootVanished if there is no root, Corrupt if an object is damaged, and the errors of the store.
    """
    now = lake.runtime.now()
    kept = cache or StatusCache()

    def from_snapshot(snapshot: Snapshot) -> Status:
        root = snapshot.root
        ledger = kept.ledger(snapshot) if newest is None else newest_ledger(snapshot, newest)
        first, last, entries = ledger.first, ledger.last, ledger.entries
        found_gaps = () if ledger.summed else gaps(ledger, root.topics)
        return Status(
            uri=lake.store.uri,
            pipeline=root.pipeline,
            version=root.version,
            record=root.record,
            committed_at=_committed_at(lake, root.record),
            topics=root.topics,
            read_to=_read_to(root, ledger),
            first=first.at if first else None,
            last=last.at if last else None,
            first_offsets=_offsets(root, first) if first else {},
            last_offsets=_offsets(root, last) if last else {},
            every=schedule_length(entries),
            intervals=tuple(_interval_status(e) for e in entries),
            gaps=found_gaps,
            grants=tuple(grant_status(lake, e, now=now) for e in entries if e.granted is not None),
            cancelled=tuple(c for e in entries if (c := cancelled(e)) is not None),
            fewer=kept.fewer(lake, entries),
            outputs=root.outputs,
            pending=tuple(o for e in entries for o in _pending(e)),
            stale=tuple(
                StaleStatus(interval=interval, changed=changed)
                for interval, changed in stale(entries).items()
            ),
            uncommitted=uncommitted_spans(ledger, root.topics, found_gaps),
            registrations={n: r.target for n, r in root.registrations.items() if r.declared},
            unregistered=tuple(_unregistered(root)),
            older=OlderIntervals.of(ledger.summed),
        )

    return lake.read(from_snapshot)


def _committed_at(lake: Lake, key: keys.RecordKey | None) -> datetime | None:
    record = None
    # `tally verify` reports a record that cannot be read. It must not hide the rest of the ledger.
    with suppress(Corrupt):
        record = lake.record(key) if key is not None else None
    return record.committed_at if record is not None else None


def _read_to(root: Root, ledger: BoundedLedger) -> dict[str, tuple[int, ...]]:
    ends = [e.interval.end for e in ledger.entries if e.committed is not None]
    boundary = ledger.boundary(max(ends)) if ends else None
    return _offsets(root, boundary)


def _offsets(root: Root, boundary: Boundary | None) -> dict[str, tuple[int, ...]]:
    """Return the position of each partition of the open topics at a boundary; None: their origins."""
    return offsets_at(root.topics, boundary)


def _pending(entry: Entry) -> Iterator[PendingOutput]:
    for name in entry.pending:
        assert entry.committed is not None  # only committed intervals have output slots
        yield PendingOutput(
            output=name,
            interval=entry.interval,
            generation=entry.committed.generation,
            in_progress=entry.outputs[name].in_progress is not None,
        )


def _unregistered(root: Root) -> Iterator[PendingRegistration]:
    for name in registering.pending(root):
        one = root.registrations[name]
        assert root.record is not None  # nothing is pending without a commit
        yield PendingRegistration(
            registration=name,
            target=one.target,
            registered=None if one.registered is None else keys.record_version(one.registered),
            version=keys.record_version(root.record),
        )


def _interval_status(entry: Entry) -> IntervalStatus:
    slot = entry.committed or entry.granted
    assert slot is not None  # an entry has a grant, a commit, or both
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
    """One commit. `replaces` of an interval is the record of the commit that it replaced.

    `compactions`: those that were published instead of a commit of intervals.
    """

    record: keys.RecordKey
    version: int
    committed_at: datetime
    library: str
    intervals: tuple[CommittedInterval, ...]
    compactions: tuple[keys.CompactionKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLog:
    """Commits, newest first. `before`: the record of the next older commit; None if there is none."""

    uri: str
    pipeline: str
    version: int
    commits: tuple[CommitLine, ...]
    before: str | None


def read_log(lake: Lake, *, limit: int | None) -> CommitLog:
    """Return the newest commits, at most `limit` (None: all), from the chain of records that begins at the root.

    Raises RootVanished if there is no root, Corrupt if a record is gone or damaged.
    """
    root = lake.load_existing().root
    commits: list[CommitLine] = []
    key = root.record
    while key is not None and (limit is None or len(commits) < limit):
        record = existing_record(lake, key)
        commits.append(
            CommitLine(
                record=record.key,
                version=record.version,
                committed_at=record.committed_at,
                library=record.library,
                intervals=record.intervals,
                compactions=record.compactions,
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


# ---------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A table of one root. `metadata`: the URI for any Iceberg reader, None if the table has no commit yet."""

    name: str
    metadata: str | None
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...]
    rows: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTables:
    """All tables of one root."""

    uri: str
    pipeline: str
    version: int
    tables: tuple[TableStatus, ...]


def read_tables(lake: Lake, *, count: bool = True, as_of: AsOf | None = None) -> LakeTables:
    """Return the tables of a root with their metadata URIs. `count`: also count rows, files and bytes, from manifests.

    `as_of`: a version of the root, or an instant. The result has the tables of the last commit at or before it, found in
    the chain of records, and the version of that commit. If it is None, the current root is read. Raises Corrupt if an
    object is damaged, and InvalidRequest as `commit_at` does.
    """

    def from_snapshot(snapshot: Snapshot) -> LakeTables:
        version, tables = snapshot.root.version, snapshot.root.tables
        if as_of is not None:
            found = commit_at(lake, snapshot, as_of)
            version, tables = found.version, found.tables
        return LakeTables(
            uri=lake.store.uri,
            pipeline=snapshot.root.pipeline,
            version=version,
            tables=tuple(
                table_status(lake, name, table, count=count)
                for name, table in sorted(tables.items())
            ),
        )

    return lake.read(from_snapshot)


def table_status(lake: Lake, name: str, table: RootTable, *, count: bool) -> TableStatus:
    """Return a table of a root. `count`: also count rows, files and bytes, from manifests; otherwise they are 0."""
    rows = files = size_bytes = 0
    if count and table.metadata is not None:
        # Import PyIceberg only here: the import is slow, and only counting needs it.
        from tallystick.tables.reading import live_files

        for file in live_files(lake.store, table.metadata):
            rows, files, size_bytes = (
                rows + file.rows - file.deleted,
                files + 1,
                size_bytes + file.size_bytes,
            )
    return TableStatus(
        name=name,
        metadata=None if table.metadata is None else lake.where(table.metadata),
        columns=table.columns,
        partition_by=table.partition_by,
        rows=rows,
        files=files,
        size_bytes=size_bytes,
    )
