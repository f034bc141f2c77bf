"""Order independence: random orders of intervals with random replays must give the same rows as one pass over the log.

    .venv/bin/python tests/simulation/orders.py --orders 500 --seed 0

Each order has a small log of its own: disorder, late and early events, records that do not decode, aborted ones. Plan,
ledger, lookback, commit and the functions of `tallystick.stateful` are the real ones. Kafka and S3 are in memory, and
there is no Spark. A violation names its seed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simulation import state_reference as reference
from simulation.state_job import (
    BACK,
    PARTIALS,
    RESULTS,
    TOPIC,
    NoTables,
    declared,
    stage_state,
    stored,
)
from support.fakes import FakeLog
from support.small_lake import SmallLake, counting_runtime
from tallystick.engine.transform import written_schema
from tallystick.format.interval import Interval
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.operations.commit import commit
from tallystick.pipeline import Lookback, Pipeline
from tallystick.protocol.staleness import stale
from tallystick.store.memory import MemoryStore

T0 = datetime(2013, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
INTERVALS = 12
PARTITIONS = 2
MODES = ("kafka", "stale")


@dataclass(kw_only=True)
class Order:
    """One order: its log, its lake, and its steps, which a violation prints.

    The seed selects the content of the log, and also the order of the runs unless `choices` selects that.
    """

    seed: int
    mode: str
    choices: random.Random | None = None
    steps: list[str] = field(default_factory=list)
    jobs: int = 1
    replays: int = 0
    refreshed: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed} {self.mode}")
        self.log = FakeLog()
        self.written = _fill(self.log, self.chance)
        self.chance = self.choices or self.chance
        back = BACK if self.mode == "kafka" else None
        uncommitted: Any = self.mode
        lookback = Lookback(tables=list(PARTIALS), back=back, uncommitted=uncommitted)
        self.pipeline: Pipeline = declared("memory://state", lookback)
        self.small = SmallLake(
            store=MemoryStore("state"),
            log=self.log,
            runtime=counting_runtime(),
            declared=lambda _: self.pipeline,
        )
        self.tables = NoTables(self.small.runtime.uuid)
        if self.chance.random() < 0.5:
            self._plan_on_a_shorter_log()

    def _plan_on_a_shorter_log(self) -> None:
        """Set boundaries at the end of a shorter log: records after them may have older timestamps."""
        first = self.chance.randrange(INTERVALS)
        partitions = self.log.topics[TOPIC].partitions
        whole = [p.records for p in partitions]
        for p in partitions:
            p.records = p.records[: self.chance.randrange(len(p.records) + 1)]
        span = Interval(start=T0 + first * HOUR, end=T0 + (first + 1) * HOUR)
        self.small.plan(span, run="early", take_over=True)
        self.steps.append(f"[{first}, {first + 1}) planned while the log was shorter")
        for p, records in zip(partitions, whole, strict=True):
            p.records = records

    def run(self, first: int, last: int, **more: Any) -> int:
        """Run [first, last): plan, stage all, commit all. Return the number of committed intervals."""
        self.steps.append(f"[{first}, {last}) {more or ''} job {self.jobs}")
        span = Interval(start=T0 + first * HOUR, end=T0 + last * HOUR)
        name = f"run {len(self.steps)}"
        planned = self.small.plan(span, run=name, take_over=True, **more)
        staged: list[tuple[Plan, Report]] = []
        for interval in planned.intervals:
            if not interval.committed:
                staged.append(stage_state(self.small.lake, self.log, interval.plan, staged))
        for plan, report in staged:
            commit(self.small.lake, self.tables, plan_key=plan.key, report_key=report.key)
        return len(staged)

    def play(self) -> None:
        """Run the intervals in a random order, alone or several at once, with replays and new code between."""
        todo = list(range(INTERVALS))
        self.chance.shuffle(todo)
        while todo:
            first = todo.pop()
            last = first + 1
            while last in todo and self.chance.random() < 0.3:
                todo.remove(last)
                last += 1
            self._perhaps_plan_early(todo)
            self.run(first, last)
            if self.chance.random() < 0.3:
                self._replay()

    def _perhaps_plan_early(self, todo: Sequence[int]) -> None:
        """Sometimes plan another interval long before it runs: its boundaries are set, its rows are not committed."""
        if todo and self.chance.random() < 0.2:
            first = self.chance.choice(todo)
            span = Interval(start=T0 + first * HOUR, end=T0 + (first + 1) * HOUR)
            self.small.plan(span, run="early")
            self.steps.append(f"[{first}, {first + 1}) planned early")

    def _replay(self) -> None:
        starts = [e.interval.start for e in self.entries if e.committed]
        at = self.chance.choice(starts)
        entry = next(e for e in self.entries if e.interval.start == at)
        hours = [(t - T0) // HOUR for t in (entry.interval.start, entry.interval.end)]
        if self.chance.random() < 0.4:
            self.jobs += 1
            self.small.job = f"version {self.jobs}".encode()
        self.replays += 1
        self.run(*hours, mode="replace")

    @property
    def entries(self) -> Any:
        """The ledger's entries."""
        return self.small.lake.read(lambda snapshot: snapshot.whole_ledger().entries)

    def settle(self) -> None:
        """Refresh once. Nothing may remain stale."""
        if stale(self.entries):
            self.refreshed = self.run(0, INTERVALS, mode="refresh")
        assert not stale(self.entries), f"seed {self.seed}: stale after a refresh: {self.steps}"

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """Return all committed rows of a table, as tuples with milliseconds."""
        declared_table = self.pipeline.table(table)
        assert declared_table is not None
        schema = written_schema(declared_table)
        committed: Counter[tuple[Any, ...]] = Counter()
        for entry in self.entries:
            (done, *_) = self.small.lake.earlier_commits(entry)
            report = self.small.lake.report(done.report) if done.report else None
            assert report is not None
            for file in report.files:
                if file.table == table:
                    rows = stored(self.small.store, file, schema).to_pylist()
                    committed.update(tuple(map(_plain, row.values())) for row in rows)
        return committed


