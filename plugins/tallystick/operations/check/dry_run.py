"""Decodes a sample as a task does and calls the job's transform on it, without Spark. Nothing is written."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.combine import combined
from tallystick.engine.conform import fits
from tallystick.engine.reasons import ReasonCount, counted
from tallystick.engine.task import read_split
from tallystick.engine.transform import JobTransform, written_schema
from tallystick.errors import InvalidPipeline, TallystickError
from tallystick.format.registries import PlannedRegistry
from tallystick.operations.sample.records import Sample, SampleReading
from tallystick.pipeline import Column, Pipeline, Table, Topic
from tallystick.tables.schema import type_name

DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPair:
    """A column of a table as declared and as the transform returned it; None where one side lacks it."""

    table: str
    column: str
    declared: str | None
    returned: str | None
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """How far a time column is from the records' Kafka timestamps; `example`: one value and its timestamp."""

    column: str
    compared: int
    days_apart: int
    example: tuple[str, str] | None


@dataclass(slots=True, kw_only=True)
class DryRun:
    """What became of a sample. `columns`: both sides of each table, if the transform's result does not fit.

    `empty`: optional columns without any value. `schema_ids`: of dead letters in Confluent's wire format. `values_only`:
    the topics whose keys are declared and whose sample has none; only their values were decoded.
    """

    records: int = 0
    dead: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    reasons: Mapping[str, ReasonCount] = field(default_factory=dict)
    schema_ids: Counter[int] = field(default_factory=Counter)
    empty: tuple[tuple[str, Column], ...] = ()
    times: tuple[EventTimes, ...] = ()
    values_only: tuple[str, ...] = ()
    problem: TallystickError | None = None
    problem_at: str = ""
    columns: tuple[ColumnPair, ...] = ()


def dry_run(
    pipeline: Pipeline,
    samples: Sequence[Sample],
    transform: Callable[[pa.Table], Any] | None,
    *,
    job_file: str = "",
    registries: Sequence[PlannedRegistry] = (),
) -> DryRun:
    """Decode the samples and transform them. `transform`: None to decode only, as for a DataFrame job.

    `registries`: the schemas of the topics whose formats read them from a registry.

    A transform that raises, or whose result does not fit, is the result's `problem`; it is not called again then.
    Raises InvalidPipeline if a topic's decoder is not installed or refuses its options.
    """
    trial = _Trial(pipeline, transform, job_file, registries)
    for sample in samples:
        trial.try_on(sample)
    return trial.result()


class _Trial:
    def __init__(
        self,
        pipeline: Pipeline,
        transform: Callable[[pa.Table], Any] | None,
        job_file: str,
        registries: Sequence[PlannedRegistry],
    ) -> None:
        self._registries = registries
        self._pipeline = pipeline
        self._function = transform
        self._job_file = job_file
        self._run = DryRun()
        self._returned: Any = None
        self._partials: dict[str, list[pa.Table]] = {}
        self._decoded: dict[str, list[pa.Table]] = {}
        self._checked: JobTransform | None = None
        if transform is not None:
            try:
                self._checked = JobTransform(self._kept, pipeline)
            except InvalidPipeline as error:
                self._run.problem = error

    def _kept(self, records: pa.Table) -> Any:
        assert self._function is not None
        self._returned = None
        self._returned = self._function(records)
        return self._returned

    def try_on(self, sample: Sample) -> None:
        """Decode one sample, and transform its records, unless the topic's keys are declared and the sample has none."""
        pipeline = self._pipeline
        if not sample.from_kafka and pipeline.topic_spec(sample.topic).key is not None:
            pipeline = _without_key(pipeline, sample.topic)
            self._run.values_only = (*self._run.values_only, sample.topic)

        def records(found: pa.Table) -> None:
            self._run.records += found.num_rows
            if sample.from_kafka:
                self._decoded.setdefault(sample.topic, []).append(found)
            else:
                self._decoded.setdefault(sample.topic, []).append(found.drop_columns("_timestamp"))
            if pipeline is not self._pipeline:
                return
            if self._checked is not None and self._run.problem is None:
                self._transform(sample, found)

        read_split(
            pipeline,
            sample.split,
            SampleReading(sample),
            registries=self._registries,
            records=records,
            dead=self._dead,
        )

    def _transform(self, sample: Sample, found: pa.Table) -> None:
        assert self._checked is not None
        try:
            outputs = self._checked(sample.split, found)
            for table in self._pipeline.tables:
                rows = outputs.get(table.name)
                if rows is None:
                    continue  # a table of another topic
                if table.aggregates:
                    kept = self._partials.setdefault(table.name, [])
                    kept[:] = [combined(table, [*kept, rows])]
                    self._run.rows[table.name] = kept[0].num_rows
                else:
                    self._run.rows[table.name] = self._run.rows.get(table.name, 0) + rows.num_rows
        except TallystickError as error:
            self._run.problem = error
            self._run.problem_at = _line_in(error.__cause__, self._job_file)
            self._run.columns = side_by_side(self._pipeline.tables, self._returned)

    def _dead(self, rows: pa.Table) -> None:
        run = self._run
        run.dead += rows.num_rows
        run.reasons = counted(rows, run.reasons)
        ids = map(confluent_schema_id, rows.column("value").to_pylist())
        run.schema_ids.update(one for one in ids if one is not None)

    def result(self) -> DryRun:
        """Return what was found, with the columns that have no value and the distance of the event times."""
        for topic, parts in self._decoded.items():
            decoded = pa.concat_tables(parts)
            for column in self._pipeline.columns_of(topic):
                if column.required or column.name not in decoded.column_names:
                    continue
                if decoded.column(column.name).null_count == len(decoded):
                    self._run.empty = (*self._run.empty, (topic, column))
            if "_timestamp" in decoded.column_names:
                self._run.times = (*self._run.times, *_event_times(self._pipeline, topic, decoded))
        return self._run


