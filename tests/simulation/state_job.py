"""A job with every kind of state, staged without Spark, on the real plan, ledger, lookback and commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from support.fakes import FakeLog, FakeRecord, _write
from tallystick.engine.clock import LOG_TIME, LOG_TIME_TYPE, LogSpan, SplitClock
from tallystick.engine.transform import written_schema
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.plan import Plan, PlannedTopic
from tallystick.format.report import FileReport, RangeAccount, Report
from tallystick.lake import Lake
from tallystick.operations.lookback import LookbackInput, UncommittedRange, own_span, read_lookback
from tallystick.pipeline import DEAD_LETTERS, Column, Lookback, Pipeline, Table, pipeline_from_spec
from tallystick.protocol.compacting import Positions
from tallystick.stateful import (
    Aggregate,
    Sessions,
    Windows,
    closed_sessions,
    closed_windows,
    first_of,
    last_seen,
    merged,
    session_partials,
    window_partials,
)
from tallystick.stateful.aggregates import partial
from tallystick.store import Store
from tallystick.tables.state import TableState

TOPIC = "events"
KEY = ["key"]
SUMS = {"n": Aggregate(how="count"), "total": Aggregate(how="sum", column="amount")}
RUNNING = {**SUMS, "most": Aggregate(how="max", column="amount")}
WINDOWS = Windows(
    size=timedelta(minutes=60),
    slide=timedelta(minutes=30),
    lateness=timedelta(minutes=20),
    ahead=timedelta(minutes=10),
)
SESSIONS = Sessions(
    gap=timedelta(minutes=25),
    longest=timedelta(hours=2),
    lateness=timedelta(minutes=20),
    ahead=timedelta(minutes=10),
)
HORIZON = timedelta(minutes=90)
BACK = max(HORIZON, WINDOWS.back, SESSIONS.back)
_TIME, _TEXT, _LONG = "timestamptz", "string", "long"
_SUMMED = [Column("n", _LONG), Column("total", _LONG)]
EVENT = [Column("key", _TEXT), Column("amount", _LONG), Column("event", _TIME, required=False)]
PARTIALS = {
    "seen": [Column("key", _TEXT), Column("last_seen", _TIME)],
    "window_parts": [Column("window_start", _TIME), Column("key", _TEXT), *_SUMMED],
    "session_parts": [
        Column("key", _TEXT),
        Column("session_start", _TIME),
        Column("session_end", _TIME),
        *_SUMMED,
    ],
    "running_parts": [Column("key", _TEXT), *_SUMMED, Column("most", _LONG)],
}
RESULTS = {
    "windows": [
        Column("window_start", _TIME),
        Column("window_end", _TIME),
        Column("key", _TEXT),
        *_SUMMED,
    ],
    "corrections": PARTIALS["window_parts"],
    "sessions": PARTIALS["session_parts"],
    "running": [Column("as_of", _TIME), *PARTIALS["running_parts"]],
}
_KEYS = {
    "seen": ["key"],
    "running_parts": ["key"],
    "running": ["as_of", "key"],
    "sessions": ["key", "session_start", "session_end"],
    "session_parts": ["key", "session_start", "session_end"],
}


def declared(warehouse: str, lookback: Lookback) -> Pipeline:
    """Return the pipeline: deduplicated records, partial rows, and results."""
    tables = [Table("kept", columns=EVENT)]
    for name, columns in (PARTIALS | RESULTS).items():
        by = _KEYS.get(name, ["window_start", "key"])
        tables.append(Table(name, columns=columns, keys=by))
    return Pipeline(
        name="small",
        topics=[TOPIC],
        warehouse=warehouse,
        job="spark_jobs/state.py",
        tables=tables,
        lookback=lookback,
    )


def job(records: pa.Table, before: Mapping[str, pa.Table], span: Interval) -> dict[str, pa.Table]:
    """Transform as a user's job does, in Arrow: partial rows of the records, and results of these and of earlier rows."""
    timed = records
    seen = last_seen(timed, KEY)
    on = window_partials(timed, WINDOWS, KEY, "event", SUMS)
    runs = session_partials(timed, SESSIONS, KEY, "event", SUMS)
    values = partial(timed, KEY, RUNNING)
    closed = {"start": span.start, "end": span.end}
    all_windows = pa.concat_tables([on.on_time, _like(before["window_parts"], on.on_time)])
    all_runs = pa.concat_tables([runs.on_time, _like(before["session_parts"], runs.on_time)])
    all_values = pa.concat_tables([values, _like(before["running_parts"], values)])
    return {
        "kept": first_of(timed, before["seen"], KEY, HORIZON).drop(["_log_time"]),
        "seen": seen,
        "window_parts": on.on_time,
        "session_parts": runs.on_time,
        "running_parts": values,
        "windows": closed_windows(all_windows, WINDOWS, KEY, SUMS, **closed),
        "corrections": on.late,
        "sessions": closed_sessions(all_runs, SESSIONS, KEY, SUMS, **closed),
        "running": _as_of(merged(all_values, KEY, RUNNING), span.end),
    }


