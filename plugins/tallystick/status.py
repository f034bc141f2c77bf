"""The use case `status`: what a lake holds, what is missing, who has what, and the command that fills each hole.

Values only; nothing is printed and nothing is written. Each answer comes from one root.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from tallystick.errors import InvalidRequest
from tallystick.lake import Lake, View
from tallystick.protocol.canonical import corrupt
from tallystick.protocol.columns import TableColumn
from tallystick.protocol.interval import Interval, Request
from tallystick.protocol.ledger import Entry, Ledger, Totals
from tallystick.protocol.record import CommittedInterval, Record
from tallystick.protocol.root import RootTable, RootTopic

State = Literal["committed", "granted", "replacing"]
# Airflow names the runs of a schedule and of a backfill so; both have whole intervals of the schedule.
_SCHEDULED = ("scheduled__", "backfill__")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalStatus:
    """One entry of the ledger. `totals` and `owner` are the committed ones; the grant's owner where nothing is."""

    interval: Interval
    state: State
    generation: int
    totals: Totals | None
    owner: Request
    plan: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantStatus:
    """Who may commit an interval next; `replaces`: rows are committed there, and stand until then."""

    interval: Interval
    request: Request
    generation: int
    plan: str
    replaces: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A stretch between the first and the last boundary that no entry covers, and the command that fills it.

    `intervals`: of how many whole intervals of the schedule it is made, None where it is not. `command` is empty where no
    DAG is known.
    """

    interval: Interval
    intervals: int | None
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a root says about its ledger. `every`: the schedule's length, as the ledger's scheduled runs show it."""

    uri: str
    pipeline: str
    version: int
    record: str | None
    topics: Mapping[str, RootTopic]
    first: datetime | None
    last: datetime | None
    every: timedelta | None
    intervals: tuple[IntervalStatus, ...]
    holes: tuple[Hole, ...]
    grants: tuple[GrantStatus, ...]

    @property
    def totals(self) -> Totals:
        """All committed offsets by class."""
        sums: Counter[str] = Counter()
        for one in self.committed:
            sums.update({name: getattr(one.totals, name) for name in Totals.__dataclass_fields__})
        return Totals(**sums)

    @property
    def committed(self) -> tuple[IntervalStatus, ...]:
        """The intervals with committed rows."""
        return tuple(one for one in self.intervals if one.totals is not None)

    @property
    def lost(self) -> tuple[IntervalStatus, ...]:
        """The committed intervals with offsets that an operator accepted as lost."""
        return tuple(one for one in self.committed if one.totals is not None and one.totals.lost)


def read_status(lake: Lake) -> Status:
    """Say what the lake's current root holds. Raises RootVanished, Corrupt, and what the store raises."""

    def question(view: View) -> Status:
        root, ledger = view.root, view.whole_ledger()
        instants = [b.at for b in ledger.boundaries]
        return Status(
            uri=lake.store.uri,
            pipeline=root.pipeline,
            version=root.version,
            record=root.record,
            topics=root.topics,
            first=instants[0] if instants else None,
            last=instants[-1] if instants else None,
            every=schedule_length(ledger.entries),
            intervals=tuple(_interval_status(e) for e in ledger.entries),
            holes=holes(ledger),
            grants=tuple(_grant_status(e) for e in ledger.entries if e.granted is not None),
        )

    return lake.cut(question)


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


def _grant_status(entry: Entry) -> GrantStatus:
    assert entry.granted is not None
    return GrantStatus(
        interval=entry.interval,
        request=entry.granted.request,
        generation=entry.granted.generation,
        plan=entry.granted.plan,
        replaces=entry.committed is not None,
    )


# ---------------------------------------------------------------- holes and their commands


def holes(ledger: Ledger) -> tuple[Hole, ...]:
    """The stretches between the first and the last boundary that no entry covers, with the commands that fill them."""
    instants = [b.at for b in ledger.boundaries]
    if not instants:
        return ()
    every = schedule_length(ledger.entries)
    found: list[Hole] = []
    start = instants[0]
    for entry in ledger.entries:
        if entry.interval.start > start:
            found.append(
                _hole(Interval(start=start, end=entry.interval.start), ledger.entries, every)
            )
        start = max(start, entry.interval.end)
    if start < instants[-1]:
        found.append(_hole(Interval(start=start, end=instants[-1]), ledger.entries, every))
    return tuple(found)


def schedule_length(entries: Iterable[Entry]) -> timedelta | None:
    """How long the schedule's intervals are, by what its runs own; None where no scheduled run shows it.

    The ledger does not know the schedule. Most scheduled runs have a whole interval of it; some have the rest of one that
    others had in part, hence the commonest length, and the longer of two equally common ones.
    """
    lengths = Counter(e.interval.end - e.interval.start for e in entries if _is_scheduled(e))
    return max(lengths, key=lambda length: (lengths[length], length), default=None)


