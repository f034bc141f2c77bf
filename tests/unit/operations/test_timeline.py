"""Commits as a time line, the detail of one interval, and the comparison of two commits, on a small lake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.small_lake import SmallLake, days, good_lake
from tallystick.errors import InvalidRequest, NothingPlanned
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations import compare as comparing
from tallystick.operations.compare import ComparedColumn, ComparedOption, Comparison, compare
from tallystick.operations.interval_detail import read_interval
from tallystick.operations.status import read_log
from tallystick.operations.status.timeline import TableRows, read_timeline
from tallystick.pipeline import Column, Pipeline
from tallystick.store.memory import MemoryStore


@pytest.fixture
def lake() -> SmallLake:
    return good_lake()


def versions(lake: SmallLake) -> list[int]:
    """Return the versions of the commits, oldest first."""
    return [line.version for line in reversed(read_log(lake.lake, limit=None).commits)]


# ---------------------------------------------------------------- time line


def test_each_commit_has_the_rows_and_bytes_of_its_report_and_the_time_of_its_plan(
    lake: SmallLake,
) -> None:
    timeline = read_timeline(lake.lake, limit=50)
    log = read_log(lake.lake, limit=None)
    assert [one.record for one in timeline.commits] == [one.record for one in log.commits]
    assert timeline.before is None
    for commit in timeline.commits:
        (one,) = commit.intervals
        plan = lake.lake.plan(one.committed.plan)
        assert plan is not None
        assert one.planned_at == plan.planned_at
        assert one.tables is not None
        if one.committed.report is None:
            assert one.tables == {}
            continue
        report = lake.lake.report(one.committed.report)
        assert report is not None
        for name, rows in one.tables.items():
            files = [f for f in report.files if f.table == name]
            assert rows == TableRows(
                files=len(files),
                rows=sum(f.rows for f in files),
                size_bytes=sum(f.size_bytes for f in files),
            )
        assert one.tables["dead_letters"].rows == one.committed.totals.dead_letters == 2


def test_the_time_line_is_read_in_parts(lake: SmallLake) -> None:
    whole = read_timeline(lake.lake, limit=50).commits
    first = read_timeline(lake.lake, limit=2)
    rest = read_timeline(lake.lake, limit=50, before=first.before)
    assert (len(first.commits), first.commits + rest.commits) == (2, whole)


def test_rows_of_a_report_or_a_plan_that_is_gone_are_unknown(lake: SmallLake) -> None:
    newest = read_timeline(lake.lake, limit=1).commits[0].intervals[0].committed
    assert newest.report is not None
    lake.store.delete([newest.report, newest.plan])
    (one,) = read_timeline(lake.lake, limit=1).commits[0].intervals
    assert (one.planned_at, one.tables) == (None, None)
    lake.store.create(newest.report, b"{}")
    assert read_timeline(lake.lake, limit=1).commits[0].intervals[0].tables is None


def test_the_time_line_ends_at_a_record_that_is_gone(lake: SmallLake) -> None:
    log = read_log(lake.lake, limit=None).commits
    lake.store.delete([log[2].record])
    timeline = read_timeline(lake.lake, limit=50)
    assert [one.record for one in timeline.commits] == [one.record for one in log[:2]]
    assert timeline.before is None


# ---------------------------------------------------------------- one interval


def test_an_interval_has_its_commits_newest_first_and_its_attempts(lake: SmallLake) -> None:
    found = read_interval(lake.lake, days(2, 3))
    assert [one.intervals[0].committed.generation for one in found.history] == [2, 1]
    assert found.entry.committed is not None
    assert found.history[0].record == found.entry.committed.record
    assert found.history[1].record == found.history[0].intervals[0].committed.replaces
    assert found.report is not None
    assert found.report.key in found.reports
    assert len(found.reports) == 2
    assert found.plan is not None
    assert found.plan.key == found.entry.committed.plan
    assert (found.grant, found.stale, dict(found.outputs)) == (None, None, {})


def test_a_granted_interval_has_its_plan_and_nothing_committed(lake: SmallLake) -> None:
    found = read_interval(lake.lake, days(6, 7))
    assert found.grant is not None
    assert found.grant.plan is not None
    assert found.grant.plan.key == found.grant.granted.plan
    assert (found.history, found.report, found.plan, found.reports) == ((), None, None, ())


def test_a_replacement_in_progress_has_both(lake: SmallLake) -> None:
    lake.plan(days(1, 2), run="manual__1", mode="replace")
    found = read_interval(lake.lake, days(1, 2))
    assert found.grant is not None
    assert len(found.history) == 1
    lake.store.delete([found.grant.granted.plan])
    again = read_interval(lake.lake, days(1, 2))
    assert again.grant is not None
    assert again.grant.plan is None


@pytest.mark.parametrize("interval", [days(4, 5), days(2, 4), days(20, 21)])
def test_an_interval_that_the_ledger_does_not_have_is_refused(
    lake: SmallLake, interval: Any
) -> None:
    with pytest.raises(InvalidRequest, match="has no interval"):
        read_interval(lake.lake, interval)


def test_a_lake_without_a_root_has_no_interval() -> None:
    empty = SmallLake()
    with pytest.raises(NothingPlanned):
        read_interval(
            Lake(MemoryStore("none"), empty.runtime, proven=True, begun=False), days(1, 2)
        )


# ---------------------------------------------------------------- comparison


def changed(lake: SmallLake, left: int = 0, right: int = -1) -> Comparison:
    known = versions(lake)
    return compare(lake.lake, left=known[left], right=known[right])


def test_a_comparison_lists_the_intervals_with_their_totals_before_and_after(
    lake: SmallLake,
) -> None:
    found = changed(lake)
    assert found.commits == 4
    assert [one.interval for one in found.intervals] == [days(1, 2), days(2, 3), days(5, 6)]
    assert [one.commits for one in found.intervals] == [1, 2, 1]
    assert [one.before for one in found.intervals] == [None, None, None]
    replaced = changed(lake, left=-2)
    (one,) = replaced.intervals
    assert one.interval == days(2, 3)
    assert one.before == one.after
    assert one.code_changed
    assert found.declaration == replaced.declaration == ()
    assert {t.name: (t.files_added, t.files_dropped) for t in replaced.tables} == {
        "dead_letters": (2, 2),
        "events": (2, 2),
        "per_kind": (1, 1),
    }
    assert all(t.columns == () for t in replaced.tables)


def test_a_comparison_names_changed_columns_and_options(lake: SmallLake) -> None:
    before = lake.declared

    def wider(warehouse: str) -> Pipeline:
        declared = before(warehouse)
        events = declared.tables[0]
        columns = (*events.columns, Column("extra", "string", required=False))
        return replace(
            declared,
            tables=(replace(events, columns=columns), *declared.tables[1:]),
            records_per_task=7,
        )

    lake.declared = wider
    lake.run(days(4, 5))
    found = changed(lake, left=-2)
    (events,) = [t for t in found.tables if t.name == "events"]
    assert [(c.before, c.after) for c in events.columns] == [(None, "extra string")]
    assert isinstance(events.columns[0], ComparedColumn)
    assert found.declaration is not None
    options = {one.path: one for one in found.declaration}
    assert all(isinstance(one, ComparedOption) for one in options.values())
    assert options["tables[events].columns[extra].type"].after == "string"
    assert options["tables[events].columns[extra].type"].before is None
    assert options.pop("records_per_task").after == 7
    assert {path.rpartition(".")[0] for path in options} == {
        "tables[events].columns[extra]",
        "topics[events].decode.columns[extra]",
    }


def test_versions_between_commits_are_those_of_the_commit_before(lake: SmallLake) -> None:
    known = versions(lake)
    found = compare(lake.lake, left=known[-2] + 1, right=10**6)
    assert (found.left, found.right, found.commits) == (known[-2], known[-1], 1)
    nothing = compare(lake.lake, left=known[-1], right=10**6)
    assert (nothing.left, nothing.right, nothing.commits) == (known[-1], known[-1], 0)
    assert (nothing.intervals, nothing.tables, nothing.declaration) == ((), (), ())


@pytest.mark.parametrize(("left", "right"), [(5, 5), (6, 5), (0, 5), (-1, 3)])
def test_versions_in_the_wrong_order_are_refused(lake: SmallLake, left: int, right: int) -> None:
    with pytest.raises(InvalidRequest, match="expected two versions, the earlier one first"):
        compare(lake.lake, left=left, right=right)


def test_a_version_before_the_first_commit_is_refused(lake: SmallLake) -> None:
    with pytest.raises(InvalidRequest, match="no commit at version 1"):
        compare(lake.lake, left=1, right=5)


def test_too_many_commits_are_refused(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "COMMITS_MAX", 3)
    with pytest.raises(InvalidRequest, match="more than 3 commits"):
        changed(lake)
    assert changed(lake, left=1).commits == 3


def test_a_declaration_of_a_plan_that_is_gone_is_unknown(lake: SmallLake) -> None:
    newest = read_timeline(lake.lake, limit=1).commits[0].intervals[0].committed
    lake.store.delete([newest.plan])
    assert changed(lake).declaration is None
    lake.store.create(keys.check_plan(newest.plan), b"{}")
    assert changed(lake).declaration is None
