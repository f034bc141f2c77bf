"""The check of the example `cleanup`: bucket and folder contain only what is live; the table, what was committed.

What is live is determined independently: from root.json, by boto3 and PyIceberg.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyiceberg.table import StaticTable

from examples.checks import CheckResult, Finding, finding
from examples.checks.lake import Lake
from examples.checks.sent import by_day, part, read_sent

TABLE = "per_airline"


def compare(
    lake: Lake,
    folder: Path,
    sent: Path,
    *,
    days: Collection[datetime],
    left_before: Mapping[str, int],
) -> CheckResult:
    """Compare bucket, table and folder with what is live and what was sent.

    `days`: the days that were run. `left_before`: what was left before gc, counted by kind: if nothing of a kind was
    left, the run shows nothing, and this fails.
    """
    root = lake.json("root.json")
    listed, live = lake.listed(), live_keys(lake, root)
    rows = lake.table(root["tables"][TABLE]["metadata"]).scan().to_arrow().to_pylist()
    expected = _counts(sent, days)
    found = Counter({(r["carrier"], str(r["day"])): r["flights"] for r in rows})
    missing = [kind for kind, count in left_before.items() if not count]
    figures = ", ".join(f"{count} {kind}" for kind, count in left_before.items())
    return CheckResult(
        rows=sum(found.values()),
        findings=[
            finding(
                "left behind",
                f"before: {figures}",
                f"before gc: found no {missing[0]}" if missing else None,
            ),
            finding(
                "the bucket",
                f"{len(listed)} objects: exactly those that root.json reaches",
                bucket_difference(listed, live),
            ),
            finding(
                "the table",
                f"{len(found)} airlines and days with {sum(found.values()):,} flights: all of committed transactions, "
                "none of aborted transactions or of the dead producer",
                None
                if found == expected and len(rows) == len(found)
                else f"expected {sum(expected.values())} flights, found {sum(found.values())} in {len(rows)} rows",
            ),
            *check_folder(folder, days, found),
        ],
    )


def live_keys(lake: Lake, root: Mapping[str, Any]) -> set[str]:
    """Return all keys that root.json reaches: pages, the chain of records, plans, reports, tables and their files."""
    live = {"root.json"}
    for line in root["pages"]:
        live.add(line[2])
        for entry in lake.json(line[2])["entries"]:
            live |= {entry[slot]["plan"] for slot in ("granted", "committed") if entry[slot]}
    key = root["record"]
    # The last commit stays readable: the pages that its record names, before outputs changed the ledger.
    live |= {line[2] for line in lake.json(key)["pages"]}
    done: set[str] = set()
    while key is not None:
        live.add(key)
        record = lake.json(key)
        for committed in record["intervals"]:
            name = json.dumps(committed["interval"])
            # The report of an interval's last commit; reports of replaced commits are not needed any more.
            if name not in done and committed["report"] is not None:
                live.add(committed["report"])
            done.add(name)
        key = record["parent"]
    for table in root["tables"].values():
        if table["metadata"] is not None:
            live.add(table["metadata"])
            live |= _table_keys(lake, lake.table(table["metadata"]))
    return live


def _table_keys(lake: Lake, table: StaticTable) -> set[str]:
    """Return every manifest list, manifest and file of every snapshot that the metadata lists."""
    live: set[str] = set()
    for snapshot in table.metadata.snapshots:
        live.add(lake.key(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            live.add(lake.key(manifest.manifest_path))
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            live |= {lake.key(entry.data_file.file_path) for entry in entries}
    return live


def bucket_difference(listed: Collection[str], live: Collection[str]) -> str | None:
    """Return the first live object that is missing, or the first that nothing reaches; None if there is neither."""
    garbage, missing = sorted(set(listed) - set(live)), sorted(set(live) - set(listed))
    if missing:
        return f"{len(missing)} live objects are missing, e.g. {missing[0]}"
    return f"{len(garbage)} objects that nothing reaches, e.g. {garbage[0]}" if garbage else None


def _counts(sent: Path, days: Collection[datetime]) -> Counter[tuple[str, str]]:
    by_interval = by_day(read_sent(sent))
    documents = [r.document for day in days for r in by_interval[day] if r.visible]
    return Counter((d["carrier"], d["departure"][:10]) for d in documents)


def check_folder(
    folder: Path, days: Collection[datetime], rows: Mapping[tuple[str, str], int]
) -> Iterator[Finding]:
    """Check the folder of the FileOutput: only hidden names that are needed, and files that equal the table's rows."""
    hidden = sorted(p.name for p in (folder / ".tallystick").iterdir())
    expected = sorted([*(f"{part(day)}.published" for day in days), "lock", "owner.json"])
    yield finding(
        "hidden names",
        f"in .tallystick: {len(days)} notes, the lock and the owner; nothing prepared, nothing partly written",
        None
        if hidden == expected
        else f"{sorted(set(hidden) ^ set(expected))[0]} ({len(hidden)} names in all)",
    )
    lines = [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    there = Counter({(line["carrier"], line["day"]): line["flights"] for line in lines})
    yield finding(
        "the files",
        f"{len(lines)} rows in {len(days)} files equal the table's",
        None
        if there == Counter(rows) and len(lines) == len(rows)
        else f"expected the {len(rows)} rows of the table, found {len(lines)} in files",
    )
