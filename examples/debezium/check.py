"""The check of the example `debezium`: the change rows, against the operations that were executed, and the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.checks import CheckResult, Finding, finding
from examples.checks.values import plain

COLUMNS = ("customer", "amount", "placed", "shipped", "note")
Row = Mapping[str, Any]


def compare(
    changes: Callable[[], Sequence[Row]],
    dead_letters: Callable[[], Sequence[Row]],
    executed: Path,
    *,
    table: Sequence[Row],
) -> CheckResult:
    """Compare the rows of the lake with the operations in `executed`, and their replay with the database's `table`.

    `executed` has a line per operation: `op`, the `id`, and the row `before` and `after`, in the order in which they were
    committed. The rows of the snapshot come first, in any order.
    """
    rows = sorted(changes(), key=lambda row: int(row["_offset"]))
    lines = [json.loads(line) for line in executed.read_text(encoding="utf-8").splitlines()]
    return CheckResult(rows=len(rows), findings=list(_findings(rows, dead_letters(), lines, table)))


def _findings(
    rows: Sequence[Row], letters: Sequence[Row], lines: Sequence[Row], table: Sequence[Row]
) -> Iterator[Finding]:
    offsets = [row["_offset"] for row in rows]
    yield finding(
        "once",
        f"{len(rows):,} rows, each offset of the topic once, from 0",
        None
        if offsets == list(range(len(rows)))
        else f"{len(rows):,} rows, {len(set(offsets)):,} offsets up to {max(offsets, default=-1)}",
    )
    expected = [event for line in lines for event in _events(line)]
    count = sum(line["op"] == "r" for line in lines)
    found = [_event(row) for row in rows]
    # The order of a snapshot is that of the scan.
    ordered = sorted(found[:count], key=repr) + found[count:]
    wanted = sorted(expected[:count], key=repr) + expected[count:]
    kinds = {op: sum(one["op"] == op for one in wanted) for op in "rcudt"}
    yield finding(
        "changes",
        f"{', '.join(f'{number} {op}' for op, number in kinds.items())} and a tombstone after each d, in the order of "
        "the commits, with the rows before and after",
        next(_differences(wanted, ordered), None),
    )
    replayed = replay(rows)
    state = {row["id"]: {n: plain(row[n]) for n in COLUMNS} for row in table}
    yield finding(
        "replay",
        f"applied one by one, they give the {len(state):,} rows of the table",
        next(_differences([*sorted(state.items())], [*sorted(replayed.items())]), None),
    )
    yield finding(
        "positions",
        "the positions in the database's log (source.lsn) never decrease",
        None
        if (lsns := [row["lsn"] for row in rows if row["lsn"] is not None]) == sorted(lsns)
        else "a position is smaller than the one before it",
    )
    yield finding(
        "dead letters",
        "none",
        f"{len(letters)}, e.g. {letters[0]['reason']}" if letters else None,
    )


def _events(line: Row) -> Iterator[dict[str, Any]]:
    """Yield what Debezium sends for an operation: after a deletion, a tombstone of the key."""
    op, state = line["op"], line["before"] if line["op"] == "d" else line["after"]
    before = line["before"] if op in ("u", "d") else None
    yield {
        "op": op,
        "id": line["id"],
        "row": _columns(state),
        "before": before and _columns(before),
    }
    if op == "d":
        yield {"op": "tombstone", "id": line["id"], "row": _columns(None), "before": None}


def _event(row: Row) -> dict[str, Any]:
    before = row["before"]
    return {
        "op": row["op"],
        "id": row["id"],
        "row": _columns(row),
        "before": before and _columns(before),
    }


def _columns(row: Row | None) -> dict[str, Any]:
    # A field that was added later is missing in events before that.
    return {name: plain((row or {}).get(name)) for name in COLUMNS}


def replay(rows: Sequence[Row]) -> dict[int, dict[str, Any]]:
    """Return the table after these changes, by its key: what a consumer of the change rows does."""
    state: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row["op"] == "t":
            state.clear()
        elif row["op"] == "d":
            state.pop(row["id"], None)
        elif row["op"] != "tombstone":
            state[row["id"]] = _columns(row)
    return state


def _differences(expected: Sequence[Any], found: Sequence[Any]) -> Iterator[str]:
    for number, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            yield f"number {number}: expected {one}, found {other}"
    if len(expected) != len(found):
        yield f"expected {len(expected)}, found {len(found)}"