def _plain(value: Any) -> Any:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


@dataclass(frozen=True, kw_only=True)
class Written:
    """One data record of the log: its offset, its own timestamp, its kind and its value."""

    partition: int
    offset: int
    stamp_ms: int
    kind: str
    value: dict[str, Any]


def _fill(log: FakeLog, chance: random.Random) -> list[Written]:
    """Fill the log, and return its data records in the order of each partition."""
    log.create(TOPIC, partitions=PARTITIONS)
    written = []
    for partition in range(PARTITIONS):
        begin = at = round(T0.timestamp() * 1000)
        end = begin + INTERVALS * reference.HOUR
        while True:
            at += round(chance.expovariate(1 / (chance.choice([3, 20, 50]) * reference.MINUTE)))
            if at >= end:
                break
            # No timestamp before the first interval: that record would belong to no interval.
            stamp = max(begin, at - chance.choice([0, 0, 0, 7, 45, 80]) * reference.MINUTE)
            moment = datetime.fromtimestamp(stamp / 1000, UTC)
            kind: Any = chance.choice(["data"] * 12 + ["dead", "aborted", "control"])
            early = [0, 0, -1, -10, -19, -30, -100, 5, 25]
            event = stamp + chance.choice(early) * reference.MINUTE
            missing = chance.random() < 0.03
            value = {
                "key": chance.choice("abc"),
                "amount": chance.randrange(-5, 100),
                "event": None if missing else datetime.fromtimestamp(event / 1000, UTC),
            }
            offset = log.append(TOPIC, partition, moment, kind, **value)
            if kind != "control":
                written.append(
                    Written(
                        partition=partition,
                        offset=offset,
                        stamp_ms=stamp,
                        kind=kind,
                        value=value,
                    )
                )
    return written


