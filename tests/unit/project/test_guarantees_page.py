"""docs/reference/guarantees.md: the tests that it names exist, no required case is missing, the counts are right."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from chaos import played
from chaos.course import NEMESES
from chaos.table import Line

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "guarantees.md"
OPEN = "open"
# Texts of which each must be in a line of its section. Each is a case of the promise: without it, the page promises less.
CASES = {
    "User actions": (
        "a scheduled run, nothing committed yet",
        "catch-up of missed runs",
        "a run of which others committed a part",
        "a run whose interval others committed whole",
        "an interval without records",
        "backfill, reprocess none",
        "backfill, reprocess failed; run marked failed by hand",
        "backfill, reprocess completed",
        "backfill backwards, before the start date",
        "backfill forwards, eight intervals at once",
        "backfill with mode=replace over the runs' own intervals",
        "clear of plan, stage and commit after the commit",
        "clear of commit before the commit",
        "clear of stage before the commit",
        "clear of plan before the commit",
        "clear of commit during its swap",
        "clear of stage during the commit",
        "clear of plan during the commit",
        "clear of a running stage",
        "clear of a running plan",
        "several clears at the same moment",
        "code changed, then cleared",
        "code changed between plan and stage",
        "declaration changed, then cleared",
        "changed code over what the topic no longer holds",
        "plan marked success by hand",
        "stage marked failed by hand",
        "stage marked success by hand",
        "commit marked failed by hand",
        "commit marked success by hand",
        "double launch of the same task",
        "a driver that dies, and its retry",
        "Trigger without dates",
        "Trigger as the form proposes, with a logical date",
        "Trigger with a data interval that a person typed",
        "Trigger with mode=replace and no span",
        "backfill with a span in its parameters",
        "Trigger, Clear and Backfill pressed in a browser",
        "Trigger without dates while a scheduled run is under way",
        "Trigger with dates while a scheduled run of the same hour is under way",
        "Trigger with mode=replace over ten intervals",
        "mode=replace that cuts through an interval",
        "take-over of a running run",
        "release of a grant",
        "DAG paused, gaps filled later",
        "two DAGs of one pipeline on one lake (safe)",
        "two pipelines on one lake (refused)",
        "an open transaction before the run's end",
        "unknown or impossible parameters",
        "clears that Airflow counts from 0 again",
        "a retry of plan after one of its grants was released",
        "no secret anywhere after every user action",
        "plan, stage and commit in one task, which dies at any step",
    ),
    "Log's edges": (
        "1 ends are pinned: a retry reads what was planned",
        "2 one reading, however often a job evaluates",
        "3 boundaries asked for in any order",
        "4 empty intervals: no record at or after the instant",
        "5 options that win over others",
        "6 zero-width intervals",
        "7 daylight saving and zones",
        "8 partition growth between plan and run",
        "8 partition growth between intervals",
        "9 inverted ranges",
        "10 aborted records",
        "10 the broker's list of aborted transactions contradicts the markers in the log",
        "11 aborted and open transactions across a boundary",
        "12 a hanging transaction",
        "13 transactions that Kafka itself tears (before KIP-890)",
        "14 gaps of every kind",
        "15 the tail of a range is aborted; control records at the end of a range",
        "16 retention overtakes the plan before the read",
        "16 retention overtakes the plan during the read",
        "16 retention overtakes the plan after the read",
        "16 a ledger's first boundary near the start of a log that retention has cut",
        "17, 22 failOnDataLoss, group ids: options of other readers",
        "18 topic recreated before the plan",
        "18 topic recreated before and during the read, with equal lengths",
        "18 topic recreated between read and commit (what was read is committed, the next plan stops)",
        "18 topic deleted",
        "19 unclean leader election that rewrites offsets",
        "20 compacted between plan and retry",
        "21 another cluster",
        "23 records of 1 MiB and of 30 MiB, 300 headers, null",
        "23 tombstones",
        "24 poison pills",
        "a compacted topic",
        "a broker that answers without records for a while, or for ever",
        "a leader moves during the read",
        "timestamps out of order, in the future, -1",
        "a record from the future before an interval",
        "LogAppendTime",
        "intervals with only aborted records",
        "5 M records next to an empty partition",
        "several topics in one pipeline",
        "a broker's quota",
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
        "kill -9 of the task process",
        "kill -9 of the supervisor",
        "kill -9 of the scheduler",
        "kill -9 of the Spark driver",
        "kill -9 of an executor",
        "kill -9 of a Spark worker",
        "kill -9 of a broker",
        "the broker answers without records for a while",
        "kill -9 of the S3 server",
        "kill -9 of PostgreSQL",
        "SIGSTOP of the driver, a second attempt to success, SIGCONT",
        "disk full under the attempt",
        "S3 answers 503 to a third of requests",
        "lost replies of the swap: fail-before, fail-after, delay, duplicate",
        "a backlog of outputs that is published while a run commits",
        "broker restarted with an open transaction",
        "random schedules of runs, clears, kills, collections, lost and late PUTs, deploys",
    ),
    "gc": (
        "writers delete nothing",
        "a collection at any moment of a plan or a commit",
        "a plan or a commit at any moment of a collection",
        "a collection that dies, or whose requests fail",
        "attempts that lost, superseded plans, replaced files",
        "a dry run",
        "readers on old roots, within the grace and after it",
        "a grant that is given up",
        "a root that was set back",
        "something that the root needs is gone",
        "a committed plan whose objects are gone",
    ),
    "Compaction": (
        "no row changes, for PyIceberg, DuckDB and polars",
        "any order of commits, replacements and compactions of any files",
        "an interval is replaced after its rows were moved",
        "an interval is replaced while its rows are rewritten",
        "two compactions of the same files",
        "a kill, a lost reply or a late PUT at any request of a compaction",
        "random schedules of runs, clears, gc, readers and compactions",
        "gc between the steps of a compaction",
        "columns change before or during a compaction",
        "dead letters and a lookback after a compaction",
        "rows that an output lacks are not moved; those that it has are removed after a replacement",
        "a sorted file: each row of an interval is found and deleted at its position",
        "sorted files are compacted again and replaced",
        "a row order is gone, or is another one",
        "Spark writes the shared files",
        "versions before and after a compaction can be read",
    ),
    "The catalog": (
        "PyIceberg, DuckDB and polars read the committed rows by name",
        "all tables of a session are of one version",
        "a client that writes is refused",
        "a token sees its lakes only",
        "a version that gc collected is never answered",
        "a lake that was set back or replaced does not answer for the one before",
        "a store that hangs takes a few threads and not more",
    ),
    "Outputs": (
        "an interval that is half out is replaced many times",
        "a crash between swap and publish is completed by the retry, a later run or by hand",
        "nothing is sent twice: publish again, clear of publish",
        "random schedules of publishers concurrently with runs, clears, deploys, collections",
        "an output that is unavailable, slow or raises anything harms no commit",
        "a replacement while rows are half out",
        "a replacement of what takes no second sending",
        "gc while an output lacks rows",
        "gc while a catalog is behind",
        "a registration: its publisher dies at any step",
        "a SQL catalog: kill -9 after every statement, lost answers to COMMIT",
        "AWS Glue (moto): an end or a lost answer at every call, two publishers",
        "a REST catalog: a lost answer to every request",
        "a folder: kill at every step",
        "a folder: a replacement, a zombie of the old one",
        "a topic: kill -9 at every step",
        "a topic: two publishers at once, a fenced zombie",
        "a topic: the broker dies in mid-transaction",
        "a topic: its place is gone or not its own",
        "a topic that is missing, a message that is too large, a null key",
        "PostgreSQL: kill -9 at every step, the server killed, the answer to COMMIT lost",
        "PostgreSQL: late, frozen and simultaneous publishers",
        "PostgreSQL: intervals in any order, replaced, with the same key in several",
        "PostgreSQL: rows, types and tables that do not fit",
        "PostgreSQL: a server that is silent or slow",
        "calls: kill -9 at every step, answers lost, late, doubled, out of order",
        "calls: two publishers at once, a zombie",
        "calls: a receiver that is unavailable, silent, busy or refuses",
        "calls: a key that is null or doubled",
        "e-mail: one per key over retries, replays and intervals",
        "e-mail in doubt: held or sent again",
        "publish on a real scheduler, under kill -9 in mid-publish",
    ),
    "State": (
        "a long ledger",
        "random orders of intervals, with replays and new code",
        "a guard that is dropped",
        "a lookback over time that is not committed",
        "several intervals in one run",
        "a replaced interval makes stale the intervals whose lookback contains it, and no others",
        "one run replaces what is stale",
        "lookback records that the log has lost, rows that are gone",
        "late, early and missing event times",
        "timestamps out of order, in the future, of dead letters and aborted records",
        "null keys",
        "sums whose digits depend on the order",
    ),
    "Rows and files": (
        "more dead letters than the pipeline allows",
        "a command on a store that is frozen",
        "a job that is no Python, or dies before it writes a result",
        "a declaration that would read nothing",
        "a replacement that turns rows into dead letters",
        "a replacement that holds fewer records and more dead letters",
        "rows of thousands of partition values in random order",
        "more partition values than a report can list",
        "a time outside the years 1 to 9999 that a job makes",
    ),
    "Local stack": (
        "a killed supervisor",
        "a process that started a stack and was killed",
        "a test run that is ended",
        "without the key of S3",
        "signed with another key, for another request or at another time",
        "without the password of Kafka",
        "in no argument, in no log",
        "started again over its state",
    ),
    "What is shown": (
        "counts of a commit in XCom, Asset event and the run's note",
        "the error's kind and next step on the run's page, in lines that fit",
        "gaps, stuck grants, pending intervals, losses by an exit code",
        "an interval that is all dead letters",
        "the lag where Kafka answers, and an end where it does not",
        "a question to `tally sql` that would run for ever",
        "a mistake in a DAG file, job, topic, warehouse or declaration, before the first run",
    ),
}


def sections() -> dict[str, str]:
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(part.split("\n", 1) for part in parts)


def lines(section: str) -> list[tuple[str, str]]:
    """Return (case, test) of each line of the section's table, without its head."""
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", sections()[section], re.MULTILINE)
    assert rows[:2] == [("case", "test"), ("---", "---")], section
    return rows[2:]


