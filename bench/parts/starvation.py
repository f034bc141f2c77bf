"""The time of a commit while a publisher publishes a backlog: at most twice the time of an undisturbed one.

    python -m bench.parts.starvation [--tables 2 10 50] [--pending 10000] [--delay-ms 20] [--without-room]

A lake in memory whose store delays each request. The real code commits one interval, whose plan, record and report are
then copied to as many intervals as are pending. The real `publish` publishes them in a thread to an output in memory,
while the real `commit` commits intervals that were planned and staged before. `--without-room` switches off the pauses
of the publisher, for comparison. Exits with 0 only if no commit took more than twice the undisturbed median.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.backlog import lake_with_backlog
from support.fake_output import FakeOutput, Wire
from support.small_lake import SmallLake
from tallystick.lake import Lake
from tallystick.lake.room import RoomGiver, RoomRequest
from tallystick.operations.commit import commit
from tallystick.operations.publish import Published, publish
from tallystick.runtime import system_runtime
from tallystick.store import ETag, Listed, Outcome, Store, Stored
from tallystick.tables.rows import StoredRows
from tallystick.tables.staging import IcebergTables

FEED = "feed"
ALONE_S = 15.0
BETWEEN_S = 1.0  # Airflow needs longer than that from one task to the next
FACTOR_MAX = 2.0


@dataclass
class DelayedStore:
    """A store that sleeps before each request, and counts them."""

    inner: Store
    delay_s: float
    requests: int = 0
    swaps_lost: int = 0

    @property
    def uri(self) -> str:
        """The URI of the inner store."""
        return self.inner.uri

    def _wait(self) -> None:
        self.requests += 1
        time.sleep(self.delay_s)

    def get(self, key: str) -> Stored | None:
        """Call the inner store after the delay."""
        self._wait()
        return self.inner.get(key)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Call the inner store after the delay. Safe to repeat: as the inner call."""
        self._wait()
        return self.inner.create(key, body)

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Call the inner store after the delay. Safe to repeat: as the inner call."""
        self._wait()
        outcome = self.inner.replace(key, body, expected=expected)
        self.swaps_lost += getattr(outcome, "because", None) == "changed"
        return outcome

    def list(self, prefix: str) -> Iterator[Listed]:
        """Call the inner store after the delay."""
        self._wait()
        return self.inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Call the inner store after the delay. Safe to repeat: as the inner call."""
        self._wait()
        self.inner.delete(keys)


@dataclass
class Publisher:
    """The real `publish` in a thread. `done` counts intervals."""

    store: Store
    delay_s: float
    done: int = 0
    failed: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Start a thread that ends with the process."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        lake = Lake(DelayedStore(self.store, self.delay_s), system_runtime(), proven=True)
        output = FakeOutput(Wire())
        failed = publish(lake, {FEED: lambda: output}, rows_of=StoredRows, watch=self._count)
        self.failed += [str(failure.error) for failure in failed]

    def _count(self, _: Published) -> None:
        self.done += 1


def timed(small: SmallLake, delay_s: float, plan: str, report: str) -> tuple[float, int, int]:
    """Commit with a lake object of its own. Return seconds, swaps lost and requests."""
    store = DelayedStore(small.store, delay_s)
    lake = Lake(store, system_runtime(), proven=True)
    tables = IcebergTables(store, lake.runtime)
    began = time.monotonic()
    commit(lake, tables, plan_key=plan, report_key=report)
    return time.monotonic() - began, store.swaps_lost, store.requests


def measure(tables: int, options: argparse.Namespace) -> bool:
    """Print the results for one number of tables. Return whether no commit took too long."""
    began = time.monotonic()
    delay_s = options.delay_ms / 1000
    small, staged = lake_with_backlog(tables, options.pending, options.commits)
    created_s = time.monotonic() - began
    copy = small.copy()
    alone = [timed(copy, delay_s, *keys) for keys in staged]
    undisturbed = statistics.median(seconds for seconds, _, _ in alone)
    publisher = Publisher(small.store, delay_s)
    publisher.start()
    time.sleep(ALONE_S)
    alone_rate = publisher.done / ALONE_S
    before, began = publisher.done, time.monotonic()
    during = []
    for keys in staged:
        during.append(timed(small, delay_s, *keys))
        time.sleep(BETWEEN_S)
    busy_rate = (publisher.done - before) / (time.monotonic() - began)
    worst = max(seconds for seconds, _, _ in during)
    print(
        f"{tables:3d} tables: undisturbed {undisturbed:6.2f} s ({alone[0][2]} requests)\n"
        f"     during the backlog: median {statistics.median(t[0] for t in during):6.2f} s, worst {worst:6.2f} s "
        f"({worst / undisturbed:.2f} x), swaps lost {[t[1] for t in during]}, requests {[t[2] for t in during]}\n"
        f"     publisher: {alone_rate:.2f} intervals/s alone, {busy_rate:.2f} with commits {BETWEEN_S:g} s apart; "
        f"{options.pending} pending were created in {created_s:.0f} s",
        flush=True,
    )
    for why in publisher.failed:
        print(f"not published: {why}", flush=True)
    return worst <= FACTOR_MAX * undisturbed and not publisher.failed and publisher.done > 0


def main() -> int:
    """Measure each number of tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tables", type=int, nargs="+", default=[2, 10, 50])
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--commits", type=int, default=5)
    parser.add_argument("--without-room", action="store_true")
    options = parser.parse_args()
    if options.without_room:
        patch.object(RoomRequest, "after_read", lambda *_: None).start()
        patch.object(RoomGiver, "before", lambda *_: None).start()
    return 0 if all([measure(tables, options) for tables in options.tables]) else 1


if __name__ == "__main__":
    sys.exit(main())
