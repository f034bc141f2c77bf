"""Judges the example `upsert`: the table in PostgreSQL, against the records that were sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.checks import Ruling, finding
from examples.checks.sent import Sent, by_day, read_sent

Row = tuple[Any, ...]
Day = Mapping[str, Row]


def judge(
    rows: Sequence[Row],
    sent: Path,
    *,
    keep_cancelled: Mapping[datetime, bool],
    replaced: datetime,
) -> Ruling:
    """Compare the table (id, account, cents, status, time) with what was sent on the days that were played.

    `keep_cancelled`: for each of them, whether its job keeps cancelled payments; `replaced`: the day whose job was
    changed, so that ids which it held no more show the row of an earlier day.
    """
    days = by_day(read_sent(sent))
    expected = _table(days, keep_cancelled)
    found = {str(row[0]): row for row in rows}
    before = _table(days, dict.fromkeys((d for d in keep_cancelled if d < replaced), True))
    with_all = _day(days[replaced], keep=True)
    now = _day(days[replaced], keep=False)
    gone = with_all.keys() - now.keys()
    revealed = [i for i in gone if i in before and expected.get(i) == before[i]]
    cents = sum(row[2] for row in expected.values())
    return Ruling(
        rows=len(rows),
        findings=[
            finding(
                "once",
                f"{len(rows):,} rows, each transaction id once",
                None if len(found) == len(rows) else f"{len(rows):,} rows, {len(found):,} ids",
            ),
            finding(
                "all, and equal",
                f"each id has the last word of the latest day that has it; {cents:,} cents in all",
                _difference(expected, found),
            ),
            finding(
                "revealed",
                f"{len(gone):,} ids left {replaced:%d %B} with its new job; {len(revealed):,} show an earlier day's "
                "row again",
                None
                if revealed and all(found.get(i) == before[i] for i in revealed)
                else f"of {len(gone):,} ids that left {replaced:%d %B} none shows what an earlier day said",
            ),
        ],
    )


def _table(
    days: Mapping[datetime, Sequence[Sent]], keep: Mapping[datetime, bool]
) -> dict[str, Row]:
    """What the table is to hold once these days are published, in whatever order: of each id the latest day's row."""
    rows: dict[str, Row] = {}
    for played in sorted(keep):
        rows.update(_day(days[played], keep=keep[played]))
    return rows


def _day(sent: Sequence[Sent], *, keep: bool) -> dict[str, Row]:
    """Of each id its last record of a day; those of one id share a partition, and come in its order."""
    rows: dict[str, Row] = {}
    for one in sent:
        payment = one.document
        if one.counts and (keep or payment["status"] != "cancelled"):
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
            return f"{name}: the table has {found.get(name)}, expected is {expected.get(name)}"
    return None
