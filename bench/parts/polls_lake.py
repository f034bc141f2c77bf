"""A lake with two tables whose rows name their interval, its writer, and its history as the commit records have it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from bench.parts.polls_history import TABLES, History, HistoryVersion, Pair, SeenVersion
from bench.parts.polls_workers import Progress
from support.fakes import FakeLog
from support.small_lake import DAY, SmallLake
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.record import Record
from tallystick.lake import Lake
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.runtime import Runtime, system_runtime
from tallystick.store.open import open_store

TOPIC = "pairs"
HOUR = timedelta(hours=1)
ROWS_MAX = 8
REPLACES_EVERY = 5


def pipeline(warehouse: str) -> Pipeline:
    """Declare a table with a row per record, and one with a row per interval: the number of its records."""
    return Pipeline(
        name="pairs",
        topics=[TOPIC],
        warehouse=warehouse,
        job="spark_jobs/pairs.py",
        tables=[
            Table(TABLES[0], columns=[Column("number", "long"), Column("n", "long")]),
            Table(
                TABLES[1],
                columns=[Column("number", "long"), Column("amount", "long")],
                keys=["number"],
                combine={"amount": "sum"},
            ),
        ],
    )


def hour(number: int) -> Interval:
    """Return the interval with a number."""
    return Interval(start=DAY + number * HOUR, end=DAY + (number + 1) * HOUR)


def kept_rows(number: int, generation: int) -> int:
    """Return how many rows a generation of an interval has; the next generation has another number."""
    return 1 + (number + 3 * generation) % ROWS_MAX


def steps(count: int) -> tuple[int, ...]:
    """Return the number of the interval that each commit writes. Every fifth commit replaces an earlier interval."""
    found: list[int] = []
    new = 0
    for place in range(count):
        if place % REPLACES_EVERY == REPLACES_EVERY - 1:
            found.append(37 * place % new)
        else:
            found.append(new)
            new += 1
    return tuple(found)


def log_of(intervals: int) -> FakeLog:
    """Return a log with ROWS_MAX records in each interval."""
    log = FakeLog()
    log.create(TOPIC)
    for number in range(intervals):
        for n in range(ROWS_MAX):
            at = hour(number).start + timedelta(seconds=n)
            log.append(TOPIC, 0, at, number=number, n=n, amount=1)
    return log


def aged(by: timedelta) -> Runtime:
    """Return the services of this machine with a clock that is behind."""
    runtime = system_runtime()
    return replace(runtime, now=lambda: runtime.now() - by)


@dataclass
class PairsWriter:
    """Commits the intervals of `steps` from the place `done` on."""

    uri: str
    steps: Sequence[int]
    done: int = 0
    runtime: Runtime = field(default_factory=system_runtime)

    def __post_init__(self) -> None:
        self._generations = Counter(self.steps[: self.done])
        self.small = SmallLake(
            store=open_store(self.uri),
            log=log_of(max(self.steps) + 1),
            runtime=self.runtime,
            dag="pairs",
            declared=pipeline,
        )

    def commit_next(self) -> SeenVersion:
        """Commit the next interval, and return the version that the root had right after it.

        Safe to repeat: the ledger names the committed plan, so that a repeat would plan nothing (C10).
        """
        number = self.steps[self.done]
        self._generations[number] += 1
        generation = self._generations[number]
        if generation > 1:
            # An interval is replaced upon a clear only if the job has changed.
            self.small.job = f"version {self.done}".encode()
        kept = kept_rows(number, generation)
        (result,) = self.small.run(
            hour(number), clear=generation - 1, keep=lambda record: record.value["n"] < kept
        )
        if result.generation != generation:
            raise SystemExit(
                f"interval {number}: expected generation {generation}, found {result.generation}"
            )
        self.done += 1
        return seen_version(self.small.lake)


def seen_version(lake: Lake) -> SeenVersion:
    """Return the newest commit, as the root itself shows it."""
    root = lake.load_existing().root
    assert root.record is not None
    tables = {name: table.metadata for name, table in root.tables.items()}
    return SeenVersion(
        version=keys.record_version(root.record), at_s=time.time(), pair=_pair(tables)
    )


def write(progress: Progress, writer: PairsWriter, polls: int) -> list[SeenVersion]:
    """Commit all that is left, spread evenly over a number of polls; the function of a process.

    Safe to repeat: as `PairsWriter.commit_next`.
    """
    found: list[SeenVersion] = []
    commits = len(writer.steps) - writer.done
    for place in range(commits):
        if not progress.wait_for_polls(place * polls // commits):
            break
        found.append(writer.commit_next())
        progress.add_commit()
    return found


def read_history(lake: Lake, seen: Sequence[SeenVersion]) -> History:
    """Return the history of the lake from the chain of its commit records."""
    chain: list[Record] = []
    key = lake.load_existing().root.record
    while key is not None:
        record = lake.record(key)
        if record is None:
            raise SystemExit(f"FAIL: {key} is gone")
        chain.append(record)
        key = record.parent
    counts: dict[int, int] = {}
    versions: list[HistoryVersion] = []
    for record in reversed(chain):
        for commit in record.intervals:
            number = (commit.interval.start - DAY) // HOUR
            counts = {**counts, number: kept_rows(number, commit.generation)}
        tables = {name: table.metadata for name, table in record.tables.items()}
        versions.append(
            HistoryVersion(
                version=record.version,
                committed_at=record.committed_at,
                pair=_pair(tables),
                counts=counts,
                compactions=len(record.compactions),
            )
        )
    return History(versions, seen)


def _pair(tables: dict[str, str | None]) -> Pair:
    first, second = (tables[name] for name in TABLES)
    assert first is not None
    assert second is not None
    return first, second
