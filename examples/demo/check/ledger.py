"""The ledger, read as JSON: its intervals divide the log without gaps or overlaps, and account for what was sent."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from examples.checks import Finding, finding
from examples.demo.check.lake import Objects
from examples.demo.check.queries import first, number

# The order of the totals in a committed entry.
TOTALS = ("records", "dead_letters", "aborted", "control", "absent", "lost")


def check_ledger(
    db: duckdb.DuckDBPyConnection, objects: Objects, root: Any, topic: str
) -> Iterator[Finding]:
    """Check that the committed intervals divide the log without gaps, and that their accounts equal what was sent."""
    pages = [objects.json(key) for _, _, key in root["pages"]]
    entries = sorted((e for p in pages for e in p["entries"]), key=lambda e: e["interval"])
    boundaries = {b["at"]: b["positions"].get(topic, []) for p in pages for b in p["boundaries"]}
    origins = root["topics"][topic]["origins"]
    problem = _not_settled(entries)
    yield finding("ledger: all", f"{len(entries)} intervals, each committed, none pending", problem)
    if problem:
        return
    ranges = _ranges(entries, boundaries, origins)
    db.register("ranges", ranges)
    db.execute("CREATE TABLE committed AS SELECT * FROM ranges")
    offsets = pc.sum(pc.subtract(ranges["stop"], ranges["start"])).as_py()
    yield finding(
        "ledger: tile",
        f"{offsets:,} offsets of {len(origins)} partitions, no gap and no overlap",
        _not_tiled(db, entries),
    )
    yield finding(
        "ledger: time",
        "each record is in the interval of its CreateTime",
        first(
            db,
            "partition, offset, interval {}",
            "FROM sent s JOIN committed h ON s.partition = h.partition AND s.place >= h.start AND s.place < h.stop "
            "WHERE s.at_ms < epoch_ms(h.since::TIMESTAMPTZ) OR s.at_ms >= epoch_ms(h.until::TIMESTAMPTZ)",
            "s.partition, s.place, h.since",
        ),
    )
    yield _check_account(db, entries)


def _not_settled(entries: Sequence[Any]) -> str | None:
    for entry in entries:
        if entry["committed"] is None or entry["granted"] is not None:
            return f"{entry['interval']} is {'pending' if entry['granted'] else 'empty'}"
    return None if entries else "the ledger is empty"


def _ranges(
    entries: Sequence[Any], boundaries: Mapping[str, Any], origins: Sequence[int]
) -> pa.Table:
    """Return one row per interval and partition: its offsets [start, stop). The origin replaces missing positions."""

    def offset(at: str, partition: int) -> int:
        positions = boundaries[at]
        missing = partition >= len(positions)
        return int(origins[partition] if missing else positions[partition][0])

    lines = [
        {
            "since": since,
            "until": until,
            "partition": p,
            "start": offset(since, p),
            "stop": offset(until, p),
        }
        for since, until in (e["interval"] for e in entries)
        for p in range(len(origins))
    ]
    return pa.Table.from_pylist(lines)


def _not_tiled(db: duckdb.DuckDBPyConnection, entries: Sequence[Any]) -> str | None:
    for left, right in itertools.pairwise(entries):
        if left["interval"][1] != right["interval"][0]:
            return f"after {left['interval']} comes {right['interval']}"
    return (
        first(db, "a range ends before it starts: {}", "FROM committed WHERE start > stop", "*")
        or first(
            db,
            "partition, end, next start {}",
            "FROM (SELECT partition, stop, lead(start) OVER (PARTITION BY partition ORDER BY since) "
            "AS following FROM committed) WHERE following IS NOT NULL AND following <> stop",
            "partition, stop, following",
        )
        or first(
            db,
            "partition, first offset sent and committed, last offset sent, end committed: {}",
            "FROM (SELECT partition, min(place) AS a, max(place) AS z FROM sent GROUP BY 1) s "
            "FULL JOIN (SELECT partition, min(start) AS a, max(stop) AS z FROM committed GROUP BY 1) h "
            "USING (partition) WHERE s.a IS DISTINCT FROM h.a OR s.z IS NULL OR s.z >= h.z",
            "partition, s.a, h.a, s.z, h.z",
        )
    )


def _check_account(db: duckdb.DuckDBPyConnection, entries: Sequence[Any]) -> Finding:
    """Compare each interval's account with what was sent to its offsets; the rest are transaction markers."""
    accounts = [
        {"since": e["interval"][0], **dict(zip(TOTALS, e["committed"]["totals"], strict=True))}
        for e in entries
    ]
    db.register("accounts", pa.Table.from_pylist(accounts))
    db.execute(
        "CREATE VIEW expected AS SELECT since, sum(stop - start) AS offsets, "
        "sum(records) AS records, sum(dead_letters) AS dead_letters, sum(aborted) AS aborted FROM ("
        "  SELECT since, start, stop, count(*) FILTER (kind = 'ok') AS records, "
        "  count(*) FILTER (kind IN ('cut', 'type', 'utf8')) AS dead_letters, "
        "  count(*) FILTER (kind = 'aborted') AS aborted "
        "  FROM committed h LEFT JOIN sent s ON s.partition = h.partition AND s.place >= h.start AND s.place < h.stop "
        "  GROUP BY since, h.partition, start, stop) GROUP BY since"
    )
    problem = first(
        db,
        "interval, then records, dead, aborted, control, absent, lost in the ledger and as sent: {}",
        "FROM accounts l FULL JOIN expected f USING (since) WHERE "
        "(l.records, l.dead_letters, l.aborted, l.control, l.absent, l.lost) IS DISTINCT FROM "
        "(f.records, f.dead_letters, f.aborted, f.offsets - f.records - f.dead_letters - f.aborted, 0, 0)",
        "since, l.records, l.dead_letters, l.aborted, l.control, l.absent, l.lost, f.records, f.dead_letters, f.aborted, "
        "f.offsets - f.records - f.dead_letters - f.aborted, 0, 0",
    )
    sums = db.execute(
        f"SELECT {', '.join(f'sum({name})::BIGINT' for name in TOTALS)} FROM accounts"
    ).fetchall()[0]
    # Each transaction writes one marker into each partition that took part in it.
    markers = number(
        db,
        "SELECT count(DISTINCT (transaction, partition)) FROM sent WHERE transaction IS NOT NULL",
    )
    if problem is None and sums[TOTALS.index("control")] != markers:
        problem = f"{sums[TOTALS.index('control')]} control records are accounted for, {markers} markers were sent"
    figures = " + ".join(f"{n:,} {name}" for name, n in zip(TOTALS, sums, strict=True) if n)
    return finding("account", f"{figures} = {sum(sums):,} offsets", problem)
