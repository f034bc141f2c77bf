"""The rows beside the log as an independent client reads it, the accounts, and what tables with keys must hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from oracle.reading import DEAD, LINEAGE, Partition, Piece
from oracle.row_checks import Row, Rows

Aggregate = Callable[[Sequence[Row]], Iterable[Row]]


def judge_logs(rows: Rows) -> None:
    """What an independent client is given of the committed ranges stands in the tables, and the other way round."""
    there_by: dict[Partition, set[int]] = defaultdict(set)
    for spots in rows.rows.values():
        for topic, number, offset in spots:
            there_by[topic, number].add(offset)
    for (topic, number), log in rows.logs.items():
        for piece in rows.intervals:
            start, end = piece.ranges[topic, number]
            first = max(start, log.begin, piece.readable_from((topic, number)))
            span = range(first, end)
            held = {offset for offset in span if offset in log.committed}
            there = {offset for offset in span if offset in there_by[topic, number]}
            for offset in sorted(held - there if rows.record_level else ()):
                rows.problems.say(
                    "log",
                    f"{topic}[{number}]@{offset} of {piece.name} is in the log and in no table",
                )
            if not piece.planned(topic).get("compacted"):
                for offset in sorted(there - held):
                    rows.problems.say(
                        "log",
                        f"{topic}[{number}]@{offset} stands in a table and is not in the log",
                    )


def judge_accounts(rows: Rows) -> None:
    """The account of each committed range is what the tables hold and what the log shows."""
    everywhere = {name: set(spots) for name, spots in rows.rows.items()}
    for piece in rows.intervals:
        for account in (piece.done or {}).get("accounts", ()):
            place = (account["topic"], account["partition"])
            span = range(account["start"], account["end"])
            counts = {
                name: sum((*place, offset) in spots for offset in span) if spots else 0
                for name, spots in everywhere.items()
            }
            for name, held in counts.items():
                said = account["dead_letters" if name == DEAD else "records"]
                if held != said:
                    what = "dead letters" if name == DEAD else "records"
                    rows.problems.say(
                        "account",
                        f"{piece.name} {place}: {said} {what} are accounted, table {name} holds {held}",
                    )
            for text in _against_log(rows, place, account, piece):
                rows.problems.say("account", f"{piece.name} {place}: {text}")


def _against_log(rows: Rows, place: Partition, account: Row, piece: Piece) -> Iterator[str]:
    log = rows.logs.get(place)
    compacted = piece.planned(place[0]).get("compacted")
    if log is not None and account["lost"] and log.begin < account["start"] + account["lost"]:
        yield f"{account['lost']} offsets are accounted as lost, the log still begins at {log.begin}"
    if log is None or log.begin > account["start"] + account["lost"] or compacted:
        return
    span = range(account["start"] + account["lost"], account["end"])
    committed = sum(offset in log.committed for offset in span)
    data = sum(offset in log.any_data for offset in span)
    wanted = (committed, data - committed, len(span) - data)
    said = (account["records"] + account["dead_letters"], account["aborted"], account["control"])
    if said != wanted:
        yield f"records, aborted and control are accounted as {said}, an independent client sees {wanted}"


def judge_aggregates(rows: Rows, aggregates: Mapping[str, Aggregate]) -> None:
    """The rows of a table with keys are, interval by interval, what its hook makes of that interval's records."""
    if not rows.record_level and not aggregates:
        rows.problems.say(
            "aggregate",
            f"nobody says what {sorted(rows.aggregated)} must hold: no record is checked",
        )
    for table, expected in aggregates.items():
        held = rows.aggregated.get(table, {})
        for piece in rows.intervals:
            found = [row for key in piece.files(table) for row in held.get(key, ())]
            wanted = list(expected(list(_sound(rows, piece))))
            if (ours := _bag(found)) != (theirs := _bag(wanted)):
                different = next(iter((ours - theirs) + (theirs - ours)))
                rows.problems.say(
                    "aggregate",
                    f"table {table}, {piece.name}: {dict(different)} is not in both",
                )


def _sound(rows: Rows, piece: Piece) -> Iterator[Row]:
    """The expected rows of what is committed of an interval: sent and acknowledged, or there all the same."""
    if rows.payload.columns is None:
        raise ValueError("aggregates need a payload: what else should they be made of?")
    sent = {spot for spot, notes in rows.sent.items() if any(n.outcome == "ok" for n in notes)}
    for spot in sorted(sent.union(*rows.rows.values())):
        start, end = piece.ranges.get(spot[:2], (0, 0))
        if not start <= spot[2] < end or not rows.stands(spot):
            continue
        held, known, value = rows.held(spot), False, None
        if held is not None:
            known, value = True, held.value
        elif rows.sent.get(spot):
            known, value = rows.value_of(spot, rows.sent[spot][0])
        columns = rows.payload.columns(value) if known else None
        if columns is not None:
            yield {**columns, **dict(zip(LINEAGE[:3], spot, strict=True))}


def _bag(rows: Iterable[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)
