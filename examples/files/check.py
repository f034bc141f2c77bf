"""Judges the example `files`: the folder as any program sees it, against the records that were sent and the CSV."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.checks import Finding, Ruling, finding
from examples.checks.sent import Sent, by_day, part, read_sent

Lines = list[dict[str, Any]]


def judge(
    folder: Path,
    sent: Path,
    csv_archive: Path,
    *,
    late_minutes: Mapping[datetime, int],
    seen: Mapping[str, Sequence[str]],
) -> Ruling:
    """Compare each day's file with what was sent.

    `late_minutes`: for each day that was played, from which delay on its job calls a flight late. `seen`: by a file's
    name, each different text that a reader found there while files were replaced, in its order.
    """
    days = by_day(read_sent(sent))
    expected = {
        f"{part(day)}.jsonl": _rows(days[day], minutes) for day, minutes in late_minutes.items()
    }
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    found = {name: _parsed((folder / name).read_text(encoding="utf-8")) for name in names}
    rows = sum(map(len, found.values()))
    places = [(r["_kafka_partition"], r["_offset"]) for lines in found.values() for r in lines]
    return Ruling(
        rows=rows,
        findings=[
            finding(
                "one file a day",
                f"{len(names)} files, one per day, and no other visible name",
                None if names == sorted(expected) else f"{names}; expected {sorted(expected)}",
            ),
            finding(
                "once",
                f"{rows:,} rows, each (partition, offset) once",
                None if len(set(places)) == len(places) else _twice(places),
            ),
            finding(
                "all, and equal",
                f"{rows:,} rows equal what was sent and committed; none of an aborted transaction",
                _difference(expected, found),
            ),
            _judge_csv(found, csv_archive, sorted(late_minutes)),
            _judge_seen(seen),
        ],
    )


def _rows(sent: Sequence[Sent], late_minutes: int) -> Lines:
    rows = []
    for one in sent:
        if not one.counts:
            continue
        flight = one.document
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
                "_kafka_partition": one.partition,
                "_offset": one.offset,
            }
        )
    return rows


def _parsed(text: str) -> Lines:
    """A file's rows; a last line without its end is half a file."""
    if text and not text.endswith("\n"):
        raise ValueError(f"the file ends in the middle of a line: ...{text[-60:]!r}")
    return [json.loads(line) for line in text.splitlines()]


def _twice(places: Sequence[tuple[int, int]]) -> str:
    again = sorted(p for p in set(places) if places.count(p) > 1)
    return f"partition, offset {again[0]} stands there {places.count(again[0])} times ({len(again):,} in all)"


def _difference(expected: Mapping[str, Lines], found: Mapping[str, Lines]) -> str | None:
    for name, wanted in expected.items():
        there = {(r["_kafka_partition"], r["_offset"]): r for r in found.get(name, [])}
        for row in wanted:
            place = (row["_kafka_partition"], row["_offset"])
            have = there.pop(place, None)
            shown = have and {column: have.get(column) for column in row}
            if shown != row:
                return f"{name}, partition, offset {place}: {shown}; sent was {row}"
        if there:
            return f"{name}: {next(iter(there.values()))} was never sent, or not committed"
    return None


def _judge_csv(found: Mapping[str, Lines], archive: Path, days: Sequence[datetime]) -> Finding:
    """The same flights as in the package's CSV, told by carrier, number, origin and the hour in UTC."""
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
        f"{len(truth):,} flights of {len(prefixes)} days in the CSV, and the same ones here",
        None if truth == there else f"{len(there):,} flights here, {len(truth):,} in the CSV",
    )


def _judge_seen(seen: Mapping[str, Sequence[str]]) -> Finding:
    """A reader that looked all the time saw whole files only: the old one, then the new one."""
    problem = None
    for name, texts in seen.items():
        lengths = [len(_parsed(text)) for text in texts]
        if len(texts) != 2 or lengths[0] != lengths[1]:
            problem = f"{name}: a reader saw {len(texts)} different files of {lengths} rows"
    return finding(
        "atomic",
        f"a reader that looked while {len(seen)} file was replaced saw the old one, then the new one",
        problem or (None if seen else "no file was replaced before a reader's eyes"),
    )
