"""The use case "lineage": what a run's commits read and wrote, as far as the lake states it. It only reads.

A commit is found by its plan in the ledger. All values are those of the commit's own record, so they are the same when
they are read again, also after later commits and after the commit was replaced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.columns import TableColumn
from tallystick.format.interval import Interval
from tallystick.format.offsets import Coverage, OffsetRange
from tallystick.format.page import Totals
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.report import Report, account_totals
from tallystick.format.root import RootTable
from tallystick.lake import Lake, Snapshot
from tallystick.operations.column_origins import (
    ColumnOrigin,
    RecordField,
    column_origins,
    record_fields,
)
from tallystick.pipeline import Pipeline, pipeline_from_spec
from tallystick.tables.file_io import StoreFileIO
from tallystick.tables.staging import load_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRead:
    """What a commit read of one topic: all its incarnations together, because they have one name in Kafka.

    `incarnations`: the topic's id and the cluster's id, by the ledger's name. `ranges`: by the ledger's name and the
    partition, half-open, only partitions with offsets. `fields`: those that the declaration reads.
    """

    name: str
    incarnations: Mapping[str, tuple[str, str]]
    ranges: Mapping[tuple[str, int], Coverage]
    totals: Totals
    fields: tuple[RecordField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWritten:
    """What a commit did to one table. `location` is its URI.

    `before`, `after`: the ids of the Iceberg snapshots around the commit, None if there is none or if gc has deleted the
    metadata. They are the same if the commit changed no file of the table. `rows`, `size_bytes`, `files`: of the files
    that were added; the first two are None if gc has deleted the report. `dropped`: the files that were replaced.
    """

    name: str
    location: str
    columns: tuple[TableColumn, ...]
    origins: tuple[ColumnOrigin, ...]
    before: int | None
    after: int | None
    rows: int | None
    size_bytes: int | None
    files: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLineage:
    """What one commit read and wrote. `mode`: `replace` if it replaced an earlier commit of its interval, else `append`.

    `is_whole`: False if gc has deleted the plan or the report: then topics have no ids, and tables no origins or counts.
    `lookback`: the URIs of the tables whose earlier rows the job read.
    """

    interval: Interval
    plan: keys.PlanKey
    record: keys.RecordKey
    version: int
    committed_at: datetime
    generation: int
    mode: Literal["append", "replace"]
    totals: Totals
    topics: tuple[TopicRead, ...]
    tables: tuple[TableWritten, ...]
    lookback: tuple[str, ...]
    is_whole: bool


def read_commit(lake: Lake, plan_key: keys.PlanKey) -> CommitLineage | None:
    """Return what the commit of a plan read and wrote; None if the plan is not committed, or gc has deleted the record.

    Raises Corrupt if an object is damaged, and the errors of the lake.
    """
    return lake.read(lambda snapshot: _from_snapshot(lake, snapshot, plan_key))


def table_location(lake_uri: str, table: str) -> str:
    """Return the URI of a table's folder, as its Iceberg metadata has it."""
    return f"{lake_uri}/{keys.table_prefix(table).rstrip('/')}"


def all_topics(commits: Sequence[CommitLineage]) -> tuple[TopicRead, ...]:
    """Return what several commits read together, a value per topic."""
    by_name: dict[str, list[TopicRead]] = defaultdict(list)
    for commit in commits:
        for topic in commit.topics:
            by_name[topic.name].append(topic)
    return tuple(_joined_topic(several) for several in by_name.values())


def all_tables(commits: Sequence[CommitLineage]) -> tuple[TableWritten, ...]:
    """Return what several commits did together, a value per table: columns and origins are those of the last commit."""
    by_name: dict[str, list[TableWritten]] = defaultdict(list)
    for commit in sorted(commits, key=lambda c: c.version):
        for table in commit.tables:
            by_name[table.name].append(table)
    return tuple(_joined_table(several) for several in by_name.values())


def _joined_topic(several: Sequence[TopicRead]) -> TopicRead:
    ranges: dict[tuple[str, int], Coverage] = {}
    for topic in several:
        for place, found in topic.ranges.items():
            ranges[place] = ranges.get(place, Coverage()).union(found)
    return TopicRead(
        name=several[0].name,
        incarnations={name: ids for topic in several for name, ids in topic.incarnations.items()},
        ranges=dict(sorted(ranges.items())),
        totals=Totals.sum_of(topic.totals for topic in several),
        fields=several[-1].fields,
    )


