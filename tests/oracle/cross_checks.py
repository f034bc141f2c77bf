"""Checks of the rows against the log as an independent client reads it, against the accounts, and of tables with keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from oracle.reading import DEAD, LINEAGE, CommittedInterval, Partition
from oracle.row_checks import Row, Rows

Aggregate = Callable[[Sequence[Row]], Iterable[Row]]


def check_logs(rows: Rows) -> None:
    """Check that the tables have exactly the records that an independent client reads in the committed ranges."""
    offsets_by: dict[Partition, set[int]] = defaultdict(set)
    for spots in rows.rows.values():
        for topic, number, offset in spots:
            offsets_by[topic, number].add(offset)
    for (topic, number), log in rows.logs.items():
        for interval in rows.intervals:
            start, end = interval.ranges[topic, number]
            first = max(start, log.begin, interval.readable_from((topic, number)))
            span = range(first, end)
            in_log = {offset for offset in span if offset in log.committed}
            in_tables = {offset for offset in span if offset in offsets_by[topic, number]}
            for offset in sorted(in_log - in_tables if rows.record_level else ()):
                rows.problems.add(
                    "log",
                    f"{topic}[{number}]@{offset} of {interval.name} is in the log and in no table",
                )
            if not interval.planned(topic).get("compacted"):
                for offset in sorted(in_tables - in_log):
                    rows.problems.add(
                        "log",
                        f"{topic}[{number}]@{offset} is in a table and not in the log",
                    )


def check_accounts_against_rows(rows: Rows) -> None:
    """Check the account of each committed range against the tables and against the log."""
    spots_by_table = {name: set(spots) for name, spots in rows.rows.items()}
    for interval in rows.intervals:
        for account in (interval.done or {}).get("accounts", ()):
            place = (account["topic"], account["partition"])
            span = range(account["start"], account["end"])
            counts = {
                name: sum((*place, offset) in spots for offset in span) if spots else 0
                for name, spots in spots_by_table.items()
            }
            for name, count in counts.items():
                accounted = account["dead_letters" if name == DEAD else "records"]
                if count != accounted:
                    what = "dead letters" if name == DEAD else "records"
                    rows.problems.add(
                        "account",
                        f"{interval.name} {place}: {accounted} {what} are accounted, table {name} has {count}",
                    )
            for text in _against_log(rows, place, account, interval):
                rows.problems.add("account", f"{interval.name} {place}: {text}")


def _against_log(
    rows: Rows, place: Partition, account: Row, interval: CommittedInterval
) -> Iterator[str]:
    log = rows.logs.get(place)
    compacted = interval.planned(place[0]).get("compacted")
    if log is not None and account["lost"] and log.begin < account["start"] + account["lost"]:
        yield f"{account['lost']} offsets are accounted as lost, the log still starts at {log.begin}"
    if log is None or log.begin > account["start"] + account["lost"] or compacted:
        return
    span = range(account["start"] + account["lost"], account["end"])
    committed = sum(offset in log.committed for offset in span)
    data = sum(offset in log.any_data for offset in span)
    expected = (committed, data - committed, len(span) - data)
    accounted = (
        account["records"] + account["dead_letters"],
        account["aborted"],
        account["control"],
    )
    if accounted != expected:
        yield f"records, aborted and control are accounted as {accounted}, an independent client reads {expected}"


def check_aggregates(rows: Rows, aggregates: Mapping[str, Aggregate]) -> None:
    """Check the rows of a table with keys against the result of its hook on the records of each interval."""
    if not rows.record_level and not aggregates:
        rows.problems.add(
            "aggregate",
            f"no expected rows of {sorted(rows.aggregated)} are passed: no record is checked",
        )
    for table, expected in aggregates.items():
        rows_by_file = rows.aggregated.get(table, {})
        for interval in rows.intervals:
            actual = [row for key in interval.files(table) for row in rows_by_file.get(key, ())]
            wanted = list(expected(list(_expected_rows(rows, interval))))
            if (ours := _bag(actual)) != (theirs := _bag(wanted)):
                different = next(iter((ours - theirs) + (theirs - ours)))
                rows.problems.add(
                    "aggregate",
                    f"table {table}, {interval.name}: {dict(different)} is not in both",
                )


def _expected_rows(rows: Rows, interval: CommittedInterval) -> Iterator[Row]:
    """Yield the expected rows of the committed records of an interval: acknowledged ones, and others that are present."""
    if rows.payload.columns is None:
        raise ValueError("aggregates: expected a payload to compute them from, found none")
    sent = {spot for spot, notes in rows.sent.items() if any(n.outcome == "ok" for n in notes)}
    for spot in sorted(sent.union(*rows.rows.values())):
        start, end = interval.ranges.get(spot[:2], (0, 0))
        if not start <= spot[2] < end or not rows.is_complete(spot):
            continue
        record, known, value = rows.log_record(spot), False, None
        if record is not None:
            known, value = True, record.value
        elif rows.sent.get(spot):
            known, value = rows.value_of(spot, rows.sent[spot][0])
        columns = rows.payload.columns(value) if known else None
        if columns is not None:
            yield {**columns, **dict(zip(LINEAGE[:3], spot, strict=True))}


def _bag(rows: Iterable[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)
