"""The check of the example `billing`: the receiver's ledger and the lake's tables, against sums over what was sent.

The reference is computed in plain Python: when each customer's hour was closed, what arrived late, and the price.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from examples.checks import CheckResult, Finding, finding
from examples.checks.sent import read_sent, span, timed

HOUR_MS, PATIENCE_MS = 3_600_000, 900_000
INVOICES, CORRECTIONS = "invoices", "corrections"
# An hour (its start in ms) of a customer; `Sums` has its events and cents.
Hour = tuple[int, str]
Sums = dict[Hour, tuple[int, int]]
Tariff = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """One line of the receiver's ledger."""

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
        """The hour and the customer of this line."""
        return _ms(datetime.fromisoformat(self.row["window_start"])), self.row["customer"]

    @property
    def sums(self) -> tuple[int, int]:
        """Events and cents."""
        return self.row["events"], self.row["cents"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The reference: invoices, and late usage by interval; `outside` counts events from the future."""

    invoices: Sums
    late: Mapping[str, Sums]
    events: int
    cents: int
    outside: int

    @property
    def corrections(self) -> dict[tuple[str, Hour], tuple[int, int]]:
        """Late usage by interval and hour."""
        return {
            (name, hour): sums for name, hours in self.late.items() for hour, sums in hours.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The lake's rows."""

    invoices: Sequence[Mapping[str, Any]]
    corrections: Sequence[Mapping[str, Any]]
    outside: Sequence[Mapping[str, Any]]


def compare(
    postings: Sequence[Posting],
    tables: Tables,
    sent: Path,
    *,
    boundaries: Sequence[datetime],
    tariff: Tariff,
    old_tariff: Tariff,
    repriced: int,
    replays: Sequence[tuple[str, int]],
) -> CheckResult:
    """Compare the ledger and the tables with what was sent.

    `boundaries`: those of the intervals that were run. The first `repriced` intervals were run with `old_tariff`, and
    replaced with `tariff`; the others were run with `tariff`. `replays`: each replay, and the number of its lines.
    """
    boundaries_ms = [_ms(at) for at in boundaries]
    bill = compute_bill(sent, boundaries_ms, tariff)
    old = compute_bill(sent, boundaries_ms[: repriced + 1], old_tariff)
    new = compute_bill(sent, boundaries_ms[: repriced + 1], tariff)
    stored, mismatch = apply(postings)
    invoices = {hour: sums for (account, _, hour), sums in stored.items() if account == INVOICES}
    late = {
        (interval, hour): sums
        for (account, interval, hour), sums in stored.items()
        if account == CORRECTIONS
    }
    changed = _changed(old.invoices, new.invoices) + _changed(old.corrections, new.corrections)
    operations = Counter(p.operation for p in postings)
    return CheckResult(
        rows=len(postings),
        findings=[
            *_check_once(postings, invoices),
            finding(
                "invoices",
                f"{len(invoices):,} closed hours of customers, each with everything that arrived in time",
                _difference(bill.invoices, invoices),
            ),
            finding(
                "late",
                f"{len(late):,} separate rows for what arrived after its hour was closed",
                _difference(bill.corrections, late) or (None if late else "nothing arrived late"),
            ),
            finding(
                "repriced",
                f"{operations['correction']:,} lines correct an earlier line: those that the new tariff changes",
                mismatch
                or (None if changed else "the new tariff changes nothing")
                or _expected("corrections", operations["correction"], changed)
                or _expected("retractions", operations["retraction"], 0),
            ),
            _check_sum(bill, stored),
            *_check_tables(tables, invoices, late, bill),
            finding(
                "replays",
                ", ".join(f"{what}: {count} lines" for what, count in replays),
                next((f"{what}: {count} lines were sent" for what, count in replays if count), None)
                if replays
                else "nothing was replayed",
            ),
        ],
    )


# ---------------------------------------------------------------- the reference


def compute_bill(sent: Path, boundaries_ms: Sequence[int], tariff: Tariff) -> Bill:
    """Return invoices and late rows of the intervals between the boundaries; records before the first are ignored."""
    invoices: Sums = {}
    late: dict[str, Sums] = {}
    events = cents = outside = 0
    last = boundaries_ms[-1]
    for log_ms, record in timed(read_sent(sent)):
        if not record.visible or not boundaries_ms[0] <= log_ms < last:
            continue
        usage = record.document
        used_ms = _ms(datetime.fromisoformat(usage["used_at"]))
        if used_ms > log_ms:
            outside += 1
            continue
        start = used_ms - used_ms % HOUR_MS
        due = start + HOUR_MS + PATIENCE_MS
        price = usage["units"] * tariff[usage["service"]]
        hour = (start, usage["customer"])
        if due <= last:  # its hour is closed by the last boundary, in time or late
            events, cents = events + 1, cents + price
        if due <= log_ms:
            _add(late.setdefault(_interval(log_ms, boundaries_ms), {}), hour, price)
        elif due <= last:
            _add(invoices, hour, price)
    return Bill(invoices=invoices, late=late, events=events, cents=cents, outside=outside)


def _add(sums: Sums, hour: Hour, price: int) -> None:
    events, cents = sums.get(hour, (0, 0))
    sums[hour] = (events + 1, cents + price)


def _interval(log_ms: int, boundaries_ms: Sequence[int]) -> str:
    at = max(n for n, boundary in enumerate(boundaries_ms) if boundary <= log_ms)
    start, end = (datetime.fromtimestamp(boundaries_ms[n] / 1000, UTC) for n in (at, at + 1))
    return span(start, end)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


# ---------------------------------------------------------------- the receiver's ledger


def apply(
    postings: Sequence[Posting],
) -> tuple[dict[tuple[str, str, Hour], tuple[int, int]], str | None]:
    """Apply all lines; return the sums by account, interval and hour, and the first mismatch."""
    stored: dict[str, Posting] = {}
    problem: str | None = None
    for posting in postings:
        existing = stored.get(posting.row_key)
        if (posting.operation == "row") is not (existing is None):
            problem = problem or (
                f"a {posting.operation} of {_text(posting)}; stored is {existing and _text(existing)}"
            )
        if posting.operation == "retraction":
            stored.pop(posting.row_key, None)
        else:
            stored[posting.row_key] = posting
    return {(p.account, p.interval, p.hour): p.sums for p in stored.values()}, problem


def _text(posting: Posting) -> str:
    events, cents = posting.sums
    return f"{posting.account} {_at(posting.hour)}: {events} events, {cents} cents"


def _at(hour: Hour) -> str:
    return f"{datetime.fromtimestamp(hour[0] / 1000, UTC):%H:%M} {hour[1]}"


def _check_once(postings: Sequence[Posting], invoices: Mapping[Hour, Any]) -> Iterator[Finding]:
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


def _check_sum(bill: Bill, stored: Mapping[Any, tuple[int, int]]) -> Finding:
    """Check the total, which does not depend on lateness or intervals."""
    found = tuple(sum(sums[n] for sums in stored.values()) for n in (0, 1))
    return finding(
        "the sum",
        f"invoices and corrections: {bill.events:,} events, {bill.cents:,} cents, all that was sent for closed hours",
        None
        if found == (bill.events, bill.cents)
        else f"expected {bill.events:,} events, {bill.cents:,} cents; found {found[0]:,} and {found[1]:,}",
    )


def _check_tables(
    tables: Tables, invoices: Sums, late: Mapping[tuple[str, Hour], tuple[int, int]], bill: Bill
) -> Iterator[Finding]:
    invoice_rows = Counter(map(_row, tables.invoices))
    correction_rows = Counter(map(_row, tables.corrections))
    yield finding(
        "the tables",
        f"{len(tables.invoices):,} and {len(tables.corrections):,} rows equal the receiver's",
        None
        if invoice_rows == Counter(invoices.items())
        and correction_rows == Counter((hour, sums) for (_, hour), sums in late.items())
        else f"{len(tables.invoices):,} invoices and {len(tables.corrections):,} corrections in the lake; "
        f"the receiver has {len(invoices):,} and {len(late):,}, or others",
    )
    yield finding(
        "outside",
        f"{len(tables.outside):,} events from the future are in a separate table, and not billed",
        _expected("events in the table `outside`", len(tables.outside), bill.outside),
    )


def _row(row: Mapping[str, Any]) -> tuple[Hour, tuple[int, int]]:
    return (_ms(row["window_start"]), row["customer"]), (row["events"], row["cents"])


def _changed(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> int:
    return sum(old[at] != new[at] for at in old)


def _expected(what: str, found: int, expected: int) -> str | None:
    return None if found == expected else f"{what}: expected {expected:,}, found {found:,}"


def _difference(expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> str | None:
    for at in sorted({*expected, *found}):
        if expected.get(at) != found.get(at):
            hour = at if isinstance(at[0], int) else at[1]
            return (
                f"{_at(hour)}: expected (events, cents) {expected.get(at)}, found {found.get(at)}"
            )
    return None
