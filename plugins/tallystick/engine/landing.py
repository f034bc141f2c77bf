"""Lands the decoded records of a DataFrame job: one stage writes them to the attempt's scratch, the job reads them there.

Spark may evaluate a DataFrame many times: once per output, again if an executor is lost, again when the job counts or
samples. Kafka must be read only once: dead letters and the account of every offset come from one reading, and a compacted
topic may have fewer records at the second one. So one stage reads the input splits, exactly as an Arrow job does, and
writes the decoded records as Parquet under `scratch/`. These files never change. `Landed` lists only the files of
successful tasks, with their ETags, so every later read returns the same rows.

Nothing else names the scratch: a committed interval does not need it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tallystick.engine.clock import LOG_TIME, LOG_TIME_TYPE, LogSpan, SplitClock
from tallystick.engine.input_splits import InputSplit
from tallystick.engine.parquet import TableWriter, parquet_writer
from tallystick.engine.reasons import ReasonCount, counted
from tallystick.engine.records import KEY
from tallystick.engine.task import Attempt, Reading, TaskResult, read_split
from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.codec import StoredObject, StoredValue
from tallystick.pipeline import DEAD_LETTERS, LINEAGE, Pipeline
from tallystick.store import Store
from tallystick.tables.schema import arrow_schema

# A reader holds a whole file in memory.
FILE_BYTES = 64 << 20
BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile(StoredValue):
    """One Parquet file of decoded records of one topic.

    `reached_ms`: the log's clock at the end of the earlier splits of its partition, if the job has a lookback.
    """

    topic: str
    key: str
    etag: str
    rows: int
    reached_ms: int | None = None

    def __post_init__(self) -> None:
        keys.check_topic(self.topic)
        keys.check_scratch(self.key)
        if self.rows <= 0 or not self.etag:
            raise ValueError(f"{self.key}: expected a file with rows and an ETag")


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedSplit(StoredValue):
    """The result of one landing task: its account and dead letters, which go into the report, and its scratch files.

    `reached_ms`: the log's clock at the end of its split, if the job has a lookback.
    """

    result: TaskResult
    files: tuple[LandedFile, ...]
    reached_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed(StoredObject):
    """All decoded records of one attempt at one plan: the files that count, and the declaration of their columns."""

    FORMAT: ClassVar[str] = "tallystick.landed/1"

    key: str
    plan: keys.PlanKey
    plan_sha256: str
    attempt: str
    spec: Mapping[str, Any]
    files: tuple[LandedFile, ...]

    def __post_init__(self) -> None:
        keys.check_scratch(self.key)
        if len({f.key for f in self.files}) != len(self.files):
            raise ValueError("expected each file once, found a file twice")

    def of_topic(self, topic: str) -> tuple[LandedFile, ...]:
        """Return the files of one topic, in the order of their splits."""
        return tuple(f for f in self.files if f.topic == topic)


def landed_of(work: Attempt, splits: Sequence[LandedSplit]) -> Landed:
    """Build the list of the files that an attempt's successful tasks landed; do not write it."""
    ordered = sorted(splits, key=lambda p: p.result.split.index)
    return Landed(
        key=keys.scratch_list(work.plan.key, work.attempt, work.runtime.uuid()),
        plan=work.plan.key,
        plan_sha256=work.plan.sha256,
        attempt=work.attempt,
        spec=dict(work.plan.spec),
        files=tuple(_clocked(ordered)),
    )


def _clocked(splits: Sequence[LandedSplit]) -> Iterator[LandedFile]:
    """Yield the files of all splits, each with the clock at the end of the earlier splits of its partition."""
    reached: dict[tuple[str, int], int] = {}
    for split in splits:
        place = (split.result.split.topic, split.result.split.partition)
        for file in split.files:
            if split.reached_ms is None:
                yield file
            else:
                yield replace(file, reached_ms=reached.get(place, 0))
        if split.reached_ms is not None:
            reached[place] = max(reached.get(place, 0), split.reached_ms)


def read_landed(store: Store, key: str, *, sha256: str) -> Landed:
    """Read the list of an attempt's landed files; raises Corrupt if it is missing or has another digest."""
    where = f"{store.uri}/{key}"
    stored = store.get(key)
    if stored is None or hashlib.sha256(stored.body).hexdigest() != sha256:
        found = "no object" if stored is None else "another digest"
        raise _damaged(f"{where}: expected digest {sha256}, found {found}")
    return Landed.decode(stored.body, where=where)


def records_schema(pipeline: Pipeline, topic: str) -> pa.Schema:
    """Return the columns of a topic's decoded records: the declared ones, their lineage, and the record's key.

    If the pipeline has a lookback, the last column is the log time.
    """
    columns = (*pipeline.columns_of(topic), *LINEAGE)
    clock = [pa.field(LOG_TIME, LOG_TIME_TYPE)] if pipeline.lookback is not None else []
    return pa.schema([*arrow_schema(columns), pa.field(KEY, pa.binary()), *clock])


