"""The memory of one read, by the size of its range: it must be constant.

    python -m bench.parts.memory [--megabytes 100 1000] [--codec lz4]

Starts its own broker in a temporary folder and fills one partition with JSON of about 271 bytes per record. Then each
range is read in its own process, which drops every Arrow batch. The base is its resident memory after connecting and
reading one record, the peak is its highest resident memory during the read. Exits with 0 only if no range took more than
64 MiB above the base.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.parts import read
from tallystick.connections.kafka import KafkaSettings
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.decode import warm
from tallystick.kafka.planning import LogPlanner
from tallystick.kafka.reader import RangeReader
from tallystick_devstack.kafka import KafkaBroker

LIMIT_MIB = 64.0
RECORD_BYTES = 271
_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"  # proc(5), clear_refs: reset the peak to the current resident memory


def resident_kib(name: str) -> int:
    """Return VmRSS or VmHWM of this process (proc(5))."""
    (line,) = (x for x in _STATUS.read_text().splitlines() if x.startswith(f"{name}:"))
    return int(line.split()[1])


def read_alone(options: dict[str, str]) -> None:
    """Read one range in a process of its own, and print its memory as JSON."""
    warm()
    reader = RangeReader(
        KafkaSettings(bootstrap_servers=(options["bootstrap"],)),
        topic=read.TOPIC,
        topic_id=options["topic_id"],
        cluster_id=options["cluster_id"],
        compacted=False,
        headers=True,
    )
    for _ in reader.read(0, OffsetRange(start=0, end=1)):
        pass
    base = resident_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    size_bytes = rows = 0
    for batch in reader.read(0, OffsetRange(start=0, end=int(options["end"]))):
        rows += batch.num_rows
        size_bytes += batch.nbytes
    peak = resident_kib("VmHWM")
    print(json.dumps({"rows": rows, "bytes": size_bytes, "base_kib": base, "peak_kib": peak}))


def main() -> int:
    """Measure each range and print one line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--codec", default="lz4")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        read_alone(json.loads(arguments.alone))
        return 0
    worst = 0.0
    with (
        tempfile.TemporaryDirectory(prefix="bench-memory-") as folder,
        KafkaBroker(Path(folder)) as broker,
    ):
        most = max(arguments.megabytes) * 1_000_000 // RECORD_BYTES
        read.produce(broker.bootstrap, most, partitions=1, codec=arguments.codec)
        with LogPlanner(KafkaSettings(bootstrap_servers=(broker.bootstrap,))) as planner:
            state = planner.describe([read.TOPIC])[read.TOPIC]
        for megabytes in arguments.megabytes:
            options = {
                "bootstrap": broker.bootstrap,
                "topic_id": state.topic_id,
                "cluster_id": state.cluster_id,
                "end": str(megabytes * 1_000_000 // RECORD_BYTES),
            }
            printed = subprocess.run(
                [sys.executable, "-m", "bench.parts.memory", "--alone", json.dumps(options)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            measured = json.loads(printed)
            above = (measured["peak_kib"] - measured["base_kib"]) / 1024
            worst = max(worst, above)
            print(
                f"{measured['bytes'] / 1e6:8.1f} MB in {measured['rows']:>9,} records: "
                f"base {measured['base_kib'] / 1024:6.1f} MiB, peak {measured['peak_kib'] / 1024:6.1f} MiB, "
                f"{above:5.1f} MiB above",
                flush=True,
            )
    if worst > LIMIT_MIB:
        print(
            f"peak above the base: expected at most {LIMIT_MIB:g} MiB, found {worst:.1f} MiB",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
