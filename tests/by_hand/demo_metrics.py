"""Runs the demo with a StatsD listener, and compares the sums of all counters with the ledger: `make demo-metrics`.

The demo kills a commit task between its PUT of the root and the reply. Its counters are lost with the process, and the
retry counts nothing that is committed already: exactly that commit is missing, and the table shows it.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.running_demo import running_demo
from tallystick.format.record import CommittedInterval
from tallystick.lake import Lake
from tallystick.operations.metrics import measurements
from tallystick.operations.status import read_log, read_status
from tallystick.pipeline import DEAD_LETTERS

PREFIX = "airflow.tallystick."
KILLED = "kill -9 of the commit task between its PUT of root.json and the reply"


class Listener:
    """A StatsD listener that adds up counters and counts timings, by name and tags, until it is closed."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind(("127.0.0.1", 0))
        self.counters: Counter[str] = Counter()
        self.timings: dict[str, list[float]] = {}
        self.others = 0
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def settings(self) -> dict[str, str]:
        """Airflow's settings for this listener."""
        statsd = {
            "STATSD_ON": "True",
            "STATSD_HOST": "127.0.0.1",
            "STATSD_PORT": str(self.socket.getsockname()[1]),
            "STATSD_INFLUXDB_ENABLED": "True",
        }
        return {f"AIRFLOW__METRICS__{name}": value for name, value in statsd.items()}

    def _read(self) -> None:
        while True:
            for line in self.socket.recv(65_536).decode().splitlines():
                name, _, rest = line.rpartition(":")
                value, _, kind = rest.partition("|")
                if not name.startswith(PREFIX):
                    self.others += 1
                elif kind.startswith("ms"):
                    self.timings.setdefault(name.removeprefix(PREFIX), []).append(float(value))
                else:
                    self.counters[name.removeprefix(PREFIX)] += int(float(value))


def counts_of(lake: Lake, one: CommittedInterval) -> Counter[str]:
    """Return what the counters of one committed interval must be, from its commit record, report and files."""
    found: Counter[str] = Counter({"commit.intervals": 1, "commit.records": one.totals.records})
    report = lake.report(one.report) if one.report is not None else None
    for file in report.files if report is not None else ():
        found[f"commit.rows,table={file.table}"] += file.rows
        found[f"commit.bytes,table={file.table}"] += file.size_bytes
        if file.table == DEAD_LETTERS:
            stored = lake.store.get(file.key)
            assert stored is not None
            table = pq.read_table(pa.BufferReader(stored.body), columns=["kind"])
            for kind in table.column("kind").to_pylist():
                found[f"commit.dead_letters,kind={kind}"] += 1
    return found


def without_pipeline(counters: Mapping[str, int]) -> Counter[str]:
    """Return the counters of the pipeline, without its name in their tags."""
    found: Counter[str] = Counter()
    for name, value in counters.items():
        plain, *tags = name.split(",")
        assert "pipeline=flights" in tags, name
        found[",".join([plain, *sorted(tag for tag in tags if tag != "pipeline=flights")])] += value
    return found


def compare(listener: Listener, lake: Lake) -> bool:
    """Print the table of all counters and gauges next to the ledger; return True if they agree."""
    commits = [one for line in read_log(lake, limit=None).commits for one in line.intervals]
    each = [counts_of(lake, one) for one in commits]
    ledger = sum(each, Counter())
    sent = without_pipeline(listener.counters)
    counted = Counter({name: sent[name] for name in sent if name.startswith("commit.")})
    print(f"\n{'counter':<44}{'StatsD':>14}{'ledger':>14}{'difference':>12}")
    for name in sorted(ledger.keys() | counted.keys()):
        print(
            f"{name:<44}{counted[name]:>14,}{ledger[name]:>14,}{ledger[name] - counted[name]:>12,}"
        )
    missing = Counter(
        {name: ledger[name] - counted[name] for name in ledger if ledger[name] != counted[name]}
    )
    lost = [one.interval for one, own in zip(commits, each, strict=True) if +own == +missing]
    print(
        f"\nThe difference is one commit, of {lost[0]}: {KILLED}."
        if lost
        else "\nThe difference is no commit."
    )
    for name in sorted(set(sent) - set(counted)):
        print(f"{name:<66}{sent[name]:>10,}")
    print(f"\n{'timing':<44}{'count':>14}{'median ms':>14}")
    for name, found in sorted(without_tags(listener.timings).items()):
        print(f"{name:<44}{len(found):>14,}{sorted(found)[len(found) // 2]:>14,.0f}")
    print(f"\n{listener.others:,} lines of Airflow's own metrics came, too.")
    return bool(lost) and not counted - ledger and gauges(lake)


def without_tags(timings: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Return the timings by name alone."""
    found: dict[str, list[float]] = {}
    for name, values in timings.items():
        found.setdefault(name.split(",")[0], []).extend(values)
    return found


def gauges(lake: Lake) -> bool:
    """Print the gauges of `tally metrics` next to the ledger; return True if they agree."""
    status = read_status(lake)
    entries = lake.load_existing().whole_ledger().entries
    expected = {
        "committed intervals": sum(e.committed is not None for e in entries),
        "committed records": sum(e.committed.totals.records for e in entries if e.committed),
        "committed dead_letters": sum(
            e.committed.totals.dead_letters for e in entries if e.committed
        ),
    }
    found = {}
    for one in measurements(status, None, now=datetime.now(UTC)):
        place = dict(one.attributes)
        if one.name == "tallystick.intervals" and place["state"] == "committed":
            found["committed intervals"] = one.value
        if one.name == "tallystick.committed.offsets" and f"committed {place['class']}" in expected:
            found[f"committed {place['class']}"] = one.value
    print(f"\n{'gauge of tally metrics':<44}{'gauge':>14}{'ledger':>14}")
    for name, value in expected.items():
        print(f"{name:<44}{found.get(name, -1):>14,}{value:>14,}")
    return found == expected


def main() -> int:
    """Run the demo and compare; return 0 if everything agrees."""
    listener = Listener()
    with running_demo(listener.settings) as (lake, _):
        passed = compare(listener, lake)
    print("PASS" if passed else "FAIL")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