def _is_scheduled(entry: Entry) -> bool:
    return any(
        s is not None and s.request.run.startswith(_SCHEDULED)
        for s in (entry.granted, entry.committed)
    )


def _hole(interval: Interval, entries: Sequence[Entry], every: timedelta | None) -> Hole:
    dag = _dag_near(interval, entries)
    whole = _whole_intervals(interval, entries, every)
    if dag is None:
        command: tuple[str, ...] = ()
    elif whole is not None and every is not None:
        command = backfill_command(dag, interval.start, interval.end - every)
    else:
        command = trigger_command(dag, interval)
    return Hole(interval=interval, intervals=whole, command=command)


def _whole_intervals(
    interval: Interval, entries: Iterable[Entry], every: timedelta | None
) -> int | None:
    """How many intervals of the schedule fit exactly; schedules in local time have two phases in a year."""
    if every is None or (interval.end - interval.start) % every:
        return None
    phases = {
        (e.interval.start - interval.start) % every
        for e in entries
        if _is_scheduled(e) and e.interval.end - e.interval.start == every
    }
    return (interval.end - interval.start) // every if timedelta(0) in phases else None


def _dag_near(interval: Interval, entries: Iterable[Entry]) -> str | None:
    """The DAG of the nearest entry, scheduled runs first: a lake may be written by more than one."""
    near = min(
        entries,
        key=lambda e: (
            not _is_scheduled(e),
            min(abs(e.interval.end - interval.start), abs(e.interval.start - interval.end)),
        ),
        default=None,
    )
    slot = (near.committed or near.granted) if near else None
    return slot.request.dag if slot else None


def backfill_command(dag: str, first: datetime, last: datetime) -> tuple[str, ...]:
    """The command that runs the intervals beginning at `first` to `last`, both inclusive: Airflow takes logical dates.

    `completed`: by default Airflow skips a date that has a run already, also one that failed or left its part to others.
    """
    return (
        *("airflow", "backfill", "create", "--dag-id", dag),
        *("--from-date", first.isoformat(), "--to-date", last.isoformat()),
        *("--reprocess-behavior", "completed"),
    )


def trigger_command(dag: str, interval: Interval) -> tuple[str, ...]:
    """The command that runs exactly `interval`, whatever the schedule is."""
    conf = json.dumps({"from": interval.start.isoformat(), "to": interval.end.isoformat()})
    return ("airflow", "dags", "trigger", dag, "--conf", conf)


# ---------------------------------------------------------------- log


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLine:
    """One commit. `replaces` of an interval names the record of the commit that it replaced."""

    record: str
    version: int
    committed_at: datetime
    library: str
    intervals: tuple[CommittedInterval, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Commits, newest first. `before`: the record of the next older one, None after the first commit of all."""

    uri: str
    pipeline: str
    version: int
    commits: tuple[CommitLine, ...]
    before: str | None


def read_log(lake: Lake, *, limit: int) -> Log:
    """Follow the chain of records from the root, at most `limit` of them. Raises RootVanished and Corrupt."""
    root = lake.require().root
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
    return Log(
        uri=lake.store.uri,
        pipeline=root.pipeline,
        version=root.version,
        commits=tuple(commits),
        before=key,
    )


def _record(lake: Lake, key: str) -> Record:
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

    def question(view: View) -> LakeTables:
        version, tables = view.root.version, view.root.tables
        if as_of is not None:
            found = _record_at(lake, view, as_of)
            version, tables = found.version, found.tables
            _refuse_collected(lake, view, found)
        return LakeTables(
            uri=lake.store.uri,
            pipeline=view.root.pipeline,
            version=version,
            tables=tuple(
                _table_status(lake, name, table, count=count)
                for name, table in sorted(tables.items())
            ),
        )

    return lake.cut(question)


def _record_at(lake: Lake, view: View, as_of: int) -> Record:
    """The newest commit of the chain whose version is `as_of` or lower."""
    if not 1 <= as_of <= view.root.version:
        raise InvalidRequest(
            f"{lake.store.uri} has no version {as_of}; it is at version {view.root.version}.",
            next_step="`tally log` shows the versions that committed something.",
        )
    key = view.root.record
    while key is not None:
        record = _record(lake, key)
        if record.version <= as_of:
            return record
        key = record.parent
    raise InvalidRequest(
        f"nothing was committed to {lake.store.uri} by version {as_of}.",
        next_step="`tally log` shows the versions that committed something.",
    )


def _refuse_collected(lake: Lake, view: View, record: Record) -> None:
    """Raise InvalidRequest where gc has taken an older version's tables; it takes their metadata first."""
    current = {table.metadata for table in view.root.tables.values()}
    for table in record.tables.values():
        if table.metadata in current or table.metadata is None:
            continue
        if lake.store.get(table.metadata) is None:
            raise InvalidRequest(
                f"version {record.version} of {lake.store.uri} can be read no more: gc has collected {table.metadata}.",
                next_step="older versions stay readable for gc's reader grace; ask for a later one, or for none.",
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
