"""The check of the example `average`: all versions of both tables, and the folder, against averages in plain Python.

Versions are read from root.json and the chain of commit records, by boto3 and PyIceberg.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from examples.checks import CheckResult, Finding, finding
from examples.checks.lake import Lake
from examples.checks.sent import by_day, part, read_sent

AVERAGES, PARTS = "averages", "sensor_parts"
# The correction of the changed job: the readings of one sensor, by half a degree.
WARM, TOO_WARM = "s3", Decimal("0.50")
_DAY = timedelta(days=1)
_PLACES = Decimal("0.000001")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A number of readings, and their sum."""

    readings: int
    total: Decimal

    def __add__(self, other: Sum) -> Sum:
        return Sum(readings=self.readings + other.readings, total=self.total + other.total)


Sums = Mapping[str, Sum]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The lake after one swap: the days that it committed, and the rows of both tables that its record names."""

    version: int
    days: tuple[datetime, ...]
    averages: Sequence[Row]
    parts: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleStatus:
    """The days that `tally status` listed as stale when the root had this version."""

    version: int
    stale: frozenset[datetime]


def versions(lake: Lake) -> list[Version]:
    """Return every version that committed something, in order."""
    return [
        Version(
            version=record["version"],
            days=tuple(datetime.fromisoformat(i["interval"][0]) for i in record["intervals"]),
            averages=lake.rows_of(record["tables"][AVERAGES]["metadata"]),
            parts=lake.rows_of(record["tables"][PARTS]["metadata"]),
        )
        for record in lake.records()
    ]


def compare(
    found: Sequence[Version],
    folder: Path,
    sent: Path,
    *,
    days: Collection[datetime],
    calibrated: bool,
    statuses: Sequence[StaleStatus],
) -> CheckResult:
    """Compare tables and folder with one pass over what was sent, and each version's averages with its own parts.

    `days`: the days that were run. `calibrated`: True if the last job corrects a sensor. `statuses`: what was listed as
    stale, in order.
    """
    last = found[-1]
    own = {day: rows for day, rows in _own(sent, calibrated=calibrated).items() if day in days}
    readings = sum(s.readings for sums in own.values() for s in sums.values())
    return CheckResult(
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
                next((p for version in found if (p := inconsistency(version)) is not None), None),
            ),
            _check_stale(found, statuses),
            _check_folder(folder, days, last.averages),
        ],
    )


def inconsistency(version: Version) -> str | None:
    """Return the first day that a version committed whose averages are not the sums of its parts."""
    for day in version.days:
        if day in stale_by_rows(version):
            return f"version {version.version}: the averages of {day:%d %B} are not the sums of its state"
    return None


def stale_by_rows(version: Version) -> frozenset[datetime]:
    """Return the days whose averages are not the sums of this version's parts."""
    found: dict[datetime, list[Row]] = {}
    for row in version.averages:
        found.setdefault(row["as_of"], []).append(_plain(row))
    own: dict[datetime, dict[str, Sum]] = {}
    for row in version.parts:
        own.setdefault(row["as_of"] - _DAY, {})[row["sensor"]] = _sum(row)
    expected: dict[datetime, list[Row]] = {}
    for row in _expected(_running(own)):
        expected.setdefault(row["as_of"], []).append(row)
    ends = {*found, *expected}
    return frozenset(
        end - _DAY
        for end in ends
        if sorted(found.get(end, []), key=_name) != sorted(expected.get(end, []), key=_name)
    )


def _check_stale(found: Sequence[Version], statuses: Sequence[StaleStatus]) -> Finding:
    """Compare each status with the rows of its version."""
    problem = None
    for status in statuses:
        version = [v for v in found if v.version <= status.version][-1]
        by_rows = stale_by_rows(version)
        if by_rows != status.stale:
            problem = (
                f"version {status.version}: expected {_shown(by_rows)} (by its rows), "
                f"found {_shown(status.stale)}"
            )
    if problem is None and not any(status.stale for status in statuses):
        problem = "nothing was ever stale: the run shows nothing"
    if problem is None and statuses[-1].stale:
        problem = f"{_shown(statuses[-1].stale)} is stale at the end"
    counts = ", ".join(str(len(status.stale)) for status in statuses)
    return finding(
        "stale", f"days that tally status lists as stale: {counts}; equal to the rows", problem
    )


def _check_folder(folder: Path, days: Collection[datetime], averages: Sequence[Row]) -> Finding:
    """Compare the files of the FileOutput with the newest version."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    expected = sorted(f"{part(day)}.jsonl" for day in days)
    lines = [
        _plain(json.loads(line, parse_float=Decimal))
        for name in names
        for line in (folder / name).read_text(encoding="utf-8").splitlines()
    ]
    problem = None
    if names != expected:
        problem = f"files: expected {expected}, found {names}"
    elif sorted(lines, key=_name) != sorted(map(_plain, averages), key=_name):
        problem = f"the {len(lines)} rows in files differ from the {len(averages)} of the table"
    return finding(
        "the folder", f"{len(lines)} rows in {len(names)} files equal the table's", problem
    )


# ---------------------------------------------------------------- averages in plain Python


def _own(sent: Path, *, calibrated: bool) -> dict[datetime, dict[str, Sum]]:
    """Return the sums of each day's own readings, by sensor."""
    own: dict[datetime, dict[str, Sum]] = {}
    for day, records in by_day(read_sent(sent)).items():
        sums = own.setdefault(day, {})
        for record in records:
            if not record.visible:
                continue
            reading = record.document
            sensor, value = reading["sensor"], Decimal(reading["celsius"])
            if calibrated and sensor == WARM:
                value -= TOO_WARM
            more = Sum(readings=1, total=value)
            sums[sensor] = sums[sensor] + more if sensor in sums else more
    return own


def _running(own: Mapping[datetime, Sums]) -> dict[datetime, Sums]:
    """Return the sums of all readings up to each day's end: one pass in the order of time."""
    running: dict[datetime, Sums] = {}
    sums: dict[str, Sum] = {}
    for day in sorted(own):
        for sensor, more in own[day].items():
            sums[sensor] = sums[sensor] + more if sensor in sums else more
        running[day] = dict(sums)
    return running


def _expected(days: Mapping[datetime, Sums]) -> Iterator[Row]:
    """Yield the rows of these sums, with their averages."""
    for day, sums in days.items():
        for sensor, own in sums.items():
            yield {
                "sensor": sensor,
                "as_of": day + _DAY,
                "readings": own.readings,
                "total": own.total,
                "average": (own.total / own.readings).quantize(_PLACES, ROUND_HALF_UP),
            }


def _plain(row: Row) -> Row:
    """Return a row of the table in comparable form, also if decimals and instants are texts, as in a file."""
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
    """Return the first difference of a table from the expected rows."""
    there = {_name(row): row for row in found}
    if len(there) != len(found):
        return f"{table}: {len(found)} rows for {len(there)} sensors and days"
    for row in expected:
        actual = there.pop(_name(row), None)
        shown = actual and {column: actual[column] for column in row if column in actual}
        needed = {column: row[column] for column in shown or row}
        if shown != needed:
            return f"{table}: expected {_text(needed)}; found {_text(shown)}"
    return f"{table}: unexpected {_text(next(iter(there.values())))}" if there else None


def _text(row: Row | None) -> str:
    return "no row" if row is None else ", ".join(f"{name} {value}" for name, value in row.items())


def _shown(days: Collection[datetime]) -> str:
    return ", ".join(f"{day:%d %B}" for day in sorted(days)) or "nothing"
