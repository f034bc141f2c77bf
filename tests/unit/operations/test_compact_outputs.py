"""Tables that feed outputs are compacted, too: a replacement still removes exactly the rows that were sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from support.fake_output import Declared, FakeOutput, Wire
from support.small_lake import SmallLake, day, days, with_short_history
from tallystick.format import keys
from tallystick.operations.compact import CompactOptions, CompactResult, compact
from tallystick.operations.compact.local import LocalWriter
from tallystick.operations.gc import collect
from tallystick.operations.gc.marking import Marking
from tallystick.operations.publish import NotPublished, publish
from tallystick.operations.status.files import read_files
from tallystick.operations.verify import verify
from tallystick.pipeline import Pipeline
from tallystick.store.memory import MemoryStore
from tallystick.tables.reach import IcebergReach
from tallystick.tables.reading import static_table
from tallystick.tables.rows import StoredRows


def feeding(warehouse: str) -> Pipeline:
    """Declare an output of the events. The metadata lists one snapshot: moved files are in none soon."""
    return replace(with_short_history(warehouse), outputs=[Declared(name="feed", table="events")])


@cache
def built() -> SmallLake:
    """Return a lake with the days 1 to 4, which are not published yet, to be copied."""
    found = SmallLake(store=MemoryStore(), declared=feeding)
    for number in range(1, 5):
        found.run(days(number, number + 1))
    return found


@pytest.fixture
def lake() -> SmallLake:
    """Return a lake with the days 1 to 4, which are not published yet."""
    return built().copy()


def compacted(lake: SmallLake) -> CompactResult:
    options = CompactOptions(until=day(9), files_min=2)
    return compact(lake.lake, lake.tables, LocalWriter(lake.lake), options)


def send(lake: SmallLake, wire: Wire) -> tuple[NotPublished, ...]:
    return publish(lake.lake, {"feed": lambda: FakeOutput(wire)}, rows_of=StoredRows)


def collected(lake: SmallLake) -> None:
    reach = IcebergReach(lake.store)
    collect(lake.lake, reach, delete=True, reader_grace=timedelta(0), cancel_after=None)


def staged(lake: SmallLake, table: str) -> list[str]:
    """Return the files of the table that were staged and are still there."""
    return [k for k in lake.data_files(table) if keys.kind(k) == "data file"]


def offsets(lake: SmallLake) -> list[tuple[int, int]]:
    metadata = lake.lake.load_existing().root.tables["events"].metadata
    assert metadata is not None
    rows: list[dict[str, Any]] = static_table(lake.store, metadata).scan().to_arrow().to_pylist()
    return sorted((row["_kafka_partition"], row["_offset"]) for row in rows)


def sent(wire: Wire, lake: SmallLake) -> list[tuple[int, int]]:
    """Return (partition, offset) of the rows that the receiver has."""
    table = lake.lake.load_existing().root.tables["events"]
    names = [c.name for c in table.columns]
    partition, offset = names.index("_kafka_partition"), names.index("_offset")
    return sorted((row[partition], row[offset]) for row in wire.rows())


def test_an_interval_that_an_output_still_lacks_is_not_compacted(lake: SmallLake) -> None:
    assert compacted(lake).tables == {}
    assert send(lake, Wire()) == ()
    assert sorted(compacted(lake).tables) == ["dead_letters", "events", "per_kind"]


@pytest.mark.parametrize("collections", [0, 2])
def test_a_replacement_after_a_compaction_removes_exactly_what_was_sent(
    lake: SmallLake, collections: int
) -> None:
    wire = Wire()
    send(lake, wire)
    compacted(lake)
    for _ in range(collections):
        collected(lake)
    lake.job = b"version 2"
    lake.run(days(2, 3), clear=1, keep=lambda r: r.value.get("n") != 1, accept_compaction=True)
    for _ in range(collections):
        collected(lake)
    assert send(lake, wire) == ()
    assert sent(wire, lake) == offsets(lake)
    assert wire.duplicates() == []
    proof = verify(lake.lake, deep=True)
    assert proof.proven, [str(f) for c in proof.checks for f in c.findings]


def test_gc_keeps_moved_files_only_of_tables_that_feed_an_output(lake: SmallLake) -> None:
    send(lake, Wire())
    compacted(lake)
    before = staged(lake, "events")
    collected(lake)
    assert staged(lake, "events") == before
    assert staged(lake, "per_kind") == []
    kept = {(one.what, one.rule) for table in read_files(lake.lake).tables for one in table.objects}
    assert ("data file", "outputs") in kept


def test_files_of_a_plan_that_was_replaced_and_published_are_collected(lake: SmallLake) -> None:
    wire = Wire()
    send(lake, wire)
    compacted(lake)
    old = set(staged(lake, "events"))
    for number in range(1, 5):
        lake.job = f"version {number + 1}".encode()
        lake.run(days(number, number + 1), clear=1)
    send(lake, wire)
    collected(lake)
    assert not old & set(staged(lake, "events"))
    assert sent(wire, lake) == offsets(lake)


def test_without_the_rule_of_gc_the_rows_to_remove_are_gone(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: gc deletes what compactions have moved, also of tables that feed an output."""
    wire = Wire()
    send(lake, wire)
    compacted(lake)
    real = Marking._moved_from
    monkeypatch.setattr(Marking, "_moved_from", lambda m, e: replace(real(m, e), added={}))
    collected(lake)
    monkeypatch.undo()
    lake.job = b"version 2"
    lake.run(days(2, 3), clear=1)
    (failed,) = send(lake, wire)
    assert "does not exist, and an output needs its rows" in str(failed.error)


def test_a_plan_that_is_gone_keeps_the_moved_files_of_all_tables(lake: SmallLake) -> None:
    send(lake, Wire())
    compacted(lake)
    before = staged(lake, "per_kind")
    entry = lake.lake.load_existing().ledger(day(1), day(2)).entry(days(1, 2))
    assert entry is not None
    assert entry.committed is not None
    lake.store.delete([entry.committed.plan])
    collected(lake)
    assert [k for k in before if entry.interval.part in k] == staged(lake, "per_kind")