@cache
def known_in(path: Path) -> frozenset[str]:
    """Return the test functions of a file, also those in classes; a parametrised test counts once."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (
        n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return frozenset(name for name in found if name.startswith("test_"))


def test_the_page_has_its_sections_and_no_other() -> None:
    assert list(sections()) == [*CASES, "Chaos, played so far"]


def test_the_table_of_chaos_rounds_is_generated_from_its_file() -> None:
    courses = played.read()
    assert played.shown() == played.as_markdown(courses)
    for course in courses:
        assert course.nemesis in NEMESES, course
        assert course.rounds > 0, course
        assert course.seeds[0] <= course.seeds[1], course
        assert (course.duplicates, course.missing) == (0, 0), course


def test_chaos_rounds_are_added_once_and_summed_by_nemesis(tmp_path: Path) -> None:
    file, page = tmp_path / "chaos.json", tmp_path / "page.md"
    page.write_text(f"before\n{played.BEGIN}\nold\n{played.END}\nafter\n")
    line = Line(nemesis="task", what="", first_seed=5, last_seed=6, rounds=2, records=1_200)
    idle = Line(nemesis="s3", what="", first_seed=5, last_seed=5, missed=1)
    for date in ("2026-11-22", "2026-11-24", "2026-11-24"):
        courses = played.played_of([line, idle], date=date, commit="0123456789")
        played.keep(courses, file, page)
    assert [course.date for course in played.read(file)] == ["2026-11-22", "2026-11-24"]
    assert "| `task` | 4 | 2,400 | 0 | 0 | 2026-11-22 to 2026-11-24 | 5-6 |\n" in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith(f"{played.END}\nafter\n")
    assert played.shown(page) == played.as_markdown(played.read(file))
    file.write_text('[{"nemesis": "task"}]')
    with pytest.raises(ValueError, match="expected the fields"):
        played.read(file)


@pytest.mark.parametrize("section", CASES)
def test_every_test_that_a_line_names_exists(section: str) -> None:
    for case, cell in lines(section):
        if cell == OPEN:
            continue
        named = cell.split(" <br> ")
        for test in named:
            if chaos := re.fullmatch(r"`make chaos NEMESIS=([\w-]+)`", test):
                assert chaos[1] in NEMESES, (case, test)
                continue
            match = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", test)
            assert match is not None, (case, test)
            assert match[2] in known_in(ROOT / match[1]), (case, test)
        assert len(named) == len(set(named)), case


@pytest.mark.parametrize("section", CASES)
def test_every_case_that_must_be_there_has_a_line(section: str) -> None:
    found = [case for case, _ in lines(section)]
    assert [words for words in CASES[section] if not any(words in case for case in found)] == []
    assert len(found) == len(set(found)), "each case is listed once"


@pytest.mark.parametrize("section", CASES)
def test_the_counts_are_those_of_the_lines(section: str) -> None:
    counts = re.search(r"^(\d+) cases, (\d+) open\.", sections()[section], re.MULTILINE)
    assert counts is not None
    cells = [cell for _, cell in lines(section)]
    assert (int(counts[1]), int(counts[2])) == (len(cells), cells.count(OPEN))


def test_no_calendar_is_open() -> None:
    assert OPEN not in [cell for _, cell in lines("Calendars")]
