"""Runs one task: read input splits, decode them, apply the job's transform, write files, account for every offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, Self

import pyarrow as pa

from tallystick.engine.clock import LOG_TIME, SplitClock
from tallystick.engine.combine import PartialRows
from tallystick.engine.dead_letters import dead_letters_of
from tallystick.engine.decode.record import record_decoder
from tallystick.engine.input_splits import InputSplit
from tallystick.engine.parquet import TableWriter, WriteLimits
from tallystick.engine.reasons import ReasonCount, counted
from tallystick.engine.records import coalesce, named_by_ledger, records_of, without_invalid_times
from tallystick.engine.room import ReportRoom
from tallystick.engine.transform import JobTransform
from tallystick.engine.upload import AttemptPrefix, Upload
from tallystick.errors import ReportRejected
from tallystick.format.codec import NOT_STORED, StoredValue
from tallystick.format.plan import Plan, PlannedTable
from tallystick.format.registries import PlannedRegistry
from tallystick.format.report import FileReport, RangeAccount
from tallystick.pipeline import DEAD_LETTERS, Pipeline
from tallystick.runtime import Runtime
from tallystick.store import Store


class Account(Protocol):
    """A reader's account: how many of the offsets that it read are of each class."""

    @property
    def records(self) -> int: ...
    @property
    def aborted(self) -> int: ...
    @property
    def control(self) -> int: ...
    @property
    def absent(self) -> int: ...


class Reading(Protocol):
    """One input split that is being read: batches of offset, timestamp, key, value and headers; then the account."""

    def batches(self) -> Iterator[pa.RecordBatch]: ...
    @property
    def account(self) -> Account: ...
    @property
    def aborted_times(self) -> Sequence[tuple[int, int]]:
        """The offset and the latest timestamp (ms) of each batch of aborted records that was passed so far."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at one plan, with everything that its writers need."""

    plan: Plan
    pipeline: Pipeline
    attempt: str
    store: Store
    runtime: Runtime
    limits: WriteLimits = field(default_factory=WriteLimits)

    def planned(self, table: str) -> PlannedTable:
        """Return the table as the plan has it; raises ReportRejected if the plan does not have it."""
        found = self.plan.table(table)
        if found is None:
            raise ReportRejected(
                f"plan {self.plan.key}: expected table {table!r} of pipeline {self.pipeline.name!r}, found no such "
                "table.",
                hint="clear task `plan` to replan the interval with the current declaration.",
            )
        return found

    def prefix(self, task: str) -> AttemptPrefix:
        """Return the prefix of one task's files."""
        return AttemptPrefix(
            store=self.store,
            runtime=self.runtime,
            plan=self.plan.key,
            attempt=self.attempt,
            task=task,
        )

    def upload(self, task: str) -> Upload:
        """Return the function that uploads one task's files."""
        return self.prefix(task).upload

    def room(self, task: str) -> ReportRoom:
        """Return the limit for one task's share of the report; all writers of the task must use the same one."""
        return ReportRoom(plan=self.plan, attempt=self.attempt, task=task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Attempt):
    """One attempt of an Arrow job, with everything that its tasks share."""

    transform: JobTransform


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(StoredValue):
    """The result of one task for one of its input splits.

    The result of its first split has what it staged of all of them: the `files`, the `partials` (Arrow IPC per
    aggregating table, by name; not part of the stored form), and the `reasons` of the dead letters, by kind. The others
    have the same tables with empty bytes as partials.
    """

    split: InputSplit
    account: RangeAccount
    files: tuple[FileReport, ...]
    partials: Mapping[str, bytes] = field(default_factory=dict, metadata=NOT_STORED)
    reasons: Mapping[str, ReasonCount] = field(default_factory=dict)


def run_split(
    work: Work, split: InputSplit, reading: Reading, *, scratch: Path | None = None
) -> TaskResult:
    """Stage one input split under the attempt's prefix and return what was staged. Safe to repeat, see `run_splits`."""
    (result,) = run_splits(work, (split,), lambda _: reading, scratch=scratch)
    return result


def run_splits(
    work: Work,
    splits: Sequence[InputSplit],
    reading_of: Callable[[InputSplit], Reading],
    *,
    scratch: Path | None = None,
) -> list[TaskResult]:
    """Stage the input splits of one task under the attempt's prefix and return a result per split.

    Safe to repeat, also at the same time: every upload has its own key, and files become part of the report only if the
    driver takes the result that lists them (C4). Local files are always removed. `scratch`: the folder in which they
    grow (default: the system's temporary folder).
    """
    with TaskRun(work, splits, scratch=scratch) as run:
        run.read(reading_of)
        return run.finish()


