"""How much memory one read takes, by the size of its range: it must be flat.

    python tests/bench/bench_memory.py [--megabytes 100 1000] [--codec lz4]

Starts a broker of its own in a temporary folder and fills one partition with JSON of about 271 bytes a record. Each range
is then read in a process of its own, which drops every Arrow batch that it is given: the base is its resident memory
after connecting and reading one record, the peak the most that it was resident while it read. Ends with 0 only if no
range took more than 64 MiB above the base.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import bench_read

from tallystick.connections.kafka import KafkaSettings
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.decode import warm
from tallystick.kafka.planning import LogPlanner
from tallystick.kafka.reader import RangeReader
from tallystick_devstack.kafka import KafkaBroker

WANTED_MIB = 64.0
RECORD_BYTES = 271
_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"  # proc(5), clear_refs: the peak begins again at what is resident now


def resident_kib(name: str) -> int:
    """VmRSS or VmHWM of this process (proc(5))."""
    (line,) = (one for one in _STATUS.read_text().splitlines() if one.startswith(f"{name}:"))
    return int(line.split()[1])


def read_alone(words: dict[str, str]) -> None:
    """What each range's own process does: read, and print what it took as JSON."""
    warm()
    reader = RangeReader(
        KafkaSettings(bootstrap_servers=(words["bootstrap"],)),
        topic=bench_read.TOPIC,
        topic_id=words["topic_id"],
        cluster_id=words["cluster_id"],
        compacted=False,
        headers=True,
    )
    for _ in reader.read(0, OffsetRange(start=0, end=1)):
        pass
    base = resident_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    octets = rows = 0
    for batch in reader.read(0, OffsetRange(start=0, end=int(words["end"]))):
        rows += batch.num_rows
        octets += batch.nbytes
    peak = resident_kib("VmHWM")
    print(json.dumps({"rows": rows, "bytes": octets, "base_kib": base, "peak_kib": peak}))


def main() -> int:
    """Measure each range and print a line of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--codec", default="lz4")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        read_alone(json.loads(asked.alone))
        return 0
    worst = 0.0
    with (
        tempfile.TemporaryDirectory(prefix="bench-memory-") as folder,
        KafkaBroker(Path(folder)) as broker,
    ):
        most = max(asked.megabytes) * 1_000_000 // RECORD_BYTES
        bench_read.produce(broker.bootstrap, most, partitions=1, codec=asked.codec)
        with LogPlanner(KafkaSettings(bootstrap_servers=(broker.bootstrap,))) as planner:
            state = planner.describe([bench_read.TOPIC])[bench_read.TOPIC]
        for megabytes in asked.megabytes:
            words = {
                "bootstrap": broker.bootstrap,
                "topic_id": state.topic_id,
                "cluster_id": state.cluster_id,
                "end": str(megabytes * 1_000_000 // RECORD_BYTES),
            }
            told = subprocess.run(
                [sys.executable, __file__, "--alone", json.dumps(words)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            found = json.loads(told)
            above = (found["peak_kib"] - found["base_kib"]) / 1024
            worst = max(worst, above)
            print(
                f"{found['bytes'] / 1e6:8.1f} MB in {found['rows']:>9,} records: "
                f"base {found['base_kib'] / 1024:6.1f} MiB, peak {found['peak_kib'] / 1024:6.1f} MiB, "
                f"{above:5.1f} MiB above",
                flush=True,
            )
    if worst > WANTED_MIB:
        print(f"more than the {WANTED_MIB:g} MiB that are promised", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
