"""Judges the example `average`: all versions of both tables, and the folder, against averages in plain Python.

Versions are read from root.json and the chain of commit records down, by boto3 and PyIceberg.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from examples.checks import Finding, Ruling, finding
from examples.checks.lake import Lake
from examples.checks.sent import by_day, part, read_sent

AVERAGES, PARTS = "averages", "sensor_parts"
# What the changed job corrects: the reading of one sensor, by half a degree.
WARM, TOO_WARM = "s3", Decimal("0.50")
_DAY = timedelta(days=1)
_PLACES = Decimal("0.000001")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """How many readings, and what they add up to."""

    readings: int
    total: Decimal

    def __add__(self, other: Sum) -> Sum:
        return Sum(readings=self.readings + other.readings, total=self.total + other.total)


Sums = Mapping[str, Sum]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What one swap left: the days that it committed, and the rows of both tables as its record names them."""

    version: int
    days: tuple[datetime, ...]
    averages: Sequence[Row]
    parts: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What `tally status` called stale when the root had this version."""

    version: int
    stale: frozenset[datetime]


def versions(lake: Lake) -> list[Version]:
    """Every version that committed something, the first one first."""
    return [
        Version(
            version=record["version"],
            days=tuple(datetime.fromisoformat(one["interval"][0]) for one in record["intervals"]),
            averages=lake.rows_of(record["tables"][AVERAGES]["metadata"]),
            parts=lake.rows_of(record["tables"][PARTS]["metadata"]),
        )
        for record in lake.records()
    ]


def judge(
    found: Sequence[Version],
    folder: Path,
    sent: Path,
    *,
    days: Collection[datetime],
    calibrated: bool,
    told: Sequence[Told],
) -> Ruling:
    """Compare tables and folder with one pass over what was sent, and each version's averages with its own parts.

    `days`: those that were played. `calibrated`: whether the last code corrects a sensor. `told`: what was called stale,
    in its order.
    """
    last = found[-1]
    own = {day: rows for day, rows in _own(sent, calibrated=calibrated).items() if day in days}
    readings = sum(one.readings for sums in own.values() for one in sums.values())
    return Ruling(
        rows=len(last.averages),
        findings=[
            finding(
                "the averages",
                f"{len(last.averages)} averages of {readings:,} readings equal one pass over what was sent",
                _difference(AVERAGES, _expected(_running(own)), last.averages),
            ),
            finding(
                "the state",
                f"{len(last.parts)} sums, each of its own day's readings alone",
                _difference(PARTS, _expected(own), last.parts),
            ),
            finding(
                "same swap",
                f"{len(found)} versions: in each, the averages that it committed are the sums of its own state",
                next((p for version in found if (p := torn(version)) is not None), None),
            ),
            _judge_stale(found, told),
            _judge_folder(folder, days, last.averages),
        ],
    )


def torn(version: Version) -> str | None:
    """The first day of those that a version committed whose averages are not the sums of this version's parts."""
    for day in version.days:
        if day in stale_by_rows(version):
            return f"version {version.version}: the averages of {day:%d %B} are not the sums of the state beside them"
    return None


def stale_by_rows(version: Version) -> frozenset[datetime]:
    """The days whose averages are not what this version's parts add up to."""
    there: dict[datetime, list[Row]] = {}
    for row in version.averages:
        there.setdefault(row["as_of"], []).append(_plain(row))
    own: dict[datetime, dict[str, Sum]] = {}
    for row in version.parts:
        own.setdefault(row["as_of"] - _DAY, {})[row["sensor"]] = _sum(row)
    wanted: dict[datetime, list[Row]] = {}
    for row in _expected(_running(own)):
        wanted.setdefault(row["as_of"], []).append(row)
    ends = {*there, *wanted}
    return frozenset(
        end - _DAY
        for end in ends
        if sorted(there.get(end, []), key=_name) != sorted(wanted.get(end, []), key=_name)
    )