def _like(rows: pa.Table, other: pa.Table) -> pa.Table:
    return rows.select(other.column_names).cast(other.schema)


def _as_of(rows: pa.Table, at: datetime) -> pa.Table:
    column = pa.chunked_array([pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), rows.num_rows)])
    return rows.add_column(0, "as_of", column)


# ---------------------------------------------------------------- a stage without Spark


def stage_state(
    lake: Lake, log: FakeLog, plan_key: str, staged: Sequence[tuple[Plan, Report]] = ()
) -> tuple[Plan, Report]:
    """Stage a plan of that job and write its report."""
    plan = lake.plan(plan_key)
    assert plan is not None
    pipeline = pipeline_from_spec(plan.spec, where=plan_key)
    assert pipeline.lookback is not None
    lookback = read_lookback(lake, plan, pipeline.lookback, staged=staged, log=log)
    before, read = _before(lake, log, pipeline, lookback)
    records, dead, accounts = _read(log, plan.topics, own_span(lake, plan))
    outputs = job(records, before, plan.interval)
    rows = {
        name: _rows(outputs[name], written_schema(table))
        for name in outputs
        if (table := pipeline.table(name)) is not None
    }
    report = Report(
        key=keys.report(plan.interval.start, plan.interval.end, "a", lake.runtime.uuid()),
        plan=plan.key,
        plan_sha256=plan.sha256,
        fingerprint=plan.fingerprint,
        attempt="a",
        library="test",
        files=_files(lake, plan, pipeline, rows, dead),
        accounts=accounts,
        lookback=lookback.used(plan.fingerprint, read),
    )
    lake.put_new(report.key, report.encode())
    return plan, report


def _files(
    lake: Lake,
    plan: Plan,
    pipeline: Pipeline,
    rows: dict[str, list[dict[str, Any]]],
    dead: list[dict[str, Any]],
) -> tuple[FileReport, ...]:
    parts: Any = {name: {None: part} for name, part in rows.items()}
    places = sorted({row["_kafka_partition"] for row in dead})
    parts[DEAD_LETTERS] = {
        (TOPIC, p): [row for row in dead if row["_kafka_partition"] == p] for p in places
    }
    plain: Any = _Plain(pipeline)
    return _write(lake, plan, plain, parts, "a")


class _Plain:
    """The pipeline in the form that `_write` of the fakes expects: the rows are already combined."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.partition_by = pipeline.partition_by

    def table(self, name: str) -> None:
        """Return None: no table is to be combined."""
        del name


def _rows(table: pa.Table, schema: pa.Schema) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select(schema.names).cast(schema).to_pylist()
    return rows


def _before(
    lake: Lake, log: FakeLog, pipeline: Pipeline, lookback: LookbackInput
) -> tuple[dict[str, pa.Table], dict[Interval, int]]:
    """Return earlier partial rows by table, and how many records were read of uncommitted ranges."""
    schemas = {t.name: written_schema(t) for t in pipeline.tables}
    tables: dict[str, list[pa.Table]] = {n: [schemas[n].empty_table()] for n in PARTIALS}
    for part in lookback.parts:
        for name, into in tables.items():
            into += [stored(lake.store, f, schemas[name]) for f in part.files.get(name, ())]
    read: dict[Interval, int] = {}
    for unread in lookback.unread:
        rows, read[unread.interval] = _through_job(log, schemas, unread)
        for name, into in tables.items():
            into.append(rows[name].select(schemas[name].names).cast(schemas[name]))
    return {name: pa.concat_tables(parts) for name, parts in tables.items()}, read


def _through_job(
    log: FakeLog, schemas: Mapping[str, pa.Schema], unread: UncommittedRange
) -> tuple[dict[str, pa.Table], int]:
    records, _, _ = _read(log, unread.topics, unread.span)
    nothing = {name: schemas[name].empty_table() for name in PARTIALS}
    return job(records, nothing, unread.interval), records.num_rows


def stored(store: Store, file: FileReport, schema: pa.Schema) -> pa.Table:
    """Return a data file's rows."""
    body = store.get(file.key)
    assert body is not None, file.key
    return pq.read_table(pa.BufferReader(body.body)).select(schema.names).cast(schema)


