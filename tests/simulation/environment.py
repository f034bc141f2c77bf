"""The simulated environment of the explorer: a faulty store, a growing log, and tables without Parquet.

Every call of the store, the log or the clock is a step: the actor returns control to the explorer, which selects the next
actor. The code that runs in the actors is tallystick's own: plan, stage's checks, commit, lake, protocol.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zlib import crc32

import greenlet
import numpy as np

from tallystick.errors import Corrupt, IdentityChanged, NotYet
from tallystick.format import keys
from tallystick.format.compaction import RowOrder, SharedFile
from tallystick.format.interval import Interval
from tallystick.format.offsets import Position
from tallystick.format.report import FileReport
from tallystick.format.root import RootTable
from tallystick.operations.compact.choosing import ChosenCompaction, TableFile
from tallystick.operations.compact.groups import SmallFile
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.protocol.compacting import Positions
from tallystick.runtime import Runtime
from tallystick.store import Applied, ETag, Listed, NotApplied, Outcome, Stored, Unknown
from tallystick.tables.row_order import order_bytes, read_places
from tallystick.tables.state import TableState

EPOCH = datetime(2013, 1, 1, tzinfo=UTC)
TOPIC = "events"


def at(hour: int) -> datetime:
    """Return hour `hour` of the simulated time."""
    return EPOCH + timedelta(hours=hour)


def span(first: int, last: int) -> Interval:
    """Return the interval between two simulated hours."""
    return Interval(start=at(first), end=at(last))


PIPELINE = Pipeline(
    name="explored",
    topics=[TOPIC],
    warehouse="memory://explored",
    job="spark_jobs/explored.py",
    tables=[Table("a", columns=[Column("n", "long")]), Table("b", columns=[Column("n", "long")])],
)


class ViolationError(Exception):
    """The promise was broken. The text names the invariant and the difference."""


@dataclass
class Simulation:
    """The state that the actors of one schedule share. `faults` can be switched off, `budget` limits their number."""

    rng: random.Random
    budget: int
    faults: bool = True
    objects: dict[str, Stored] = field(default_factory=dict)
    in_flight: list[tuple[ETag, str, bytes]] = field(default_factory=list)
    landed: list[bytes] = field(default_factory=list)
    deleted: dict[str, bytes] = field(default_factory=dict)
    deletions: int = 0
    clock_s: float = 0.0
    hour: int = 0
    code: int = 1
    ids: int = 0
    trace: list[str] = field(default_factory=list)
    honours_conditions: bool = True
    page_bytes_max: int = 256 * 1024

    def step(self) -> None:
        """Return control to the explorer."""
        hub = greenlet.getcurrent().parent
        if hub is not None:
            hub.switch()

    def fault(self, probability: float) -> bool:
        """Spend a fault of the budget with some probability. Return whether there is a fault."""
        if self.faults and self.budget > 0 and self.rng.random() < probability:
            self.budget -= 1
            return True
        return False

    def uuid(self) -> str:
        """Return a new id, the same for the same seed."""
        self.ids += 1
        return f"{self.ids:032x}"

    def now(self) -> datetime:
        """Return the simulated time."""
        return at(self.hour) + timedelta(minutes=30)

    def runtime(self) -> Runtime:
        """Return time, ids and randomness for one task."""

        def tick() -> float:
            self.clock_s += 5.0
            return self.clock_s

        return Runtime(
            now=self.now,
            uuid=self.uuid,
            monotonic_s=tick,
            sleep=lambda _: self.step(),
            chance=self.rng.random,
        )

    def land(self, etag: ETag, key: str, body: bytes) -> bool:
        """Apply a conditional PUT, with its condition evaluated now."""
        stored = self.objects.get(key)
        if stored is None or (stored.etag != etag and self.honours_conditions):
            return False
        self.objects[key] = Stored(body=body, etag=ETag(f"e{self.uuid()}"))
        if key == "root.json":
            self.landed.append(body)
        return True


class SimulatedStore:
    """The store port on the simulation: each call is a step, and writes may end as unknown in every way."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.uri = "memory://explored"

    def get(self, key: str) -> Stored | None:
        self.sim.step()
        return self.sim.objects.get(key)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        sim = self.sim
        sim.step()
        assert isinstance(body, bytes)
        if key in sim.objects:
            return NotApplied(because="exists")
        lost = sim.fault(0.01)
        if lost and sim.rng.random() < 0.5:
            return Unknown(because="dropped")
        sim.objects[key] = Stored(body=body, etag=ETag(f"e{sim.uuid()}"))
        if key == "root.json":
            sim.landed.append(body)
        return Unknown(because="reply lost") if lost else Applied(etag=sim.objects[key].etag)

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        sim = self.sim
        sim.step()
        if sim.fault(0.22):
            kind = sim.rng.random()
            if kind < 0.36:
                sim.land(expected, key, body)
                sim.trace.append("   reply lost")
            elif kind < 0.73:
                sim.in_flight.append((expected, key, body))
                sim.trace.append("   PUT delayed")
            elif kind < 0.87:
                sim.trace.append("   PUT dropped")
            else:
                sim.trace.append("   409")
            return Unknown(because="fault")
        if key not in sim.objects:
            return NotApplied(because="missing")
        if sim.land(expected, key, body):
            return Applied(etag=sim.objects[key].etag)
        return NotApplied(because="changed")

    def list(self, prefix: str) -> Iterator[Listed]:
        self.sim.step()
        for key in sorted(k for k in self.sim.objects if k.startswith(prefix)):
            stored = self.sim.objects[key]
            # All objects are new: a publisher skips old markers, but must find those of commits that were killed.
            yield Listed(
                key=key, size_bytes=len(stored.body), etag=stored.etag, modified=self.sim.now()
            )

    def delete(self, keys: Iterable[str]) -> None:
        self.sim.step()
        for key in keys:
            if (stored := self.sim.objects.pop(key, None)) is not None:
                self.sim.deleted[key] = stored.body
        self.sim.deletions += 1