def _joined_table(several: Sequence[TableWritten]) -> TableWritten:
    last = several[-1]
    return TableWritten(
        name=last.name,
        location=last.location,
        columns=last.columns,
        origins=last.origins,
        before=several[0].before,
        after=last.after,
        rows=_sum([table.rows for table in several]),
        size_bytes=_sum([table.size_bytes for table in several]),
        files=sum(table.files for table in several),
        dropped=sum(table.dropped for table in several),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _from_snapshot(lake: Lake, snapshot: Snapshot, plan_key: keys.PlanKey) -> CommitLineage | None:
    start, end = keys.plan_interval(plan_key)
    entry = snapshot.ledger(start, end).entry(Interval(start=start, end=end))
    if entry is None or entry.committed is None:
        return None
    key: keys.RecordKey | None = entry.committed.record
    for commit in lake.commits_of(entry):
        if commit.plan == plan_key:
            break
        key = commit.replaces
    else:
        return None
    record = None if key is None else lake.record(key)
    if record is None:
        return None
    plan = lake.plan(plan_key)
    report = None if commit.report is None else lake.report(commit.report)
    pipeline = (
        None
        if plan is None
        else pipeline_from_spec(plan.spec, where=f"{lake.where(plan.key)}.spec")
    )
    topics = _topics(commit, plan, pipeline)
    back = pipeline.lookback if report is not None and report.lookback and pipeline else None
    return CommitLineage(
        interval=commit.interval,
        plan=plan_key,
        record=record.key,
        version=record.version,
        committed_at=record.committed_at,
        generation=commit.generation,
        mode="append" if commit.replaces is None else "replace",
        totals=commit.totals,
        topics=topics,
        tables=_tables(lake, record, commit, report, pipeline, [t.name for t in topics]),
        lookback=tuple(table_location(lake.store.uri, t) for t in back.tables) if back else (),
        is_whole=plan is not None and (report is not None or commit.report is None),
    )


def _topics(
    commit: CommittedInterval, plan: Plan | None, pipeline: Pipeline | None
) -> tuple[TopicRead, ...]:
    planned = {} if plan is None else {t.name: (t.topic_id, t.cluster_id) for t in plan.topics}
    names = list(dict.fromkeys([*planned, *(account.topic for account in commit.accounts)]))
    found: list[TopicRead] = []
    for kafka_name in dict.fromkeys(map(keys.kafka_topic, names)):
        own = [name for name in names if keys.kafka_topic(name) == kafka_name]
        accounts = tuple(a for a in commit.accounts if a.topic in own)
        ranges = [((a.topic, a.partition), OffsetRange(start=a.start, end=a.end)) for a in accounts]
        declared = pipeline is not None and kafka_name in (t.name for t in pipeline.inputs)
        found.append(
            TopicRead(
                name=kafka_name,
                incarnations={name: planned[name] for name in own if name in planned},
                ranges={place: Coverage.of([r]) for place, r in ranges if not r.empty},
                totals=Totals(**account_totals(accounts)),
                fields=record_fields(pipeline, kafka_name) if pipeline and declared else (),
            )
        )
    return tuple(found)


def _tables(
    lake: Lake,
    record: Record,
    commit: CommittedInterval,
    report: Report | None,
    pipeline: Pipeline | None,
    topics: Sequence[str],
) -> tuple[TableWritten, ...]:
    """Return the tables that the plan declares and those that lost files, with what the commit did to them."""
    declared = record.tables if pipeline is None else pipeline.written_columns()
    known = [] if pipeline is None else [t.name for t in pipeline.inputs]
    sources = [topic for topic in topics if topic in known]
    files = () if report is None else report.files
    is_counted = report is not None or not commit.added
    found: list[TableWritten] = []
    for name in sorted({*declared, *commit.added, *commit.dropped} & record.tables.keys()):
        table = record.tables[name]
        before, after = _snapshots(lake, table, record)
        found.append(
            TableWritten(
                name=name,
                location=table_location(lake.store.uri, name),
                columns=table.columns,
                origins=() if pipeline is None else column_origins(pipeline, name, sources),
                before=before,
                after=after,
                rows=sum(f.rows for f in files if f.table == name) if is_counted else None,
                size_bytes=sum(f.size_bytes for f in files if f.table == name)
                if is_counted
                else None,
                files=len(commit.added.get(name, ())),
                dropped=len(commit.dropped.get(name, ())),
            )
        )
    return tuple(found)


def _snapshots(lake: Lake, table: RootTable, record: Record) -> tuple[int | None, int | None]:
    """Return the ids of the table's Iceberg snapshots before and after a commit; None for what is not known."""
    if table.metadata is None:
        return None, None
    with suppress(Corrupt):  # gc may have deleted the metadata of an old commit
        head = load_metadata(StoreFileIO(lake.store), table.metadata).current_snapshot()
        if head is None:
            return None, None
        made_by = head.summary["tallystick.record"] if head.summary else None
        is_own = made_by == record.key
        return head.parent_snapshot_id if is_own else head.snapshot_id, head.snapshot_id
    return None, None