_RECORDS = pa.schema(
    [
        ("key", pa.string()),
        ("amount", pa.int64()),
        ("event", pa.timestamp("us", tz="UTC")),
        ("_topic", pa.string()),
        ("_kafka_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", tz="UTC")),
        (LOG_TIME, LOG_TIME_TYPE),
    ]
)


def _clocks(
    records: Sequence[tuple[int, FakeRecord]], span: LogSpan, cuts: Sequence[tuple[int, int]]
) -> dict[int, datetime]:
    """Return the log time of each data record that is not aborted, read in two splits by the engine's own clock."""
    clocks: dict[int, datetime] = {}
    reached = 0
    for split in (records[: len(records) // 2], records[len(records) // 2 :]):
        aborted = [(o, record.at_ms) for o, record in split if record.kind == "aborted"]
        clock = SplitClock(span.interval, cuts, aborted)
        data = [(o, record.at_ms) for o, record in split if record.kind in ("data", "dead")]
        if data:
            columns = {
                "offset": pa.array([o for o, _ in data], pa.int64()),
                "timestamp": pa.array([at for _, at in data], pa.timestamp("ms", tz="UTC")),
            }
            log_times = clock.column(pa.RecordBatch.from_pydict(columns), np.arange(len(data)))
            # As in the landed files of a later split: never earlier than the clock at the end of the splits before.
            moments = pc.max_element_wise(log_times.cast(pa.int64()), reached * 1_000)
            times = moments.cast(LOG_TIME_TYPE).to_pylist()
            clocks.update(zip(columns["offset"].to_pylist(), times, strict=True))
        reached = max(reached, clock.end_ms())
    return clocks


def _read(
    log: FakeLog, topics: Sequence[PlannedTopic], span: LogSpan
) -> tuple[pa.Table, list[dict[str, Any]], tuple[RangeAccount, ...]]:
    rows: list[dict[str, Any]] = []
    dead: list[dict[str, Any]] = []
    accounts = []
    for topic in topics:
        for number, planned in enumerate(topic.ranges):
            counts = dict.fromkeys(("records", "dead_letters", "aborted", "control", "absent"), 0)
            readable = (planned.readable_from, planned.end)
            records = list(log.read(keys.kafka_topic(topic.name), number, *readable))
            clocks = _clocks(records, span, span.cuts(TOPIC, number))
            for offset, record in records:
                counts[
                    {"data": "records", "dead": "dead_letters"}.get(record.kind, record.kind)
                ] += 1
                lineage = {
                    "_topic": topic.name,
                    "_kafka_partition": number,
                    "_offset": offset,
                    "_timestamp": datetime.fromtimestamp(record.at_ms / 1000, UTC),
                }
                if record.kind == "data":
                    rows.append({**record.value, **lineage, LOG_TIME: clocks[offset]})
                if record.kind == "dead":
                    why = {"key": None, "value": b"{", "headers": None}
                    why |= {"kind": "json", "field": None, "detail": "-", "reason": "json: -"}
                    dead.append({**lineage, **why})
            account = RangeAccount(
                topic=topic.name,
                partition=number,
                start=planned.start,
                end=planned.end,
                lost=planned.lost,
                **counts,
            )
            accounts.append(account)
    return pa.Table.from_pylist(rows, schema=_RECORDS), dead, tuple(accounts)


class NoTables:
    """A writer of table metadata that writes nothing: the decision of a commit does not depend on it."""

    def __init__(self, new_uuid: Any) -> None:
        self._new_uuid, self._versions = new_uuid, 0

    def stage(
        self,
        state: TableState,
        *,
        add: Sequence[FileReport],
        drop: Collection[str],
        properties: Mapping[str, str],
        now: datetime,
        delete: Mapping[str, Positions] = MappingProxyType({}),
        sorted_by: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> str:
        """Return a new key of metadata, without an object."""
        del add, drop, properties, now, delete, sorted_by
        self._versions += 1
        number = f"{self._versions % 100000:05d}"
        return f"tables/{state.name}/metadata/{number}-{self._new_uuid()}.metadata.json"
