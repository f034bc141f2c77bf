"""What killed commits prepared is taken away by the next publisher, and nothing that anybody may yet publish."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import stage
from small_lake import SmallLake, days, pipeline
from tallystick.commit import commit
from tallystick.outputs.files import FileOutput, Folder
from tallystick.pipeline import Pipeline
from tallystick.protocol import keys
from tallystick.protocol.interval import Interval
from tallystick.publish import prepared, publish
from tallystick.tables.rows import StoredRows

FEED = "feed"


def declared(folder: Path, warehouse: str) -> Pipeline:
    """The small pipeline with a folder."""
    output = FileOutput(name=FEED, table="events", folder=str(folder))
    return replace(pipeline(warehouse), outputs=(output,))


@pytest.fixture
def small(tmp_path: Path) -> SmallLake:
    """A small lake with a folder as its output."""
    return SmallLake(declared=functools.partial(declared, tmp_path))


def folder(small: SmallLake) -> Folder:
    """The output."""
    (output,) = small.declared(small.store.uri).outputs
    assert isinstance(output, FileOutput)
    return Folder(output)


def prepare(small: SmallLake, interval: Interval, *, clear: int = 0) -> tuple[str, str]:
    """Plan and stage an interval, and prepare it as its commit would: then that process is killed."""
    (piece,) = small.plan(interval, clear=clear).pieces
    report_key = stage(small.lake, small.log, piece.plan)
    plan, report = small.lake.plan(piece.plan), small.lake.report(report_key)
    assert plan is not None
    assert report is not None
    folder(small).prepare(prepared(small.lake, FEED, None, plan, report, rows_of=StoredRows))
    return piece.plan, report_key


def left(small: SmallLake) -> list[str]:
    """The plans of which something is set aside."""
    return [one.plan for one in folder(small).leftovers()]


def uuid_of(plan: str) -> str:
    """A plan's own name."""
    return keys.plan_parts(plan)[1]


def test_what_was_prepared_for_a_superseded_plan_is_taken_away(
    small: SmallLake, tmp_path: Path
) -> None:
    lost, _ = prepare(small, days(1, 2))
    small.job = b"version 2"
    small.run(days(1, 2), clear=1)
    assert left(small) == [uuid_of(lost)]
    assert not publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert left(small) == []
    assert [p.name for p in tmp_path.glob("*.jsonl")] == [f"{days(1, 2).part}.jsonl"]


def test_it_is_taken_away_also_where_nothing_is_owed(small: SmallLake) -> None:
    small.run(days(2, 3))
    publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    prepare(small, days(1, 2))
    small.job = b"version 2"
    small.run(days(1, 2), clear=1)
    publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert left(small) == []


def test_what_a_plan_prepared_that_may_yet_be_committed_stays(small: SmallLake) -> None:
    small.run(days(2, 3))
    granted, report = prepare(small, days(1, 2))
    publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert left(small) == [uuid_of(granted)]
    # It is committed, and owed: a look between the swap and the rename leaves it, too.
    commit(small.lake, small.tables, plan_key=granted, report_key=report)
    publish(small.lake, {}, rows_of=StoredRows)
    assert left(small) == [uuid_of(granted)]
    publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert left(small) == []


def test_what_is_owed_and_could_not_be_published_stays(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, report = prepare(small, days(1, 2))
    commit(small.lake, small.tables, plan_key=plan, report_key=report)
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "publish", _is_down)
        (failed,) = publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert failed.interval == days(1, 2)
    assert left(small) == [uuid_of(plan)]


def test_a_zombie_that_prepares_again_what_is_published_is_tidied_up_after(
    small: SmallLake,
) -> None:
    plan_key, report_key = prepare(small, days(1, 2))
    commit(small.lake, small.tables, plan_key=plan_key, report_key=report_key)
    publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    plan, report = small.lake.plan(plan_key), small.lake.report(report_key)
    assert plan is not None
    assert report is not None
    folder(small).prepare(prepared(small.lake, FEED, None, plan, report, rows_of=StoredRows))
    assert left(small) == [uuid_of(plan_key)]
    publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert left(small) == []


def _is_down(*_: object, **__: object) -> None:
    raise OSError("the disk is away")
