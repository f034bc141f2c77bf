"""The check of the example `fanout`: all tables of the lake, against the values that the producer encoded."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.checks import CheckResult, Finding, finding
from examples.checks.lake import Lake
from examples.checks.values import plain

DEAD_LETTERS = "dead_letters"
# A table is three or four small objects, so most of the time is waiting for answers.
_TABLES_AT_ONCE = 4
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the lake has: rows by table, how many files each commit added by table, and the root's number of versions."""

    rows: Mapping[str, Sequence[Row]]
    commits: Sequence[Mapping[str, int]]
    version: int


def read(lake: Lake) -> Found:
    """Read all tables of root.json and the chain of its commits."""
    root = lake.json("root.json")
    places = {name: table["metadata"] for name, table in root["tables"].items()}

    def rows(metadata: str | None) -> list[dict[str, Any]]:
        return [] if metadata is None else lake.rows_of(metadata)

    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        found = dict(zip(places, pool.map(rows, places.values()), strict=True))
    commits = [
        {table: len(files) for one in record["intervals"] for table, files in one["added"].items()}
        for record in lake.records()
    ]
    return Found(rows=found, commits=commits, version=root["version"])


def compare(read_lake: Callable[[], Found], sent: Path, *, days: Sequence[int]) -> CheckResult:
    """Compare the lake with what was sent and committed; `days`: the days that were run, in their order."""
    found = read_lake()
    lines = [json.loads(line) for line in sent.read_text(encoding="utf-8").splitlines()]
    lines = [one for one in lines if one["end"] != "aborted" and one["interval"] in days]
    return CheckResult(
        rows=sum(map(len, found.rows.values())), findings=list(_findings(found, lines, days))
    )


def _findings(found: Found, lines: Sequence[Row], days: Sequence[int]) -> Iterator[Finding]:
    expected: dict[str, dict[int, Row]] = defaultdict(dict)
    for line in lines:
        if line["table"] is not None and line["document"] is not None:
            expected[line["table"]][line["offset"]] = line
    tables = found.rows.keys() - {DEAD_LETTERS}
    different = sorted(tables ^ expected.keys())
    yield finding(
        "tables",
        f"{len(tables)} tables: one per topic with a schema, none of the topics that are left out",
        f"table {different[0]}: expected {different[0] in expected}, found {different[0] in tables}"
        if different
        else None,
    )
    count = sum(map(len, expected.values()))
    yield finding(
        "rows",
        f"{count:,} rows, each with the values that were encoded for its offset",
        next(_different_rows(found.rows, expected), None),
    )
    letters = [line for line in lines if line["table"] is not None and line["kind"] is not None]
    yield finding(
        "dead letters",
        f"{len(letters)} records that cannot be read, each once, with its reason and its bytes",
        _letters(found.rows.get(DEAD_LETTERS, ()), letters),
    )
    yield finding(
        "one commit",
        f"{len(days)} intervals in {len(found.commits)} commits, each of all its tables; {found.version} versions of "
        "the root",
        _commits(found, lines, days),
    )


def _different_rows(
    found: Mapping[str, Sequence[Row]], expected: Mapping[str, Mapping[int, Row]]
) -> Iterator[str]:
    """Yield a text for each row that is missing, twice there, unexpected or has another value."""
    for table, lines in sorted(expected.items()):
        rows = found.get(table, ())
        by_offset = {row["_offset"]: row for row in rows}
        if len(by_offset) != len(rows):
            yield f"{table}: {len(rows)} rows of {len(by_offset)} records"
        for offset in sorted(lines.keys() | by_offset.keys()):
            if (line := lines.get(offset)) is None or (row := by_offset.get(offset)) is None:
                yield f"{table}, offset {offset}: expected {lines.get(offset)}, found {by_offset.get(offset)}"
                continue
            have = {n: plain(v) for n, v in row.items() if not n.startswith("_")}
            # A column that a later schema added is null in earlier records.
            wanted = dict.fromkeys(have) | line["document"]
            if have != wanted:
                yield f"{table}, offset {offset}: expected {wanted}, found {have}"
            if row["_topic"] != line["topic"] or _ms(row) != line["at_ms"]:
                yield f"{table}, offset {offset}: expected the place and time of the record, found others"


def _ms(row: Row) -> int:
    return round(float(row["_timestamp"].timestamp()) * 1000)


def _letters(found: Sequence[Row], expected: Collection[Row]) -> str | None:
    wanted = sorted((x["topic"], x["offset"], x["kind"], x["value"]) for x in expected)
    have = sorted(
        (x["_topic"], x["_offset"], x["kind"], base64.b64encode(x["value"] or b"").decode())
        for x in found
    )
    if wanted == have:
        return None
    first = next((a, b) for a, b in zip([*wanted, None], [*have, None], strict=False) if a != b)
    return f"expected {len(wanted)}, found {len(have)}; the first difference: {first[0]}, found {first[1]}"


def _commits(found: Found, lines: Sequence[Row], days: Sequence[int]) -> str | None:
    """Return a problem if a commit is not exactly one interval with all its tables."""
    if len(found.commits) != len(days):
        return f"expected {len(days)} commits, found {len(found.commits)}"
    for day, commit in zip(days, found.commits, strict=True):
        of_day = [x for x in lines if x["interval"] == day and x["table"] is not None]
        wanted = {x["table"] if x["kind"] is None else DEAD_LETTERS for x in of_day}
        have = {table for table, files in commit.items() if files}
        if wanted != have:
            return f"the commit of day {day}: expected {len(wanted)} tables, found {len(have)}"
    # The first version is the empty lake. Then a plan and its commit each swap the root once.
    versions = 1 + 2 * len(days)
    if found.version != versions:
        return f"expected {versions} versions of the root, found {found.version}"
    return None
