"""docs/reference/guarantees.md: the tests that it names exist, the cases that must be there are, the counts are right."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "guarantees.md"
OPEN = "open"
# Words that a line of the section must hold. Each is one case of the promise; a page without it would promise less.
CASES = {
    "Doors": (
        *("scheduled run", "catch-up", "committed a part", "committed whole", "without records"),
        *(
            "backfill before the start",
            "reprocess none, failed and completed",
            "backfill backwards",
            "eight intervals",
        ),
        *(
            "backfill with mode=replace",
            "after the commit",
            "before the commit",
            "clear of a running task",
        ),
        *(
            "clears at the same moment",
            "code changed, then cleared",
            "changed between plan and stage",
        ),
        *("declaration changed, then cleared", "mark failed and mark success", "double launch"),
        *(
            "Trigger without dates",
            "Trigger with dates while a scheduled run",
            "mode=replace over ten intervals",
        ),
        *(
            "cuts through an interval",
            "take-over",
            "release of a grant",
            "paused for a day",
            "two DAGs on one lake root",
        ),
        *("unknown or impossible parameters",),
    ),
    "Log's edges": (
        *(
            "aborted transactions across",
            "open transaction before",
            "control records at the end",
            "compacted topic",
        ),
        *("compacted between plan and retry", "tombstones", "growth between plan and run"),
        *(
            "growth between intervals",
            "before the read",
            "during the read",
            "after the read",
            "recreated before",
        ),
        *(
            "recreated during",
            "recreated after",
            "another cluster",
            "unclean leader election",
            "out of order",
        ),
        *(
            "in the future",
            "(-1)",
            "LogAppendTime",
            "empty intervals",
            "only aborted records",
            "5 M records",
        ),
        *("1 MiB and one of 30 MiB", "in any order", "several topics"),
    ),
    "Calendars": (
        *(
            "clocks go forward and back",
            "New York, Berlin, Lord Howe",
            "`0 6 * * 1`",
            "a backfill over a change of clocks",
        ),
        *("before, at and after the topic's first record", "hourly to daily", "daily to hourly"),
        *("zone of the process",),
    ),
    "Nemeses": (
        *(
            "task process",
            "supervisor",
            "scheduler",
            "Spark driver",
            "an executor",
            "Spark worker",
            "a broker",
        ),
        *("S3 server", "PostgreSQL", "SIGSTOP", "disk full", "503", "lost replies of the swap"),
        *("open transaction",),
    ),
    "gc": ("writers delete nothing",),
}


def sections() -> dict[str, str]:
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(part.split("\n", 1) for part in parts)


def lines(section: str) -> list[tuple[str, str]]:
    """(case, test) of the section's table, without its head."""
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", sections()[section], re.MULTILINE)
    assert rows[:2] == [("case", "test"), ("---", "---")], section
    return rows[2:]


@cache
def known_in(path: Path) -> frozenset[str]:
    """Test functions of a file, also those in classes; a parametrised one is one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (
        n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return frozenset(name for name in found if name.startswith("test_"))


def test_the_page_has_its_sections_and_no_other() -> None:
    assert list(sections()) == list(CASES)


@pytest.mark.parametrize("section", CASES)
def test_every_test_that_a_line_names_exists(section: str) -> None:
    for case, cell in lines(section):
        if cell == OPEN:
            continue
        named = cell.split(" <br> ")
        for one in named:
            match = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", one)
            assert match is not None, (case, one)
            assert match[2] in known_in(ROOT / match[1]), (case, one)
        assert len(named) == len(set(named)), case


@pytest.mark.parametrize("section", CASES)
def test_every_case_that_must_be_there_has_a_line(section: str) -> None:
    found = [case for case, _ in lines(section)]
    assert [words for words in CASES[section] if not any(words in case for case in found)] == []
    assert len(found) == len(set(found)), "a case stands once"


@pytest.mark.parametrize("section", CASES)
def test_the_counts_are_those_of_the_lines(section: str) -> None:
    told = re.search(r"^(\d+) cases, (\d+) open\.", sections()[section], re.MULTILINE)
    assert told is not None
    cells = [cell for _, cell in lines(section)]
    assert (int(told[1]), int(told[2])) == (len(cells), cells.count(OPEN))


def test_no_calendar_is_open() -> None:
    assert OPEN not in [cell for _, cell in lines("Calendars")]
