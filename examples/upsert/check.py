"""The check of the example `upsert`: the table in PostgreSQL, against the records that were sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.checks import CheckResult, finding
from examples.checks.sent import SentRecord, by_day, read_sent

Row = tuple[Any, ...]
Day = Mapping[str, Row]


def compare(
    rows: Sequence[Row],
    sent: Path,
    *,
    keep_cancelled: Mapping[datetime, bool],
    replaced: datetime,
) -> CheckResult:
    """Compare the table (id, account, cents, status, time) with what was sent on the days that were run.

    `keep_cancelled`: for each day, True if its job keeps cancelled payments; `replaced`: the day whose job was changed,
    so that the row of an earlier day is visible for ids that this day no longer has.
    """
    days = by_day(read_sent(sent))
    expected = _table(days, keep_cancelled)
    found = {str(row[0]): row for row in rows}
    before = _table(days, dict.fromkeys((d for d in keep_cancelled if d < replaced), True))
    with_cancelled = _day(days[replaced], keep=True)
    current = _day(days[replaced], keep=False)
    gone = with_cancelled.keys() - current.keys()
    revealed = [i for i in gone if i in before and expected.get(i) == before[i]]
    cents = sum(row[2] for row in expected.values())
    return CheckResult(
        rows=len(rows),
        findings=[
            finding(
                "once",
                f"{len(rows):,} rows, each transaction id once",
                None if len(found) == len(rows) else f"{len(rows):,} rows, {len(found):,} ids",
            ),
            finding(
                "all, and equal",
                f"each id has its last record of the latest day that has it; {cents:,} cents in all",
                _difference(expected, found),
            ),
            finding(
                "revealed",
                f"the new job removed {len(gone):,} ids from {replaced:%d %B}; {len(revealed):,} have the row of an "
                "earlier day again",
                None
                if revealed and all(found.get(i) == before[i] for i in revealed)
                else f"{len(gone):,} ids removed from {replaced:%d %B}: expected the rows of earlier days, found others",
            ),
        ],
    )


def _table(
    days: Mapping[datetime, Sequence[SentRecord]], keep: Mapping[datetime, bool]
) -> dict[str, Row]:
    """Return the table after these days are published, in any order: for each id the row of the latest day."""
    rows: dict[str, Row] = {}
    for day in sorted(keep):
        rows.update(_day(days[day], keep=keep[day]))
    return rows


def _day(sent: Sequence[SentRecord], *, keep: bool) -> dict[str, Row]:
    """Return the last record of each id; all records of an id are in one partition, in order."""
    rows: dict[str, Row] = {}
    for record in sent:
        payment = record.document
        if record.visible and (keep or payment["status"] != "cancelled"):
            happened = datetime.fromisoformat(payment["happened"])
            rows[payment["txn_id"]] = (
                payment["txn_id"],
                payment["account"],
                payment["cents"],
                payment["status"],
                happened,
            )
    return rows


def _difference(expected: Mapping[str, Row], found: Mapping[str, Row]) -> str | None:
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            return f"{name}: expected {expected.get(name)}, found {found.get(name)}"
    return None
