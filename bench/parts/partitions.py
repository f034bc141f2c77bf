"""Memory, disk and time to write one input split, by rows and partition values: memory must be constant.

    python -m bench.parts.partitions [--million 1 4] [--days 30 3650]

Each input split is written in its own process, in batches of 65,536 rows of seven columns with random days. An upload
only counts the file. The base is the process's resident memory after its first batch, the peak is its highest resident
memory during the write. Exits with 0 only if each input split wrote one file per day and stayed within 512 MiB above the
base.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.parts import memory
from tallystick.engine.parquet import TableWriter
from tallystick.format.columns import TableColumn
from tallystick.format.plan import PlannedTable
from tallystick.tables.calendar import DAY_US
from tallystick.tables.schema import arrow_schema

BATCH = 65_536
LIMIT_MIB = 512.0
NAMES = {
    "n": "long",
    "kind": "string",
    "at": "timestamptz",
    "_topic": "string",
    "_kafka_partition": "int",
    "_offset": "long",
    "_timestamp": "timestamptz",
}
COLUMNS = tuple(
    TableColumn(id=i, name=name, type=kind, required=True)
    for i, (name, kind) in enumerate(NAMES.items(), 1)
)


def batches(rows: int, days: int) -> Iterator[pa.Table]:
    """Yield rows with offsets from 0 on, with random days."""
    drawn = np.random.default_rng(1)
    for first in range(0, rows, BATCH):
        count = min(BATCH, rows - first)
        offsets = pa.array(np.arange(first, first + count))
        at = pa.array(drawn.integers(0, days * DAY_US, count)).cast(pa.timestamp("us", tz="UTC"))
        topic, kind = pa.repeat("events", count), pa.repeat("k" * 200, count)
        partition = pa.array(np.zeros(count, np.int32))
        values = [offsets, kind, at, topic, partition, offsets, at]
        yield pa.table(values, schema=arrow_schema(COLUMNS))


def write_alone(rows: int, days: int) -> None:
    """Write one input split in a process of its own, and print its memory, disk and time as JSON."""
    uploads: list[int] = []

    def upload(_: str, path: Path) -> tuple[str, str]:
        uploads.append(path.stat().st_size)
        interval = "20130101T000000000Z-20130102T000000000Z"
        return f"tables/t/data/{interval}/{'a' * 32}/one/00000-{len(uploads):032x}.parquet", "e"

    first = next(batches(BATCH, days))
    base = memory.resident_kib("VmRSS")
    del first
    Path("/proc/self/clear_refs").write_text(memory._RESET_PEAK)
    started, disk = time.monotonic(), 0
    with (
        tempfile.TemporaryDirectory(prefix="bench-partitions-") as folder,
        TableWriter(
            PlannedTable(name="t", uuid="a" * 32, columns=COLUMNS),
            partition_by=["day(at)"],
            upload=upload,
            folder=Path(folder),
        ) as writer,
    ):
        for batch in batches(rows, days):
            writer.write(batch, source=("events", 0))
            disk = max(disk, sum(f.stat().st_size for f in Path(folder).iterdir()))
        files = len(writer.close())
    measured = {"files": files, "base_kib": base, "peak_kib": memory.resident_kib("VmHWM")}
    print(json.dumps({**measured, "disk": disk, "seconds": time.monotonic() - started}))


def main() -> int:
    """Measure each input split and print one line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--million", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--days", type=int, nargs="+", default=[30, 3_650])
    parser.add_argument("--alone", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        write_alone(*arguments.alone)
        return 0
    good = True
    for days in arguments.days:
        for million in arguments.million:
            printed = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "bench.parts.partitions",
                    "--alone",
                    str(million * 1_000_000),
                    str(days),
                ],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            measured = json.loads(printed)
            above = (measured["peak_kib"] - measured["base_kib"]) / 1024
            good = good and above <= LIMIT_MIB and measured["files"] == days
            print(
                f"{million:3} M rows over {days:5,} days: {measured['files']:5,} files, peak {above:6.1f} MiB above "
                f"{measured['base_kib'] / 1024:.1f}, local disk {measured['disk'] / 1e6:6.1f} MB, "
                f"{measured['seconds']:5.1f} s",
                flush=True,
            )
    print(f"{'a file per day, within' if good else 'NOT'} {LIMIT_MIB:.0f} MiB above the base")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