def _judge_stale(found: Sequence[Version], told: Sequence[Told]) -> Finding:
    """What was told, against what the rows of that version show."""
    problem = None
    for one in told:
        seen = [version for version in found if version.version <= one.version][-1]
        rows = stale_by_rows(seen)
        if rows != one.stale:
            problem = f"version {one.version}: told was {_shown(one.stale)}; by its rows it is {_shown(rows)}"
    if problem is None and not any(one.stale for one in told):
        problem = "nothing ever was stale: nothing is shown"
    if problem is None and told[-1].stale:
        problem = f"{_shown(told[-1].stale)} is stale in the end"
    counts = ", ".join(str(len(one.stale)) for one in told)
    return finding(
        "stale", f"days that tally status called stale: {counts}; the rows say the same", problem
    )


def _judge_folder(folder: Path, days: Collection[datetime], averages: Sequence[Row]) -> Finding:
    """The files that a FileOutput left, against the newest version."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    expected = sorted(f"{part(day)}.jsonl" for day in days)
    lines = [
        _plain(json.loads(line, parse_float=Decimal))
        for name in names
        for line in (folder / name).read_text(encoding="utf-8").splitlines()
    ]
    problem = None
    if names != expected:
        problem = f"the files are {names}; expected {expected}"
    elif sorted(lines, key=_name) != sorted(map(_plain, averages), key=_name):
        problem = f"{len(lines)} rows in files differ from the {len(averages)} of the table"
    return finding(
        "the folder", f"{len(lines)} rows in {len(names)} files equal the table's", problem
    )


# ---------------------------------------------------------------- averages in plain Python


def _own(sent: Path, *, calibrated: bool) -> dict[datetime, dict[str, Sum]]:
    """What each day's own readings add up to, by sensor."""
    found: dict[datetime, dict[str, Sum]] = {}
    for day, records in by_day(read_sent(sent)).items():
        sums = found.setdefault(day, {})
        for one in records:
            if not one.counts:
                continue
            sensor, value = one.document["sensor"], Decimal(one.document["celsius"])
            if calibrated and sensor == WARM:
                value -= TOO_WARM
            more = Sum(readings=1, total=value)
            sums[sensor] = sums[sensor] + more if sensor in sums else more
    return found


def _running(own: Mapping[datetime, Sums]) -> dict[datetime, Sums]:
    """What all readings up to each day's end add up to: one pass in the order of time."""
    found: dict[datetime, Sums] = {}
    sums: dict[str, Sum] = {}
    for day in sorted(own):
        for sensor, more in own[day].items():
            sums[sensor] = sums[sensor] + more if sensor in sums else more
        found[day] = dict(sums)
    return found


def _expected(days: Mapping[datetime, Sums]) -> Iterator[Row]:
    """The rows that stand for these sums, with their averages."""
    for day, sums in days.items():
        for sensor, one in sums.items():
            yield {
                "sensor": sensor,
                "as_of": day + _DAY,
                "readings": one.readings,
                "total": one.total,
                "average": (one.total / one.readings).quantize(_PLACES, ROUND_HALF_UP),
            }


def _plain(row: Row) -> Row:
    """A row of the table, or of a file, where decimals and instants are texts."""
    as_of = row["as_of"]
    if isinstance(as_of, str):
        as_of = datetime.fromisoformat(as_of)
    return {
        "sensor": row["sensor"],
        "as_of": as_of.astimezone(UTC),
        "readings": row["readings"],
        "total": Decimal(row["total"]),
        "average": Decimal(row["average"]),
    }


def _sum(row: Row) -> Sum:
    return Sum(readings=row["readings"], total=row["total"])


def _name(row: Row) -> tuple[datetime, str]:
    return row["as_of"], row["sensor"]


def _difference(table: str, expected: Iterator[Row], found: Sequence[Row]) -> str | None:
    """The first row of a table that is not as it should be."""
    there = {_name(row): row for row in found}
    if len(there) != len(found):
        return f"{table}: {len(found)} rows for {len(there)} sensors and days"
    for row in expected:
        have = there.pop(_name(row), None)
        shown = have and {column: have[column] for column in row if column in have}
        wanted = {column: row[column] for column in shown or row}
        if shown != wanted:
            return f"{table}: {_told(shown)}; one pass gives {_told(wanted)}"
    return f"{table}: {_told(next(iter(there.values())))} stands for nothing" if there else None


def _told(row: Row | None) -> str:
    return "no row" if row is None else ", ".join(f"{name} {value}" for name, value in row.items())


def _shown(days: Collection[datetime]) -> str:
    return ", ".join(f"{day:%d %B}" for day in sorted(days)) or "nothing"
