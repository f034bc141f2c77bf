"""The check of the example `files`: the folder as any program reads it, against what was sent and the CSV."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.checks import CheckResult, Finding, finding
from examples.checks.sent import SentRecord, by_day, part, read_sent

Lines = list[dict[str, Any]]


def compare(
    folder: Path,
    sent: Path,
    csv_archive: Path,
    *,
    late_minutes: Mapping[datetime, int],
    texts_read: Mapping[str, Sequence[str]],
) -> CheckResult:
    """Compare each day's file with what was sent.

    `late_minutes`: for each day that was run, the delay from which its job calls a flight late. `texts_read`: by file
    name, each different text that a reader read while files were replaced, in order.
    """
    days = by_day(read_sent(sent))
    expected = {
        f"{part(day)}.jsonl": _rows(days[day], minutes) for day, minutes in late_minutes.items()
    }
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    found = {name: _parsed((folder / name).read_text(encoding="utf-8")) for name in names}
    rows = sum(map(len, found.values()))
    places = [(r["_kafka_partition"], r["_offset"]) for lines in found.values() for r in lines]
    return CheckResult(
        rows=rows,
        findings=[
            finding(
                "one file a day",
                f"{len(names)} files, one per day, and no other visible name",
                None
                if names == sorted(expected)
                else f"expected {sorted(expected)}, found {names}",
            ),
            finding(
                "once",
                f"{rows:,} rows, each (partition, offset) once",
                None if len(set(places)) == len(places) else _duplicate(places),
            ),
            finding(
                "all, and equal",
                f"{rows:,} rows equal what was sent and committed; none of an aborted transaction",
                _difference(expected, found),
            ),
            _check_csv(found, csv_archive, sorted(late_minutes)),
            _check_texts_read(texts_read),
        ],
    )


def _rows(sent: Sequence[SentRecord], late_minutes: int) -> Lines:
    rows = []
    for record in sent:
        if not record.visible:
            continue
        flight = record.document
        delay = flight["dep_delay"]
        rows.append(
            {
                "carrier": flight["carrier"],
                "flight": flight["flight"],
                "origin": flight["origin"],
                "dest": flight["dest"],
                "dep_delay": delay,
                "departure": flight["departure"],
                "late": delay is not None and delay >= late_minutes,
                "_kafka_partition": record.partition,
                "_offset": record.offset,
            }
        )
    return rows


def _parsed(text: str) -> Lines:
    """Return a file's rows; raises ValueError if the last line has no end, because the file is incomplete then."""
    if text and not text.endswith("\n"):
        raise ValueError(f"the file ends in the middle of a line: ...{text[-60:]!r}")
    return [json.loads(line) for line in text.splitlines()]


def _duplicate(places: Sequence[tuple[int, int]]) -> str:
    twice = sorted(p for p in set(places) if places.count(p) > 1)
    return f"partition, offset {twice[0]} occurs {places.count(twice[0])} times ({len(twice):,} in all)"


def _difference(expected: Mapping[str, Lines], found: Mapping[str, Lines]) -> str | None:
    for name, rows in expected.items():
        there = {(r["_kafka_partition"], r["_offset"]): r for r in found.get(name, [])}
        for row in rows:
            place = (row["_kafka_partition"], row["_offset"])
            actual = there.pop(place, None)
            shown = actual and {column: actual.get(column) for column in row}
            if shown != row:
                return f"{name}, partition, offset {place}: expected {row}, found {shown}"
        if there:
            return f"{name}: {next(iter(there.values()))} was never sent, or not committed"
    return None


def _check_csv(found: Mapping[str, Lines], archive: Path, days: Sequence[datetime]) -> Finding:
    """Check that the flights are those of the CSV, by carrier, number, origin and the hour in UTC."""
    prefixes = {f"{day:%Y-%m-%d}" for day in days}
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as raw:
        lines = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        truth = sorted(
            (line["carrier"], int(line["flight"]), line["origin"], line["time_hour"][:13])
            for line in lines
            if line["time_hour"][:10] in prefixes
        )
    there = sorted(
        (row["carrier"], row["flight"], row["origin"], row["departure"][:13])
        for rows in found.values()
        for row in rows
    )
    return finding(
        "the CSV",
        f"{len(truth):,} flights of {len(prefixes)} days in the CSV, and the same flights here",
        None if truth == there else f"{len(there):,} flights here, {len(truth):,} in the CSV",
    )


def _check_texts_read(texts_read: Mapping[str, Sequence[str]]) -> Finding:
    """Check that a reader that read all the time read only complete files: the old one, then the new one."""
    problem = None
    for name, texts in texts_read.items():
        lengths = [len(_parsed(text)) for text in texts]
        if len(texts) != 2 or lengths[0] != lengths[1]:
            problem = f"{name}: expected 2 complete files, a reader read {len(texts)} different files of {lengths} rows"
    return finding(
        "atomic",
        f"a reader that read while {len(texts_read)} file was replaced read the old file, then the new one",
        problem or (None if texts_read else "no file was replaced while a reader read it"),
    )