def events_of(played: Order) -> list[reference.Event]:
    """Return the log's records with the log time that they have by definition: of all data records and of boundaries."""
    boundaries = played.small.lake.read(lambda snapshot: snapshot.whole_ledger().boundaries)
    events = []
    for partition in range(PARTITIONS):
        clock = 0
        for record in (w for w in played.written if w.partition == partition):
            passed = [
                _plain(b.at)
                for b in boundaries
                if b.positions[TOPIC][partition].offset <= record.offset
            ]
            clock = max(clock, record.stamp_ms, *passed)
            # Records after the last boundary belong to no interval that was run.
            if record.kind == "data" and clock < _plain(T0 + INTERVALS * HOUR):
                events.append(
                    reference.Event(
                        partition=partition,
                        offset=record.offset,
                        log_ms=clock,
                        key=record.value["key"],
                        amount=record.value["amount"],
                        event_ms=_plain(record.value["event"]),
                    )
                )
    return events


def expected(played: Order) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return the expected rows of each result, from one pass."""
    events = events_of(played)
    ends = [_plain(e.interval.end) for e in played.entries]
    first = round(T0.timestamp() * 1000)
    last = first + INTERVALS * reference.HOUR
    rules = reference.Rules()
    closed, late = reference.windows(events, rules, first, last)
    return {
        "kept": Counter(reference.kept(events, rules)),
        "windows": Counter((s, s + rules.size, key, n, total) for s, key, n, total in closed),
        "corrections": Counter(late),
        "sessions": Counter(reference.sessions(events, rules, first, last)),
        "running": Counter(reference.running(events, ends)),
    }


def difference(played: Order) -> str | None:
    """Return the first table whose rows differ from the reference, and the difference. None if all agree."""
    wanted = expected(played)
    for table in ("kept", *RESULTS):
        rows = played.rows(table)
        if table == "kept":
            rows = Counter({(r[4], r[5]): n for r, n in rows.items()})
        if table == "corrections":
            # One row per interval, window and key: compared as counts and sums.
            rows, wanted[table] = _summed(rows), _single(wanted[table])
        if played.mode == "kafka" and table == "running":
            continue  # this lookback is limited to hours, and a running value needs all of the past
        if rows != wanted[table]:
            return (
                f"{table}: extra {dict(rows - wanted[table])}, missing {dict(wanted[table] - rows)}"
            )
    return None


def _summed(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    sums: Counter[tuple[Any, ...]] = Counter()
    for (start, key, n, total), times in rows.items():
        sums[start, key, "n"] += n * times
        sums[start, key, "total"] += total * times
    return Counter({k: v for k, v in sums.items() if v})


def _single(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    sums: Counter[tuple[Any, ...]] = Counter()
    for (start, key, amount), times in rows.items():
        sums[start, key, "n"] += times
        sums[start, key, "total"] += amount * times
    return Counter({k: v for k, v in sums.items() if v})


def play(seed: int, mode: str, choices: random.Random | None = None) -> Order:
    """Play one order to its end and compare. Raises AssertionError with seed, mode and steps."""
    played = Order(seed=seed, mode=mode, choices=choices)
    played.play()
    if mode == "kafka" and played.jobs == 1:
        intervals = stale(played.entries)
        assert not intervals, (
            f"seed {seed}: stale although everything was read: {intervals}; {played.steps}"
        )
    played.settle()
    wrong = difference(played)
    assert wrong is None, f"seed {seed}, uncommitted={mode}: {wrong}; {played.steps}"
    return played


def main() -> None:
    """Play the requested number of orders in both modes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for mode in MODES:
        orders = [play(seed, mode) for seed in range(options.seed, options.seed + options.orders)]
        print(
            f"uncommitted={mode}: {len(orders)} orders of {INTERVALS} intervals, "
            f"{sum(len(s.written) for s in orders)} data records, {sum(s.replays for s in orders)} replays, "
            f"{sum(s.refreshed for s in orders)} intervals refreshed: 0 differences from the reference"
        )


if __name__ == "__main__":
    main()
