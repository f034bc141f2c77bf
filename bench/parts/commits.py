"""The cost of a commit as a lake grows: CPU time, requests and bytes of the commit of 3 small tables, by its number.

    python -m bench.parts.commits [--commits 1000] [--partitions 2] [--pairs 40]

Plans, stages and commits hourly intervals on a store in memory, so the CPU time is that of tallystick and its libraries
alone. Each line is the median of the commits since the line before.

Hours pass between the first commit and the last one, and the machine and the memory of this process change with them. So
the last line compares further commits of the grown lake with those of a second lake of 100 intervals, in turn.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.fakes import FakeLog, FakeRecord, stage
from support.small_lake import DAY, TOPIC, SmallLake
from tallystick.format.interval import Interval
from tallystick.operations.commit import commit
from tallystick.store import ETag, Listed, Outcome, Store, Stored
from tallystick.store.memory import MemoryStore

HOUR = timedelta(hours=1)
SHOWN = (1, 2, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
YOUNG = 100  # intervals of the lake that the grown one is compared with: its metadata lists 50 snapshots


class CostedStore:
    """A wrapper of a store that counts requests by verb, and the bytes that are read and written.

    `take_own_s` returns the CPU seconds of the wrapped store: one in memory looks at all of its objects to list some.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._own_s: list[
            float
        ] = []  # PyIceberg calls the store in threads: appending is safe, adding is not

    def take_own_s(self) -> float:
        """Return the CPU seconds of the wrapped store since the last call.

        A sum over all calls ever would take milliseconds of each commit that is measured, more for a later one.
        """
        taken, self._own_s = self._own_s, []
        return sum(taken)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.thread_time()
        try:
            yield
        finally:
            self._own_s.append(time.thread_time() - began)

    @property
    def uri(self) -> str:
        """The URI of the wrapped store."""
        return self.store.uri

    def get(self, key: str) -> Stored | None:
        """Read an object."""
        with self._timed():
            found = self.store.get(key)
        self.requests["GET"] += 1
        self.bytes["read"] += len(found.body) if found is not None else 0
        return found

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Create an object. Safe to repeat: the wrapped store's `create` is."""
        self.requests["PUT"] += 1
        self.bytes["written"] += len(body) if isinstance(body, bytes) else body.stat().st_size
        with self._timed():
            return self.store.create(key, body)

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Replace an object. Safe to repeat: the wrapped store's `replace` is."""
        self.requests["PUT"] += 1
        self.bytes["written"] += len(body)
        with self._timed():
            return self.store.replace(key, body, expected=expected)

    def list(self, prefix: str) -> Iterator[Listed]:
        """List objects."""
        self.requests["LIST"] += 1
        with self._timed():
            return self.store.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Safe to repeat: the wrapped store's `delete` is."""
        self.requests["DELETE"] += 1
        with self._timed():
            self.store.delete(keys)


def interval(number: int) -> Interval:
    """Return an interval of an hour."""
    return Interval(start=DAY + number * HOUR, end=DAY + (number + 1) * HOUR)


def append_hour(log: FakeLog, number: int) -> None:
    """Append two records and a dead letter of an hour to each partition."""
    at_ms = round((DAY + number * HOUR).timestamp() * 1000)
    for partition in log.topics[TOPIC].partitions:
        for row in range(2):
            value = {"n": row, "kind": f"kind {row}"}
            partition.records.append(FakeRecord(at_ms=at_ms + row, kind="data", value=value))
        partition.records.append(FakeRecord(at_ms=at_ms + 9, kind="dead"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCost:
    """What one commit took: CPU seconds without those of the store, requests by verb, bytes read and written."""

    cpu_s: float
    requests: Counter[str]
    bytes: Counter[str]


class GrowingLake:
    """A lake on a store of its own to which hourly intervals are committed."""

    def __init__(self, *, partitions: int) -> None:
        self._log = FakeLog()
        self._log.create(TOPIC, partitions=partitions)
        self._costed = CostedStore(MemoryStore())
        self._small = SmallLake(store=self._costed, log=self._log)
        self.committed = 0

    def commit_next(self) -> CommitCost:
        """Append, plan, stage and commit the next hour; return what the commit took.

        A commit of a user is a process of its own. So the collector of garbage leaves out the objects of earlier commits,
        which the store in memory keeps in this process.
        """
        log, small, costed = self._log, self._small, self._costed
        append_hour(log, self.committed)
        (planned,) = small.plan(interval(self.committed)).intervals
        report = stage(small.lake, log, planned.plan)
        costed.requests, costed.bytes = Counter(), Counter()
        costed.take_own_s()
        gc.freeze()
        began = time.process_time()
        commit(small.lake, small.tables, plan_key=planned.plan, report_key=report)
        cpu_s = time.process_time() - began - costed.take_own_s()
        gc.unfreeze()
        self.committed += 1
        # Copies: the store goes on to count the next plan and stage.
        return CommitCost(cpu_s=cpu_s, requests=costed.requests.copy(), bytes=costed.bytes.copy())


def main() -> None:
    """Commit intervals one after the other, print the cost of some, and compare the last ones with a young lake's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=40, help="pairs of commits of the last line")
    options = parser.parse_args()
    grown = GrowingLake(partitions=options.partitions)
    print("commit    CPU ms  GET  PUT LIST      read   written", flush=True)
    taken: list[CommitCost] = []
    for number in range(1, options.commits + 1):
        taken.append(grown.commit_next())
        if number in SHOWN:
            print(line(number, taken), flush=True)
            taken = []
    if options.commits > YOUNG and options.pairs:
        young = GrowingLake(partitions=options.partitions)
        for _ in range(YOUNG):
            young.commit_next()
        print(compared(young, grown, options.pairs))


def line(number: int, taken: list[CommitCost]) -> str:
    """Return the medians of these commits as text."""

    def median(values: Iterable[float]) -> float:
        return statistics.median(values)

    cpu_ms = median(t.cpu_s for t in taken) * 1000
    verbs = [median(t.requests[verb] for t in taken) for verb in ("GET", "PUT", "LIST")]
    moved = [median(t.bytes[way] for t in taken) for way in ("read", "written")]
    return (
        f"{number:6,}{cpu_ms:10.1f}"
        + "".join(f"{v:5.0f}" for v in verbs)
        + "".join(f"{b:10,.0f}" for b in moved)
    )


def compared(young: GrowingLake, grown: GrowingLake, pairs: int) -> str:
    """Commit to both lakes in turn; return the medians and the least of the CPU times as text."""
    first, last = young.committed, grown.committed
    costs: dict[GrowingLake, list[float]] = {young: [], grown: []}
    for pair in range(pairs):
        for lake in (young, grown) if pair % 2 else (grown, young):
            costs[lake].append(lake.commit_next().cpu_s * 1000)
    few, many = costs[young], costs[grown]
    middle = statistics.median(few), statistics.median(many)
    return (
        f"after {first:,} and after {last:,} intervals, {pairs} commits each in turn: median {middle[0]:.1f} and "
        f"{middle[1]:.1f} ms ({middle[1] / middle[0]:.2f} times), least {min(few):.1f} and {min(many):.1f} ms "
        f"({min(many) / min(few):.2f} times)"
    )


if __name__ == "__main__":
    main()
