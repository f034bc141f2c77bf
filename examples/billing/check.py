"""Judges the example `billing`: the receiver's ledger and the lake's tables, against sums over what was sent.

All is computed anew in plain Python: which hour of which customer was closed when, what came late, and what it costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from examples.checks import Finding, Ruling, finding
from examples.checks.sent import read_sent, span, timed

HOUR_MS, PATIENCE_MS = 3_600_000, 900_000
INVOICES, CORRECTIONS = "invoices", "corrections"
# Events and cents of an hour (its beginning in ms) of a customer.
Hour = tuple[int, str]
Sums = dict[Hour, tuple[int, int]]
Tariff = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """One line of the receiver's ledger: a call that it acted on."""

    account: str
    key: str
    row: Mapping[str, Any]
    row_key: str
    operation: str
    interval: str
    generation: int
    corrects: int | None

    @property
    def hour(self) -> Hour:
        """Which hour of which customer it is about."""
        return _ms(datetime.fromisoformat(self.row["window_start"])), self.row["customer"]

    @property
    def sums(self) -> tuple[int, int]:
        """Events and cents."""
        return self.row["events"], self.row["cents"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What is right: invoices, and what came late by interval; `outside` counts events from the future."""

    invoices: Sums
    late: Mapping[str, Sums]
    events: int
    cents: int
    outside: int

    @property
    def corrections(self) -> dict[tuple[str, Hour], tuple[int, int]]:
        """What came late, in one mapping."""
        return {
            (name, hour): sums for name, some in self.late.items() for hour, sums in some.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The lake's rows."""

    invoices: Sequence[Mapping[str, Any]]
    corrections: Sequence[Mapping[str, Any]]
    outside: Sequence[Mapping[str, Any]]


def judge(
    postings: Sequence[Posting],
    tables: Tables,
    sent: Path,
    *,
    edges: Sequence[datetime],
    tariff: Tariff,
    before: Tariff,
    priced_anew: int,
    silent: Sequence[tuple[str, int]],
) -> Ruling:
    """Compare the ledger and the tables with what was sent.

    `edges`: where the log was cut. The first `priced_anew` intervals were played by the tariff `before`, and replaced by
    one with `tariff`; the others knew no other one. `silent`: what was replayed, and how many lines came of it.
    """
    edges_ms = [_ms(edge) for edge in edges]
    bill = reckon(sent, edges_ms, tariff)
    old = reckon(sent, edges_ms[: priced_anew + 1], before)
    new = reckon(sent, edges_ms[: priced_anew + 1], tariff)
    held, misfit = apply(postings)
    invoices = {hour: sums for (account, _, hour), sums in held.items() if account == INVOICES}
    late = {(i, hour): sums for (account, i, hour), sums in held.items() if account == CORRECTIONS}
    changed = _changed(old.invoices, new.invoices) + _changed(old.corrections, new.corrections)
    told = Counter(p.operation for p in postings)
    return Ruling(
        rows=len(postings),
        findings=[
            *_judge_once(postings, invoices),
            finding(
                "invoices",
                f"{len(invoices):,} closed hours of customers, each with what was sent in time",
                _difference(bill.invoices, invoices),
            ),
            finding(
                "late",
                f"{len(late):,} rows of their own for what came after its hour was closed",
                _difference(bill.corrections, late) or (None if late else "nothing came late"),
            ),
            finding(
                "priced anew",
                f"{told['correction']:,} lines correct one that was there: those that the new tariff changes",
                misfit
                or (None if changed else "the new tariff changes nothing")
                or _expected("corrections", told["correction"], changed)
                or _expected("retractions", told["retraction"], 0),
            ),
            _judge_sum(bill, held),
            *_judge_tables(tables, invoices, late, bill),
            finding(
                "silence",
                ", ".join(f"{what}: {count} lines" for what, count in silent),
                next((f"{what}: {count} lines came" for what, count in silent if count), None)
                if silent
                else "nothing was replayed",
            ),
        ],
    )


# ---------------------------------------------------------------- what is right


def reckon(sent: Path, edges_ms: Sequence[int], tariff: Tariff) -> Bill:
    """Invoices and late rows of the intervals between the edges; nothing is known of what came before the first."""
    invoices: Sums = {}
    late: dict[str, Sums] = {}
    events = cents = outside = 0
    last = edges_ms[-1]
    for log_ms, one in timed(read_sent(sent)):
        if not one.counts or not edges_ms[0] <= log_ms < last:
            continue
        told = one.document
        used_ms = _ms(datetime.fromisoformat(told["used_at"]))
        if used_ms > log_ms:
            outside += 1
            continue
        start = used_ms - used_ms % HOUR_MS
        due = start + HOUR_MS + PATIENCE_MS
        price = told["units"] * tariff[told["service"]]
        if due <= last:  # its hour is closed by the end of what was played, whenever it came
            events, cents = events + 1, cents + price
        if due <= log_ms:
            _add(late.setdefault(_interval(log_ms, edges_ms), {}), (start, told["customer"]), price)
        elif due <= last:
            _add(invoices, (start, told["customer"]), price)
    return Bill(invoices=invoices, late=late, events=events, cents=cents, outside=outside)


def _add(sums: Sums, hour: Hour, price: int) -> None:
    events, cents = sums.get(hour, (0, 0))
    sums[hour] = (events + 1, cents + price)


def _interval(log_ms: int, edges_ms: Sequence[int]) -> str:
    at = max(n for n, edge in enumerate(edges_ms) if edge <= log_ms)
    start, end = (datetime.fromtimestamp(edges_ms[n] / 1000, UTC) for n in (at, at + 1))
    return span(start, end)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


# ---------------------------------------------------------------- what the receiver holds


def apply(
    postings: Sequence[Posting],
) -> tuple[dict[tuple[str, str, Hour], tuple[int, int]], str | None]:
    """What the ledger says in the end, by account, interval and hour; the first line that does not fit."""
    held: dict[str, Posting] = {}
    problem: str | None = None
    for one in postings:
        there = held.get(one.row_key)
        if (one.operation == "row") is not (there is None):
            problem = problem or f"a {one.operation} of {_told(one)} meets {there and _told(there)}"
        if one.operation == "retraction":
            held.pop(one.row_key, None)
        else:
            held[one.row_key] = one
    return {(p.account, p.interval, p.hour): p.sums for p in held.values()}, problem


def _told(one: Posting) -> str:
    start, customer = one.hour
    return f"{one.account} {_at((start, customer))}: {one.sums[0]} events, {one.sums[1]} cents"


def _at(hour: Hour) -> str:
    return f"{datetime.fromtimestamp(hour[0] / 1000, UTC):%H:%M} {hour[1]}"


def _judge_once(postings: Sequence[Posting], invoices: Mapping[Hour, Any]) -> Iterator[Finding]:
    keys = Counter(p.key for p in postings)
    billed = Counter(p.hour for p in postings if p.account == INVOICES and p.operation == "row")
    yield finding(
        "once",
        f"{len(postings):,} lines, each idempotency key once",
        next((f"{n} lines have the key {key}" for key, n in keys.items() if n > 1), None),
    )
    yield finding(
        "billed once",
        f"{len(billed):,} first invoices, one per customer and hour",
        next((f"{_at(hour)}: {n} first invoices" for hour, n in billed.items() if n > 1), None)
        or _expected("hours with an invoice", len(invoices), len(billed)),
    )


def _judge_sum(bill: Bill, held: Mapping[Any, tuple[int, int]]) -> Finding:
    """The whole: nothing of invoices, lateness or intervals is needed to know it."""
    there = tuple(sum(sums[n] for sums in held.values()) for n in (0, 1))
    return finding(
        "the sum",
        f"invoices and corrections: {bill.events:,} events, {bill.cents:,} cents, as was sent of closed hours",
        None
        if there == (bill.events, bill.cents)
        else f"{there[0]:,} events, {there[1]:,} cents; sent were {bill.events:,} and {bill.cents:,}",
    )


def _judge_tables(
    tables: Tables, invoices: Sums, late: Mapping[tuple[str, Hour], tuple[int, int]], bill: Bill
) -> Iterator[Finding]:
    rows = Counter(_row(one) for one in tables.invoices)
    more = Counter(_row(one) for one in tables.corrections)
    yield finding(
        "the tables",
        f"{len(tables.invoices):,} and {len(tables.corrections):,} rows equal the receiver's",
        None
        if rows == Counter(invoices.items())
        and more == Counter((hour, sums) for (_, hour), sums in late.items())
        else f"{len(tables.invoices):,} invoices and {len(tables.corrections):,} corrections in the lake; "
        f"the receiver holds {len(invoices):,} and {len(late):,}, or others",
    )
    yield finding(
        "outside",
        f"{len(tables.outside):,} events from the future are kept apart, and not billed",
        _expected("events in the table `outside`", len(tables.outside), bill.outside),
    )


def _row(row: Mapping[str, Any]) -> tuple[Hour, tuple[int, int]]:
    return (_ms(row["window_start"]), row["customer"]), (row["events"], row["cents"])


def _changed(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> int:
    return sum(old[at] != new[at] for at in old)


def _expected(what: str, found: int, right: int) -> str | None:
    return None if found == right else f"{found:,} {what}; {right:,} would be right"


def _difference(right: Mapping[Any, Any], found: Mapping[Any, Any]) -> str | None:
    for at in sorted({*right, *found}):
        if right.get(at) != found.get(at):
            hour = at if isinstance(at[0], int) else at[1]
            return f"{_at(hour)}: (events, cents) {found.get(at)}; sent were {right.get(at)}"
    return None