@dataclass(frozen=True)
class SimulatedPartition:
    """Offsets of one partition as a broker returns them."""

    log_start: int


@dataclass(frozen=True)
class SimulatedTopic:
    """A topic as a broker describes it."""

    topic_id: str
    cluster_id: str
    compacted: bool
    partitions: tuple[SimulatedPartition, ...]


@dataclass
class SimulatedLog:
    """Partitions of records (hour, is data), with retention, growth and a last stable offset that may lag.

    It returns without a step, for the current incarnation. Actors use a Session.
    """

    sim: Simulation
    records: dict[int, list[tuple[int, bool]]] = field(default_factory=lambda: {0: []})
    stable: dict[int, int] = field(default_factory=lambda: {0: 0})
    start: dict[int, int] = field(default_factory=lambda: {0: 0})
    incarnation: int = 1

    def recreate(self) -> None:
        """Delete the topic and create it again, empty and with one partition."""
        self.incarnation += 1
        self.records, self.stable, self.start = {0: []}, {0: 0}, {0: 0}

    @property
    def topic_id(self) -> str:
        """The id of the current incarnation."""
        return f"id-{self.incarnation}"

    def describe(self, topics: Sequence[str]) -> Mapping[str, SimulatedTopic]:
        partitions = tuple(
            SimulatedPartition(log_start=self.start[p]) for p in sorted(self.records)
        )
        return {
            name: SimulatedTopic(
                topic_id=self.topic_id, cluster_id="c-1", compacted=False, partitions=partitions
            )
            for name in topics
        }

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int
    ) -> Sequence[Position]:
        wanted, latest = at_ms / 1000, latest_ms / 1000
        positions: list[Position] = []
        for p in sorted(self.records):
            if p >= len(floors):
                continue  # the partition was added after this plan described the topic
            log = self.records[p]
            first = max(self.start[p], floors[p])
            offset = next(
                (
                    o
                    for o in range(first, len(log))
                    if log[o][1] and wanted <= at(log[o][0]).timestamp() <= latest
                ),
                len(log),
            )
            if offset > self.stable[p]:
                raise NotYet(f"{topic}[{p}]: {offset} > {self.stable[p]}.", hint="wait.")
            positions.append(Position(offset=offset, leader_epoch=0))
        return positions

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> Mapping[int, int]:
        # One record is enough here, so that expired logs are planned as well.
        return {
            p: self.start[p]
            for p, position in enumerate(positions)
            if self.start[p] > 0
            and not any(data for _, data in self.records[p][self.start[p] : position.offset])
        }

    def diverged(self, topic: str, positions: Sequence[Position]) -> Sequence[str]:
        return ()


class Session:
    """The log as one process reads it: each call is a step. Another incarnation than the first raises an error."""

    def __init__(self, log: SimulatedLog) -> None:
        self.log, self.topic_id = log, ""

    def describe(self, topics: Sequence[str]) -> Mapping[str, SimulatedTopic]:
        self._step()
        return self.log.describe(topics)

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int
    ) -> Sequence[Position]:
        self._step()
        return self.log.boundary(topic, at_ms, floors, latest_ms=latest_ms)

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> Mapping[int, int]:
        self._step()
        return self.log.unproven(topic, positions, at_ms)

    def diverged(self, topic: str, positions: Sequence[Position]) -> Sequence[str]:
        self._step()
        return self.log.diverged(topic, positions)

    def _step(self) -> None:
        self.log.sim.step()
        self.topic_id = self.topic_id or self.log.topic_id
        if self.log.topic_id != self.topic_id:
            raise IdentityChanged(f"{self.log.topic_id}, not {self.topic_id}.", hint="adopt it.")


