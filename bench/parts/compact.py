"""A scan before and after a compaction: 720 hourly intervals of 8 small files each, on an S3 server of its own.

python -m bench.parts.compact [--intervals 720] [--partitions 8] [--rows 50]

The rows of each interval are compared by a digest before and after it, and after each interval was replaced once.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.fakes import FakeLog, FakeRecord
from support.small_lake import DAY, TOPIC, SmallLake
from tallystick.format.interval import Interval
from tallystick.lake import Lake
from tallystick.operations.compact import CompactOptions, compact
from tallystick.operations.compact.local import LocalWriter
from tallystick.operations.verify import verify
from tallystick.runtime import system_runtime
from tallystick.store.counted import CountedStore, RequestCounts
from tallystick.store.s3 import S3Store
from tallystick.tables.reading import live_files, static_table
from tallystick.tables.sql import duckdb_connection
from tallystick_devstack.testing.servers import aws_environment, ministack

URI = "s3://lake/hourly"
TABLE = "events"
HOUR = timedelta(hours=1)


def hour(number: int) -> Interval:
    """Return an interval of an hour."""
    return Interval(start=DAY + number * HOUR, end=DAY + (number + 1) * HOUR)


def log_of(intervals: int, partitions: int, rows: int) -> FakeLog:
    """Return a log with some records in each hour of each partition."""
    log = FakeLog()
    log.create(TOPIC, partitions=partitions)
    for number in range(intervals):
        start_ms = round(hour(number).start.timestamp() * 1000)
        for place, partition in enumerate(log.topics[TOPIC].partitions):
            for row in range(rows):
                value = {"n": row, "kind": f"kind {(row + place) % 7}"}
                partition.records.append(
                    FakeRecord(at_ms=start_ms + row * 1000, kind="data", value=value)
                )
    return log


def metadata(lake: Lake, table: str = TABLE) -> str:
    """Return the key of a table's metadata."""
    found = lake.load_existing().root.tables[table].metadata
    assert found is not None
    return found


def digests(lake: Lake) -> Mapping[Any, str]:
    """Return a digest of the rows of each hour: all columns, in the order of partition and offset."""
    rows = static_table(lake.store, metadata(lake)).scan().to_arrow()
    order = [("_kafka_partition", "ascending"), ("_offset", "ascending")]
    rows = rows.sort_by([("_timestamp", "ascending"), *order])
    hours = pc.floor_temporal(rows["_timestamp"], unit="hour")
    found: dict[Any, str] = {}
    for one in pc.unique(hours):
        part = rows.filter(pc.equal(hours, one)).sort_by(order).combine_chunks()
        text = repr(part.to_pylist()).encode()
        found[one.as_py()] = hashlib.sha256(text).hexdigest()
    return found


def scan(lake: Lake, name: str) -> tuple[Any, ...]:
    """Print the time and requests of a full scan by PyIceberg through a counting store, and the time by DuckDB."""
    counts = RequestCounts(swap_key="root.json")
    counted = CountedStore(lake.store, counts)
    key = metadata(lake)
    started = time.perf_counter()
    table = static_table(counted, key).scan().to_arrow()
    pyiceberg_s = time.perf_counter() - started
    connection = duckdb_connection({TABLE: f"{URI}/{key}"}, environ=os.environ)
    started = time.perf_counter()
    query = f"SELECT count(*), sum(n), max(_offset) FROM {TABLE}"
    answer = connection.execute(query).fetchall()
    duckdb_s = time.perf_counter() - started
    connection.close()
    files = list(live_files(lake.store, key))
    print(
        f"{name:<28}{len(files):>7,}{sum(f.size_bytes for f in files):>13,}"
        f"{sum(f.deletes is not None for f in files):>9}{table.num_rows:>10,}"
        f"{sum(counts.requests.values()):>10,}{pyiceberg_s:>13.2f}{duckdb_s:>10.2f}",
        flush=True,
    )
    return (table.num_rows, answer)


def main() -> None:
    """Build the lake, compact it, replace each interval, and compact it again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--intervals", type=int, default=720)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rows", type=int, default=50, help="of an hour and partition")
    options = parser.parse_args()
    with ministack() as url:
        os.environ.update(aws_environment(url))
        import boto3

        boto3.client("s3").create_bucket(Bucket="lake")
        measure(options.intervals, options.partitions, options.rows)


def measure(intervals: int, partitions: int, rows: int) -> None:
    """Print all figures; end with an error if a digest differs or the lake is not proven."""
    small = SmallLake(
        store=S3Store(URI), runtime=system_runtime(), log=log_of(intervals, partitions, rows)
    )
    started = time.perf_counter()
    for number in range(intervals):
        small.run(hour(number))
    print(f"{intervals} intervals committed in {time.perf_counter() - started:.0f} s")
    headings = ("files", "bytes", "deletes", "rows", "requests", "PyIceberg s", "DuckDB s")
    widths = (7, 13, 9, 10, 10, 13, 10)
    print(f"{'':<28}" + "".join(f"{h:>{w}}" for h, w in zip(headings, widths, strict=True)))
    before = digests(small.lake)
    first = scan(small.lake, "before")
    wanted = CompactOptions(until=hour(intervals).end)
    started = time.perf_counter()
    result = compact(small.lake, small.tables, LocalWriter(small.lake), wanted)
    elapsed_s = time.perf_counter() - started
    check(scan(small.lake, "compacted") == first, "the scan")
    check(digests(small.lake) == before, "digests after the compaction")
    check(verify(small.lake, deep=True).proven, "the lake after the compaction")
    for name, one in sorted(result.tables.items()):
        print(f"  {name}: {one.files_before:,} files became {one.files_after:,}")
    print(f"compacted in {elapsed_s:.1f} s; {len(before)} digests of intervals are equal")
    small.job = b"version 2"
    started = time.perf_counter()
    for number in range(intervals):
        small.run(hour(number), clear=1)
        if number + 1 == intervals // 2:
            check(scan(small.lake, f"{number + 1} replaced") == first, "the scan")
    elapsed_s = time.perf_counter() - started
    print(f"{intervals} intervals replaced in {elapsed_s:.0f} s")
    check(scan(small.lake, f"{intervals} replaced") == first, "the scan")
    check(digests(small.lake) == before, "digests after the replacements")
    compact(small.lake, small.tables, LocalWriter(small.lake), wanted)
    check(scan(small.lake, "compacted again") == first, "the scan")
    check(digests(small.lake) == before, "digests after the second compaction")
    check(verify(small.lake, deep=True).proven, "the lake")
    print("PASS")


def check(is_equal: bool, what: str) -> None:
    """End with an error if it is not."""
    if not is_equal:
        raise SystemExit(f"FAIL: {what}")


if __name__ == "__main__":
    main()