class TaskRun:
    """The input splits of one task in two steps, which may run in different threads, one after the other.

    Rows of all splits go into the same files: many small partitions do not become as many small files. `read` reads,
    decodes and transforms, and writes what fills a row group. `finish` writes the rest and uploads. At the end of
    `finish` and of the context, the local files are removed.
    """

    def __init__(
        self, work: Work, splits: Sequence[InputSplit], *, scratch: Path | None = None
    ) -> None:
        self._work = work
        self._splits = tuple(splits)
        self._accounts: list[RangeAccount] = []
        self._stack = ExitStack()
        folder = TemporaryDirectory(prefix="tallystick-", dir=scratch)
        local = Path(self._stack.enter_context(folder))
        self._writers = _Outputs(work, self._splits[0].task, local, self._stack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, reading_of: Callable[[InputSplit], Reading]) -> None:
        """Read the splits to their ends. Safe to repeat with a new run, see `run_splits`. Raises the readers' errors."""
        for split in self._splits:
            self._accounts.append(self._read(split, reading_of(split)))

    def _read(self, split: InputSplit, reading: Reading) -> RangeAccount:
        def transformed(records: pa.Table) -> None:
            for name, rows in self._work.transform(split, records).items():
                named = named_by_ledger(rows, {split.source: split.topic})
                self._writers.write(name, named, split)

        return read_split(
            self._work.pipeline,
            split,
            reading,
            registries=self._work.plan.registries,
            records=transformed,
            dead=lambda rows: self._writers.write_dead(rows, split),
        )

    def finish(self) -> list[TaskResult]:
        """Write and upload the remaining rows and return the results; call it once, after `read`.

        Safe to repeat with a new run, see `run_splits`. Raises StoreUnavailable, InvalidPipeline.
        """
        assert len(self._accounts) == len(self._splits), "read() comes first"
        with self._stack:
            files, partials = self._writers.close(), self._writers.partials()
            nothing = dict.fromkeys(partials, b"")
            results = [
                TaskResult(split=split, account=account, files=(), partials=nothing)
                for split, account in zip(self._splits, self._accounts, strict=True)
            ]
            results[0] = replace(
                results[0], files=files, partials=partials, reasons=self._writers.reasons
            )
        del self._writers  # a caller may keep the run for its context: it holds no rows any more
        return results


def read_split(
    pipeline: Pipeline,
    split: InputSplit,
    reading: Reading,
    *,
    registries: Sequence[PlannedRegistry],
    records: Callable[[pa.Table], None],
    dead: Callable[[pa.Table], None],
    clock: SplitClock | None = None,
) -> RangeAccount:
    """Read and decode one input split, pass on its records and dead letters batch by batch, and return its account.

    `registries`: the schemas of the plan. If `clock` is given, the records get the column `_log_time`, computed from this
    split alone.
    Raises ReportRejected if the reader's account and the rows that were passed on do not agree.
    """
    decoder = record_decoder(pipeline.topic_spec(split.source), registries)
    good = bad = 0
    for batch in coalesce(reading.batches()):
        decoded = without_invalid_times(batch, decoder.decode(batch))
        if len(decoded.dead):
            dead(dead_letters_of(split, batch, decoded))
        log_times = clock.column(batch, decoded.kept) if clock is not None else None
        if len(decoded.kept):
            found = records_of(split, batch, decoded)
            records(found if log_times is None else found.append_column(LOG_TIME, log_times))
        good, bad = good + len(decoded.kept), bad + len(decoded.dead)
    return _account(split, reading.account, good, bad)


class _Outputs:
    """The writers of one task; each is opened when its first row comes."""

    def __init__(self, work: Work, task: str, folder: Path, stack: ExitStack) -> None:
        self._work = work
        self._task = task
        self._folder = folder
        self._stack = stack
        self._room = work.room(task)
        self._writers: dict[str, TableWriter] = {}
        self.reasons: dict[str, ReasonCount] = {}
        self._partials = {t.name: PartialRows(t) for t in work.pipeline.tables if t.aggregates}

    def write(self, name: str, rows: pa.Table, split: InputSplit) -> None:
        if not rows.num_rows:
            return
        if name in self._partials:
            self._partials[name].add(rows)
            return
        if name not in self._writers:
            self._writers[name] = self._stack.enter_context(
                TableWriter(
                    self._work.planned(name),
                    partition_by=self._work.pipeline.partition_by(name),
                    upload=self._work.upload(self._task),
                    folder=self._folder,
                    limits=self._work.limits,
                    room=self._room,
                )
            )
        self._writers[name].write(rows, source=split.place)

    def write_dead(self, rows: pa.Table, split: InputSplit) -> None:
        self.reasons = counted(rows, self.reasons)
        self.write(DEAD_LETTERS, rows, split)

    def close(self) -> tuple[FileReport, ...]:
        return tuple(file for writer in self._writers.values() for file in writer.close())

    def partials(self) -> dict[str, bytes]:
        return {name: partial.to_ipc() for name, partial in self._partials.items()}


def _account(split: InputSplit, read: Account, records: int, dead: int) -> RangeAccount:
    try:
        if read.records != records + dead:
            message = f"the reader returned {read.records} records, {records} became rows and {dead} dead letters"
            raise ValueError(message)
        return RangeAccount(
            topic=split.topic,
            partition=split.partition,
            start=split.span.start,
            end=split.span.end,
            records=records,
            dead_letters=dead,
            aborted=read.aborted,
            control=read.control,
            absent=read.absent,
        )
    except ValueError as error:
        raise ReportRejected(
            f"{split}: {error}.",
            hint="run the task again; if it repeats, report a defect. Nothing was committed.",
        ) from error
