"""Leftovers of killed publishers: the next publisher removes them, and nothing that may still be published."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from support.small_lake import SmallLake, days, pipeline
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.operations.publish import publication_of, publish
from tallystick.outputs.files import FileOutput, Folder
from tallystick.outputs.port import Publication
from tallystick.pipeline import Pipeline
from tallystick.protocol import publishing as slots
from tallystick.tables.rows import StoredRows

FEED = "feed"


def declared(folder: Path, warehouse: str) -> Pipeline:
    """Return the small pipeline with a folder."""
    output = FileOutput(name=FEED, table="events", folder=str(folder))
    return replace(pipeline(warehouse), outputs=(output,))


@pytest.fixture
def small(tmp_path: Path) -> SmallLake:
    """Return a small lake with a folder as its output."""
    return SmallLake(declared=functools.partial(declared, tmp_path))


def folder(small: SmallLake) -> Folder:
    """Return the output."""
    (output,) = small.declared(small.store.uri).outputs
    assert isinstance(output, FileOutput)
    return Folder(output)


def prepare(small: SmallLake, interval: Interval) -> str:
    """Prepare a committed interval as a publisher that is killed after it; return its plan."""
    entry = small.lake.load_existing().ledger(interval.start, interval.end).entry(interval)
    assert entry is not None
    assert entry.committed is not None
    plan = keys.plan_parts(entry.committed.plan)[1]
    step = slots.Start(plan=plan, instead_of=None)
    publication = publication_of(small.lake, "small", FEED, entry, step, rows_of=StoredRows)
    folder(small).prepare(publication)
    return plan


def left(small: SmallLake) -> list[str]:
    """Return the plans that have leftovers."""
    return [leftover.plan for leftover in folder(small).leftovers()]


def test_leftovers_of_a_replaced_plan_are_removed(small: SmallLake, tmp_path: Path) -> None:
    small.run(days(1, 2))
    lost = prepare(small, days(1, 2))
    small.job = b"version 2"
    small.run(days(1, 2), clear=1)
    assert left(small) == [lost]
    assert not publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert left(small) == []
    assert [p.name for p in tmp_path.glob("*.jsonl")] == [f"{days(1, 2).part}.jsonl"]


def test_leftovers_are_removed_even_if_nothing_is_pending(small: SmallLake) -> None:
    small.run(days(1, 2))
    publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    prepare(small, days(1, 2))
    publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert left(small) == []


def test_the_preparation_of_a_failed_publication_stays(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.run(days(1, 2))
    plan = prepare(small, days(1, 2))
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "publish", _is_down)
        (failed,) = publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert failed.interval == days(1, 2)
    assert left(small) == [plan]


def test_a_preparation_is_aborted_at_once_if_its_plan_was_replaced_meanwhile(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.run(days(1, 2))
    aborted: list[str] = []
    prepares, aborts = Folder.prepare, Folder.abort

    def replaced_meanwhile(self: Folder, publication: Publication) -> None:
        prepares(self, publication)
        if small.job == b"version 1":
            small.job = b"version 2"
            small.run(days(1, 2), clear=1)

    def recorded(self: Folder, publication: Publication) -> None:
        assert left(small) == [publication.plan]
        aborts(self, publication)
        assert left(small) == []
        aborted.append(publication.plan)

    monkeypatch.setattr(Folder, "prepare", replaced_meanwhile)
    monkeypatch.setattr(Folder, "abort", recorded)
    assert not publish(small.lake, {FEED: lambda: folder(small)}, rows_of=StoredRows)
    assert len(aborted) == 1


def _is_down(*_: object, **__: object) -> None:
    raise OSError("the disk is away")