def land_split(
    work: Attempt,
    split: InputSplit,
    reading: Reading,
    *,
    log_span: LogSpan | None = None,
    for_lookback: bool = False,
    scratch: Path | None = None,
) -> LandedSplit:
    """Read one input split once: write its records to the attempt's scratch, its dead letters under the table's prefix.

    If the split belongs to a log span, for a job with a lookback, the records get the column `_log_time`, which
    `read_records` completes. `for_lookback`: the split is read by the lookback. Its dead letters are dropped, because the
    commit of their own interval has them.

    Safe to repeat, also at the same time: every upload has its own key, and files count only if the driver takes the
    result that lists them (C4). Local files are always removed.
    """
    with TemporaryDirectory(prefix="tallystick-", dir=scratch) as folder, ExitStack() as stack:
        dead = stack.enter_context(
            TableWriter(
                work.planned(DEAD_LETTERS),
                partition_by=(),
                upload=work.upload(split.task),
                folder=Path(folder),
                limits=work.limits,
            )
        )
        schema = records_schema(work.pipeline, split.source)
        records = stack.enter_context(_Scratch(work, split, schema, Path(folder)))
        clock = _clock(split, log_span, reading) if log_span is not None else None
        reasons: dict[str, ReasonCount] = {}

        def write_dead(rows: pa.Table) -> None:
            reasons.update(counted(rows, reasons))
            dead.write(rows, source=split.place)

        account = read_split(
            work.pipeline,
            split,
            reading,
            registries=work.plan.registries,
            records=records.write,
            dead=_dropped if for_lookback else write_dead,
            clock=clock,
        )
        files = records.close()
        result = TaskResult(split=split, account=account, files=dead.close(), reasons=reasons)
        reached = clock.end_ms() if clock is not None else None
        return LandedSplit(result=result, files=files, reached_ms=reached)


def _clock(split: InputSplit, log_span: LogSpan, reading: Reading) -> SplitClock:
    cuts = log_span.cuts(split.source, split.partition)
    return SplitClock(log_span.interval, cuts, reading.aborted_times)


def _dropped(rows: pa.Table) -> None:
    """Drop the rows."""


@dataclass(slots=True)
class _Scratch:
    """A stream of one split's records into files of the attempt's scratch."""

    work: Attempt
    split: InputSplit
    schema: pa.Schema
    folder: Path
    files: list[LandedFile] = field(default_factory=list)
    rows: int = 0
    sink: pa.NativeFile | None = None
    writer: pq.ParquetWriter | None = None

    def __enter__(self) -> _Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        if self.sink is not None:
            self.sink.close()

    def write(self, records: pa.Table) -> None:
        """Write a batch of records."""
        rows = pa.Table.from_arrays(
            [records.column(f.name) for f in self.schema], schema=self.schema
        )
        if self.writer is None or self.sink is None:
            self.sink = pa.OSFile(str(self._path), "wb")
            self.writer = parquet_writer(self.sink, rows)
        self.writer.write_table(rows)
        self.rows += rows.num_rows
        if self.sink.tell() >= FILE_BYTES:
            self._send()

    def close(self) -> tuple[LandedFile, ...]:
        """Upload the remaining records and return all files. Safe to repeat: uploads go under fresh keys."""
        if self.rows:
            self._send()
        return tuple(self.files)

    @property
    def _path(self) -> Path:
        return self.folder / "records.parquet"

    def _send(self) -> None:
        assert self.writer is not None
        assert self.sink is not None
        self.writer.close()
        self.sink.close()
        key, etag = self.work.prefix(self.split.task).upload_scratch(self._path)
        self.files.append(LandedFile(topic=self.split.source, key=key, etag=etag, rows=self.rows))
        self._path.unlink()
        self.writer, self.sink, self.rows = None, None, 0


def read_records(store: Store, file: LandedFile, pipeline: Pipeline) -> Iterator[pa.RecordBatch]:
    """Yield one landed file's records as decoded; raises Corrupt if it is missing or is not the file that was landed."""
    where = f"{store.uri}/{file.key}"
    stored = store.get(file.key)
    if stored is None or stored.etag != file.etag:
        found = "no object" if stored is None else f"ETag {stored.etag}"
        raise _damaged(f"{where}: expected ETag {file.etag}, found {found}")
    schema = records_schema(pipeline, file.topic)
    rows = 0
    for batch in pq.ParquetFile(pa.BufferReader(stored.body)).iter_batches(BATCH_ROWS):
        rows += batch.num_rows
        yield pa.RecordBatch.from_arrays(_since_reached(batch, file), schema=schema)
    if rows != file.rows:
        raise _damaged(f"{where}: expected {file.rows} landed records, found {rows}")


def _since_reached(batch: pa.RecordBatch, file: LandedFile) -> list[pa.Array]:
    """Return a batch's columns, with no log time before the clock at the end of the earlier splits."""
    if file.reached_ms is None:
        return list(batch.columns)
    at = batch.schema.get_field_index(LOG_TIME)
    columns = list(batch.columns)
    moments = pc.max_element_wise(columns[at].cast(pa.int64()), file.reached_ms * 1_000)
    columns[at] = moments.cast(LOG_TIME_TYPE)
    return columns


def _damaged(message: str) -> Corrupt:
    return Corrupt(
        f"{message}.",
        hint="clear task `stage`, which lands the records again. Another process (a lifecycle rule?) wrote or "
        "deleted in scratch/.",
    )
