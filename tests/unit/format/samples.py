"""Samples of every stored value, and Hypothesis strategies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from tallystick.format import keys
from tallystick.format.calls import Call, Calls
from tallystick.format.claim import Claim
from tallystick.format.columns import FormerName, TableColumn
from tallystick.format.compaction import Compaction, CompactionGrant, RowOrder, Run, SharedFile
from tallystick.format.interval import Interval, Request
from tallystick.format.lookback import LookbackUsed, UsedInterval
from tallystick.format.offsets import Position
from tallystick.format.outcome import OutcomeError, OutcomePlan, StageOutcome
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import Boundary, Committed, Entry, Granted, Page, PageRef, Totals
from tallystick.format.partition_rules import PartitionField
from tallystick.format.plan import Plan, PlannedRange, PlannedTable, PlannedTopic
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.registrations import Registration
from tallystick.format.registries import PlannedRegistry
from tallystick.format.report import ColumnStatistics, FileReport, Lineage, RangeAccount, Report
from tallystick.format.root import Closed, Root, RootTable, RootTopic
from tallystick.format.schemas import FrozenReference, FrozenSchema, schema_digest
from tallystick.format.upkeep import Upkeep

T0 = datetime(2013, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
COLUMNS = (
    TableColumn(id=1, name="origin", type="string", required=True),
    TableColumn(id=2, name="delay", type="int", required=False),
)


def uuid(number: int) -> str:
    """Return a uuid that is the same in every run."""
    return f"{number:032x}"


def at(hour: float) -> datetime:
    """Return the instant `hour` hours after T0."""
    return T0 + hour * HOUR


def interval(first: float, last: float) -> Interval:
    """Return [T0 + first hours, T0 + last hours)."""
    return Interval(start=at(first), end=at(last))


def request(run: str = "r1", clear: int = 0) -> Request:
    """Return a request of the DAG `d`."""
    return Request(dag="d", run=run, clear=clear)


def plan_key(first: float, last: float, number: int = 1) -> str:
    """Return the key of a plan of that interval."""
    return keys.plan(at(first), at(last), uuid(number))


def granted(
    first: float, last: float, *, run: str = "r1", clear: int = 0, generation: int = 1
) -> Granted:
    """Return a grant. The uuid of its plan is its generation."""
    return Granted(
        plan=plan_key(first, last, generation), request=request(run, clear), generation=generation
    )


def committed(
    first: float,
    last: float,
    *,
    run: str = "r1",
    clear: int = 0,
    generation: int = 1,
    fingerprint: str = "f1",
    records: int = 1,
) -> Committed:
    """Return a commit. The uuid of its plan is its generation."""
    return Committed(
        plan=plan_key(first, last, generation),
        request=request(run, clear),
        generation=generation,
        fingerprint=fingerprint,
        record=keys.record(generation, uuid(generation)),
        totals=Totals(records=records),
    )


def entry(
    first: float,
    last: float,
    *,
    grant: Granted | None = None,
    commit: Committed | None = None,
    served: tuple[Request, ...] = (),
    outputs: Mapping[str, OutputSlot] | None = None,
) -> Entry:
    """Return an entry. Its generation is the largest of its slots."""
    generation = max(slot.generation for slot in (grant, commit) if slot is not None)
    return Entry(
        interval=interval(first, last),
        generation=generation,
        granted=grant,
        committed=commit,
        served=served,
        outputs=outputs or {},
    )


def boundary(hour: float, *offsets: int) -> Boundary:
    """Return a boundary of topic `t` with these offsets per partition."""
    return Boundary(
        at=at(hour), positions={"t": tuple(Position(offset=o, leader_epoch=0) for o in offsets)}
    )


SAMPLE_PLAN = Plan(
    key=plan_key(0, 1),
    pipeline="flights",
    interval=interval(0, 1),
    generation=2,
    request=Request(dag="flights", run="scheduled__2013-01-01T01:00:00+00:00", clear=1),
    fingerprint="f" * 64,
    replaces=plan_key(0, 1, 9),
    topics=(
        PlannedTopic(
            name="flights",
            topic_id="topic-1",
            cluster_id="cluster-1",
            compacted=False,
            ranges=(
                PlannedRange(start=0, end=10, start_epoch=-1, end_epoch=0, readable_from=2),
                PlannedRange(start=5, end=5, start_epoch=0, end_epoch=0, readable_from=5),
            ),
        ),
    ),
    tables=(PlannedTable(name="flights", uuid=uuid(7), columns=COLUMNS),),
    spec={"format": "tallystick.pipeline/1", "name": "flights"},
    accept_loss=True,
    accept_compaction=False,
    planned_at=at(1),
    library="0.1.0",
)

SAMPLE_REFERENCES = (
    FrozenReference(name="Address", subject="address", version=2, text='{"type": "string"}'),
)
SAMPLE_SCHEMA = FrozenSchema(
    id=7,
    subject="flights-value",
    version=1,
    kind="AVRO",
    text='{"type": "long"}',
    references=SAMPLE_REFERENCES,
    sha256=schema_digest("AVRO", '{"type": "long"}', SAMPLE_REFERENCES),
)
SAMPLE_PLAN_ACCEPTING = replace(
    SAMPLE_PLAN,
    tables=(replace(SAMPLE_PLAN.tables[0], file_size_bytes=1 << 20, compression="snappy"),),
    accept_loss=False,
    accept_dead_letters=True,
    registries=(PlannedRegistry(name="default", schemas=(SAMPLE_SCHEMA,)),),
)

SAMPLE_PLAN_PARQUET_2 = replace(
    SAMPLE_PLAN, tables=(replace(SAMPLE_PLAN.tables[0], parquet_version=2),)
)

FILE_KEY = keys.data_file("flights", SAMPLE_PLAN.key, "attempt-1", "0", uuid(3))
SAMPLE_FILE = FileReport(
    table="flights",
    key=FILE_KEY,
    etag='"abc"',
    size_bytes=1234,
    rows=8,
    partition=(516, None, "JFK"),
    columns=(
        ColumnStatistics(id=1, size_bytes=60, values=8, nulls=0, lower="45", upper="4a"),
        ColumnStatistics(id=2, size_bytes=40, values=8, nulls=8),
    ),
    lineage=(Lineage(topic="flights", partition=0, first=2, last=9),),
    split_offsets=(4,),
)
SAMPLE_ACCOUNTS = (
    RangeAccount(
        topic="flights", partition=0, start=0, end=10, records=6, dead_letters=1, control=1, lost=2
    ),
    RangeAccount(topic="flights", partition=1, start=5, end=5),
)
SAMPLE_REPORT = Report(
    key=keys.report(at(0), at(1), "attempt-1", uuid(4)),
    plan=SAMPLE_PLAN.key,
    plan_sha256=SAMPLE_PLAN.sha256,
    fingerprint=SAMPLE_PLAN.fingerprint,
    attempt="attempt-1",
    library="0.1.0",
    files=(SAMPLE_FILE,),
    accounts=SAMPLE_ACCOUNTS,
)
SAMPLE_CLAIM = Claim(
    plan=SAMPLE_PLAN.key, request=request("r2", 1), attempt="attempt-1", until=at(2)
)
SAMPLE_OUTCOME = StageOutcome(
    attempt="attempt-1",
    plans=(
        OutcomePlan(plan=SAMPLE_PLAN.key, report=SAMPLE_REPORT.key),
        OutcomePlan(plan=keys.check_plan(plan_key(1, 2)), report=None),
    ),
)
SAMPLE_OUTCOME_ERROR = StageOutcome(
    attempt="attempt-1",
    error=OutcomeError(kind="job_changed", message="the job changed.", hint="clear plan."),
)
SAMPLE_PAGE = Page(
    entries=(
        entry(0, 1, grant=granted(0, 1, generation=2), commit=committed(0, 1), served=(request(),)),
        entry(1, 3, grant=granted(1, 3)),
    ),
    boundaries=(boundary(0, 0, 0), boundary(1, 10, 5), boundary(3, 12, 5)),
)
SAMPLE_INDEX = (PageRef(since=at(0), until=at(3), key=keys.page(uuid(5))),)
SAMPLE_TABLES = {
    "flights": RootTable(
        uuid=uuid(7),
        metadata=f"tables/flights/metadata/00001-{uuid(8)}.metadata.json",
        columns=COLUMNS,
        partition_by=("truncate(2, origin)",),
        dropped=(
            TableColumn(id=3, name="gate", type="decimal(9,2)", required=False),
            TableColumn(
                id=4,
                name="legs",
                type="list",
                required=False,
                fields=(
                    TableColumn(
                        id=5,
                        name="element",
                        type="struct",
                        required=True,
                        fields=(TableColumn(id=6, name="to", type="fixed[3]", required=False),),
                    ),
                ),
            ),
        ),
        former_names=(FormerName(id=1, name="place"),),
        partition_fields=(
            PartitionField(source_id=1, transform="truncate[2]", name="place_trunc_2"),
        ),
    ),
    "dead_letters": RootTable(uuid=uuid(6), metadata=None, columns=COLUMNS, partition_by=()),
}
SAMPLE_TABLES_DECLARED = {
    **SAMPLE_TABLES,
    "flights": replace(
        SAMPLE_TABLES["flights"],
        upkeep=Upkeep(
            snapshots_kept=5, snapshots_kept_for=timedelta(days=7), sort_by=("delay", "origin")
        ),
    ),
}
SAMPLE_RECORD = Record(
    key=keys.record(4, uuid(11)),
    version=4,
    root_id=uuid(12),
    parent=keys.record(2, uuid(10)),
    committed_at=at(2),
    library="0.1.0",
    intervals=(
        CommittedInterval(
            interval=interval(0, 1),
            plan=SAMPLE_PLAN.key,
            report=SAMPLE_REPORT.key,
            request=SAMPLE_PLAN.request,
            generation=2,
            fingerprint=SAMPLE_PLAN.fingerprint,
            replaces=keys.record(2, uuid(10)),
            totals=Totals(records=6, dead_letters=1, control=1, lost=2),
            accounts=SAMPLE_ACCOUNTS,
            added={"flights": (FILE_KEY,)},
            dropped={"flights": (FILE_KEY,)},
        ),
        CommittedInterval(
            interval=interval(1, 2),
            plan=plan_key(1, 2),
            report=None,
            request=request(),
            generation=1,
            fingerprint="f1",
            replaces=None,
            totals=Totals(),
            accounts=(),
            added={},
            dropped={},
        ),
    ),
    tables=SAMPLE_TABLES_DECLARED,
    pages=SAMPLE_INDEX,
)
SAMPLE_COMPACTION = Compaction(
    key=keys.compaction("flights", uuid(20)),
    pipeline="flights",
    uuid=uuid(7),
    columns=COLUMNS,
    partition_by=("truncate(2, origin)",),
    files=(
        SharedFile(
            file=replace(
                SAMPLE_FILE,
                key=keys.shared_file("flights", uuid(20), "0", uuid(21)),
                rows=11,
                columns=(),
                lineage=(),
            ),
            runs=(
                Run(key=FILE_KEY, rows=8),
                Run(
                    key=keys.data_file("flights", plan_key(1, 2), "attempt-1", "0", uuid(22)),
                    rows=3,
                    source=keys.CompactionId(uuid(19)),
                ),
            ),
            order=RowOrder(
                key=keys.row_order("flights", uuid(20), "0", uuid(23)),
                etag='"e1"',
                sorted_by=(2, 1),
            ),
        ),
    ),
    library="0.1.0",
)
SAMPLE_RECORD_COMPACTING = replace(
    SAMPLE_RECORD,
    intervals=(),
    compactions=(SAMPLE_COMPACTION.key,),
    compacted=keys.record(2, uuid(10)),
)
SAMPLE_ROOT = Root(
    pipeline="flights",
    version=5,
    id=uuid(13),
    record=SAMPLE_RECORD.key,
    tables=SAMPLE_TABLES,
    pages=SAMPLE_INDEX,
    topics={"flights": RootTopic(topic_id="topic-1", cluster_id="cluster-1", origins=(0, 0))},
    former_names=("old-flights",),
    uri="s3://lakes/flights",
)
SAMPLE_ADOPTED = replace(
    SAMPLE_ROOT,
    topics={
        "flights": RootTopic(
            topic_id="topic-1",
            cluster_id="cluster-1",
            origins=(0, 0),
            closed=Closed(since=T0, ends=(7, 9)),
        ),
        "flights@2": RootTopic(topic_id="topic-2", cluster_id="cluster-2", origins=(3,)),
    },
)
SAMPLE_LOOKBACK = LookbackUsed(
    since=at(-3),
    seen=(
        UsedInterval(interval=interval(-3, -1), fingerprint="f1", records=20),
        UsedInterval(interval=interval(-1, 0), fingerprint="f2", records=0),
    ),
)
SAMPLE_REPORT_LOOKBACK = replace(SAMPLE_REPORT, lookback=SAMPLE_LOOKBACK)
SAMPLE_PAGE_PENDING = Page(
    entries=(
        entry(
            0,
            1,
            grant=granted(0, 1, generation=2),
            commit=replace(
                committed(0, 1),
                lookback=SAMPLE_LOOKBACK,
                compactions={"flights": SAMPLE_COMPACTION.id},
            ),
            outputs={
                "feed": OutputSlot(wanted=uuid(1)),
                "invoices": OutputSlot(wanted=uuid(1), in_progress=uuid(1), published=uuid(9)),
            },
        ),
        entry(1, 3, grant=granted(1, 3)),
    ),
    boundaries=SAMPLE_PAGE.boundaries,
)
SAMPLE_CALLS = Calls(
    output="feed", interval=interval(0, 1).part, generation=1, plan=uuid(3), first=500, end=1000
)
SAMPLE_CALL = Call(
    output="mail",
    key="ts1-" + 40 * "a",
    interval=interval(0, 1).part,
    generation=1,
    plan=uuid(3),
    row=17,
    publisher=uuid(4),
)
SAMPLE_WITH_OUTPUTS = replace(
    SAMPLE_ADOPTED,
    tables=SAMPLE_TABLES_DECLARED,
    outputs={"feed": "kafka:default/feed", "invoices": "postgres:billing/invoices"},
    pending=(SAMPLE_INDEX[0].key,),
    compacting=(CompactionGrant(key=keys.compaction("flights", uuid(23)), granted_at=at(3)),),
    compacted=keys.record(3, uuid(24)),
    reader_grace=timedelta(hours=36),
    registrations={
        "company": Registration(
            target="sql:default/company/flights",
            since=keys.record(2, uuid(25)),
            registered=keys.record(3, uuid(24)),
        ),
        "old": Registration(target="glue:default/default/flights", declared=False),
    },
)

# ---------------------------------------------------------------- strategies

slots = st.builds(
    OutputSlot,
    wanted=st.sampled_from([uuid(1), uuid(2)]),
    in_progress=st.sampled_from([None, uuid(1), uuid(2)]),
    published=st.sampled_from([None, uuid(3), uuid(4)]),
)

offsets = st.integers(0, 2**63 - 1)
small = st.integers(0, 40)
requests = st.builds(
    Request,
    dag=st.sampled_from(["d", "é-1"]),
    run=st.sampled_from(["r1", "manual__2013-01-01T00:00:00+00:00"]),
    clear=st.integers(0, 3),
)
totals = st.builds(
    Totals,
    records=small,
    dead_letters=small,
    aborted=small,
    control=small,
    absent=small,
    lost=small,
)


@st.composite
def accounts(draw: Any) -> RangeAccount:
    """Draw an account that adds up."""
    counts = {
        name: draw(small)
        for name in ("records", "dead_letters", "aborted", "control", "absent", "lost")
    }
    start = draw(st.integers(0, 2**40))
    return RangeAccount(
        topic="t",
        partition=draw(st.integers(0, 9)),
        start=start,
        end=start + sum(counts.values()),
        **counts,
    )


@st.composite
def pages(draw: Any, *, hours_max: int = 30) -> Page:
    """Draw a page with some intervals, gaps and boundaries."""
    cuts = sorted(draw(st.sets(st.integers(0, hours_max), min_size=2, max_size=12)))
    entries = []
    for first, last in itertools.pairwise(cuts):
        shape = draw(st.sampled_from(["gap", "granted", "committed", "both"]))
        if shape == "gap":
            continue
        grant = granted(first, last, generation=2) if shape in ("granted", "both") else None
        commit = committed(first, last) if shape in ("committed", "both") else None
        served = tuple(draw(st.lists(requests, max_size=3)))
        outputs = draw(st.dictionaries(st.sampled_from(["feed", "mail"]), slots)) if commit else {}
        entries.append(
            entry(first, last, grant=grant, commit=commit, served=served, outputs=outputs)
        )
    width = draw(st.integers(0, 3))
    boundaries = tuple(boundary(hour, *[hour * 10] * width) for hour in cuts)
    return Page(entries=tuple(entries), boundaries=boundaries)