class SimulatedTables:
    """Tables as JSON objects: each file with its delete file, or null. New objects that only a root makes visible.

    A data file is a list of offset ranges, which are its rows; a delete file is a list of positions in one.
    """

    def __init__(self, store: SimulatedStore, runtime: Runtime) -> None:
        self.store, self.runtime = store, runtime

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
        files: dict[str, str | None] = {}
        if state.metadata is not None:
            stored = self.store.get(state.metadata)
            if stored is None:
                # The same error as of the real tables: if the root has changed, the swap decides again.
                raise Corrupt(f"{state.metadata} is gone.", hint="nothing was changed.")
            files = json.loads(stored.body)
        if not set(drop) <= set(files):
            raise ViolationError(f"I1: {sorted(set(drop) - set(files))[0]} is dropped and not live")
        after = {f: deletes for f, deletes in files.items() if f not in drop}
        if twice := sorted(f.key for f in add if f.key in after):
            raise ViolationError(f"I1: {twice[0]} is added and live")
        after |= dict.fromkeys((f.key for f in add), None)
        for target, ranges in delete.items():
            if target not in after:
                raise ViolationError(f"I1: rows of {target} are deleted, and it is not live")
            positions = [p for first, end in ranges for p in range(first, end)]
            key = f"tables/{state.name}/deletes/{self.runtime.uuid()}.parquet"
            after[target] = self._create(key, positions)
        key = f"tables/{state.name}/metadata/00000-{self.runtime.uuid()}.metadata.json"
        return self._create(key, after)

    def _create(self, key: str, content: Any) -> str:
        body = json.dumps(content).encode()
        while not isinstance(self.store.create(key, body), Applied):
            if key in self.store.sim.objects:
                break
        return key

    def files(self, name: str, table: RootTable) -> Iterator[TableFile]:
        """Yield the files of a table, as the real tables do for a compaction."""
        for key in self._listed(table.metadata or ""):
            stored = self.store.get(key)
            if stored is None:
                raise Corrupt(f"{key} is gone.", hint="nothing was changed.")
            yield TableFile(
                key=key,
                size_bytes=len(stored.body),
                rows=len(json.loads(stored.body)),
                partition=(),
                is_current=True,
            )

    def write(
        self, chosen: ChosenCompaction, compaction: keys.CompactionId
    ) -> Iterator[SharedFile]:
        """Yield one shared file per group, as the real writer does for a compaction."""
        for number, group in enumerate(chosen.groups):
            rows = [self._run(file) for file in group.files]
            numbered = [(row, run) for run, some in enumerate(rows) for row in some]
            # Half of the files are sorted, by something that mixes the runs.
            is_sorted = int(self.runtime.uuid()[-1], 16) % 2 == 0
            if is_sorted:
                numbered.sort(key=lambda one: crc32(repr(one[0]).encode()))
            key = keys.shared_file(chosen.table, compaction, f"{number}", self.runtime.uuid())
            self._create(key, [row for row, _ in numbered])
            made = self.store.sim.objects[key]
            yield SharedFile(
                file=FileReport(
                    table=chosen.table,
                    key=key,
                    etag=made.etag,
                    size_bytes=len(made.body),
                    rows=len(numbered),
                ),
                runs=tuple(file.run for file in group.files),
                order=self._order(chosen.table, compaction, [run for _, run in numbered])
                if is_sorted
                else None,
            )

    def _run(self, file: SmallFile) -> list[Any]:
        stored = self.store.get(file.key)
        if stored is None:
            raise Corrupt(f"{file.key} is gone.", hint="nothing was changed.")
        rows: list[Any] = json.loads(stored.body)
        if file.shared is not None and file.shared.order is not None:
            places = read_places(self.store, file.shared)
            if places is None:
                raise Corrupt(f"{file.shared.order.key} is gone.", hint="nothing was changed.")
            assert places.places is not None
            rows = [rows[position] for position in places.places]
        return rows[file.first : file.first + file.run.rows]

    def _order(self, table: str, compaction: keys.CompactionId, runs: Sequence[int]) -> RowOrder:
        key = keys.row_order(table, compaction, "0", self.runtime.uuid())
        body = order_bytes(np.array(runs))
        while not isinstance(self.store.create(key, body), Applied):
            if key in self.store.sim.objects:
                break
        return RowOrder(key=key, etag=self.store.sim.objects[key].etag, sorted_by=(1,))

    def _listed(self, metadata: str) -> dict[str, str | None]:
        stored = self.store.get(metadata)
        if stored is None:
            raise Corrupt(f"{metadata} is gone.", hint="nothing was changed.")
        listed: dict[str, str | None] = json.loads(stored.body)
        return listed

    def reached(self, metadata: Collection[str]) -> frozenset[str]:
        """Return the files of some metadata with their delete files, as the real tables do for gc."""
        reached: set[str] = set(metadata)
        for key in metadata:
            listed = self._listed(key)
            reached.update(listed, (deletes for deletes in listed.values() if deletes is not None))
        return frozenset(reached)


def loads(stored: Stored) -> Any:
    """Parse an object's JSON."""
    return json.loads(stored.body)
