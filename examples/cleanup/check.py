"""Judges the example `cleanup`: bucket and folder hold what is live and nothing else; the table what was committed.

What is live is computed otherwise: from root.json down, by boto3 and PyIceberg.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyiceberg.table import StaticTable

from examples.checks import Finding, Ruling, finding
from examples.checks.lake import Lake
from examples.checks.sent import by_day, part, read_sent

TABLE = "per_airline"


def judge(
    lake: Lake,
    folder: Path,
    sent: Path,
    *,
    days: Collection[datetime],
    left_before: Mapping[str, int],
) -> Ruling:
    """Compare bucket, table and folder with what is live and what was sent.

    `days`: those that were played. `left_before`: what was counted before the cleaning, by its kind: where nothing had
    been left behind, nothing is shown.
    """
    root = lake.json("root.json")
    listed, live = lake.listed(), live_keys(lake, root)
    rows = lake.table(root["tables"][TABLE]["metadata"]).scan().to_arrow().to_pylist()
    expected = _counts(sent, days)
    found = Counter({(r["carrier"], str(r["day"])): r["flights"] for r in rows})
    none = [kind for kind, count in left_before.items() if not count]
    told = ", ".join(f"{count} {kind}" for kind, count in left_before.items())
    return Ruling(
        rows=sum(found.values()),
        findings=[
            finding(
                "left behind",
                f"before: {told}",
                f"there was no {none[0]} to clean up" if none else None,
            ),
            finding(
                "the bucket",
                f"{len(listed)} objects, each reached from root.json, and every one that is",
                bucket_difference(listed, live),
            ),
            finding(
                "the table",
                f"{len(found)} airlines and days with {sum(found.values()):,} flights: those of committed "
                "transactions, none of aborted ones or of the one whose producer died",
                None
                if found == expected and len(rows) == len(found)
                else f"{len(rows)} rows, {sum(found.values())} flights; sent and committed were {sum(expected.values())}",
            ),
            *judge_folder(folder, days, found),
        ],
    )


def live_keys(lake: Lake, root: Mapping[str, Any]) -> set[str]:
    """All that root.json reaches: ledger pages, the chain of records, plans and reports, tables to their last file."""
    live = {"root.json"}
    for line in root["pages"]:
        live.add(line[2])
        for entry in lake.json(line[2])["entries"]:
            live |= {entry[slot]["plan"] for slot in ("granted", "committed") if entry[slot]}
    key = root["record"]
    # The newest commit stays readable as it was, before outputs were noted on the ledger's pages.
    live |= {line[2] for line in lake.json(key)["pages"]}
    newest: set[str] = set()
    while key is not None:
        live.add(key)
        record = lake.json(key)
        for one in record["intervals"]:
            name = json.dumps(one["interval"])
            # The report of an interval's newest commit; those of replaced ones are needed no more.
            if name not in newest and one["report"] is not None:
                live.add(one["report"])
            newest.add(name)
        key = record["parent"]
    for told in root["tables"].values():
        if told["metadata"] is not None:
            live.add(told["metadata"])
            live |= _of_table(lake, lake.table(told["metadata"]))
    return live


def _of_table(lake: Lake, table: StaticTable) -> set[str]:
    """Every manifest list, manifest and file of every snapshot that the metadata lists."""
    live: set[str] = set()
    for snapshot in table.metadata.snapshots:
        live.add(lake.key(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            live.add(lake.key(manifest.manifest_path))
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            live |= {lake.key(entry.data_file.file_path) for entry in entries}
    return live


def bucket_difference(listed: Collection[str], live: Collection[str]) -> str | None:
    """The first object that nothing reaches, or that is reached and gone; None where there is neither."""
    garbage, gone = sorted(set(listed) - set(live)), sorted(set(live) - set(listed))
    if gone:
        return f"{len(gone)} live objects are gone, e.g. {gone[0]}"
    return f"{len(garbage)} objects that nothing reaches, e.g. {garbage[0]}" if garbage else None


def _counts(sent: Path, days: Collection[datetime]) -> Counter[tuple[str, str]]:
    played = by_day(read_sent(sent))
    documents = [one.document for day in days for one in played[day] if one.counts]
    return Counter((d["carrier"], d["departure"][:10]) for d in documents)


def judge_folder(
    folder: Path, days: Collection[datetime], rows: Mapping[tuple[str, str], int]
) -> Iterator[Finding]:
    """The folder of the FileOutput: hidden names that somebody needs, and files that equal the table's rows."""
    hidden = sorted(p.name for p in (folder / ".tallystick").iterdir())
    expected = sorted([*(f"{part(day)}.published" for day in days), "lock", "owner.json"])
    yield finding(
        "hidden names",
        f"below .tallystick: {len(days)} notes, the lock and whose it is; nothing prepared, nothing half written",
        None
        if hidden == expected
        else f"{sorted(set(hidden) ^ set(expected))[0]} (and {len(hidden)} names in all)",
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
        else f"{len(lines)} rows in files, {len(rows)} in the table",
    )