def _without_key(pipeline: Pipeline, topic: str) -> Pipeline:
    """Return the pipeline with `topic` as if only its values and headers were declared."""
    values = Topic(
        topic, decode=pipeline.decode_of(topic), headers=pipeline.topic_spec(topic).headers
    )
    others = [values if one.name == topic else one for one in pipeline.inputs]
    return replace(pipeline, topics=others)


def confluent_schema_id(value: bytes | None) -> int | None:
    """Return the schema id of a value in Confluent's wire format (byte 0, four bytes of id); None for any other value."""
    if value is None or len(value) < 6 or value[0] != 0:
        return None
    return int.from_bytes(value[1:5], "big")


def side_by_side(tables: Sequence[Table], returned: Any) -> tuple[ColumnPair, ...]:
    """Return the columns of each table as declared and as returned, of the tables that were returned as Arrow."""
    if isinstance(returned, pa.Table | pa.RecordBatch) and len(tables) == 1:
        returned = {tables[0].name: returned}
    if not isinstance(returned, Mapping):
        return ()
    pairs = []
    for table in tables:
        found = returned.get(table.name)
        if not isinstance(found, pa.Table | pa.RecordBatch):
            continue
        declared, given = written_schema(table), found.schema
        for name in dict.fromkeys([*declared.names, *given.names]):
            left = declared.field(name) if name in declared.names else None
            right = given.field(name) if given.names.count(name) == 1 else None
            if left is None and name.startswith("_"):
                continue  # the record's key and lineage may be returned and are left out
            pairs.append(
                ColumnPair(
                    table=table.name,
                    column=name,
                    declared=type_name(left.type) if left is not None else None,
                    returned=type_name(right.type) if right is not None else None,
                    fits=left is not None and right is not None and fits(right.type, left.type),
                )
            )
    return tuple(pairs)


def _line_in(error: BaseException | None, file: str) -> str:
    """Return the line of the job file that raised an error, as text; empty if none did."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    own = [frame for frame in frames if frame.filename == file]
    return f"line {own[-1].lineno}: `{own[-1].line}`" if own else ""


def _event_times(pipeline: Pipeline, topic: str, decoded: pa.Table) -> list[EventTimes]:
    """Compare the declared time column with the timestamps: the one of a partition rule, or the only timestamptz."""
    kinds = {c.name: c.type for c in pipeline.columns_of(topic) if c.name in decoded.column_names}
    times = [name for name, kind in kinds.items() if kind == "timestamptz"]
    rules = " ".join(rule for table in pipeline.tables for rule in table.partition_by)
    chosen = [name for name in times if f"({name})" in rules.replace(" ", "")] or times
    if len(chosen) != 1:
        return []
    both = decoded.select([chosen[0], "_timestamp"]).drop_null()
    if not len(both):
        return []
    values, stamps = (both.column(i).cast(pa.int64()) for i in range(2))
    apart = pc.greater(pc.abs(pc.subtract(values, stamps)), DAY_US)
    far = pc.sum(apart).as_py() or 0
    first = pc.index(apart, True).as_py()
    example = (str(both.column(0)[first]), str(both.column(1)[first])) if far else None
    return [EventTimes(column=chosen[0], compared=len(both), days_apart=far, example=example)]


def fields_of(values: Sequence[bytes | None]) -> Counter[str]:
    """Return the fields of the values that are JSON objects, each with the number of values that have it."""
    found: Counter[str] = Counter()
    for value in values:
        try:
            parsed = json.loads(value or b"")
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            found.update(parsed.keys())
    return found
