"""Sorted shared files: the rows of different days are mixed, and those of each day are found by the row order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from support.small_lake import SmallLake, day, days, pipeline
from tallystick.engine import rewriting
from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.compaction import Compaction, RowOrder, SharedFile
from tallystick.operations.compact import CompactOptions, compact
from tallystick.operations.compact.local import LocalWriter
from tallystick.operations.gc import collect
from tallystick.operations.status.files import read_files
from tallystick.operations.verify import Proof, verify
from tallystick.pipeline import Column, Pipeline, Table, Upkeep
from tallystick.store.memory import MemoryStore
from tallystick.tables.reach import IcebergReach
from tallystick.tables.reading import deleted_positions, live_files, static_table

OPTIONS = CompactOptions(until=day(9), files_min=2)


def by_kind(warehouse: str) -> Pipeline:
    """Declare the events sorted by kind and then number: hours of all days have the same kinds."""
    declared = pipeline(warehouse)
    events, per_kind = declared.tables
    return replace(
        declared, tables=[replace(events, upkeep=Upkeep(sort_by=["kind", "n"])), per_kind]
    )


@cache
def built() -> SmallLake:
    """Return a lake whose days 1 to 4 are in one sorted file of events, to be copied."""
    found = SmallLake(declared=by_kind)
    for number in range(1, 5):
        found.run(days(number, number + 1))
    compacted(found)
    return found


@pytest.fixture
def lake() -> SmallLake:
    """Return a lake whose days 1 to 4 are in one sorted file of events."""
    return built().copy()


def compacted(lake: SmallLake) -> Any:
    return compact(lake.lake, lake.tables, LocalWriter(lake.lake), OPTIONS)


def metadata(lake: SmallLake) -> str:
    found = lake.lake.load_existing().root.tables["events"].metadata
    assert found is not None
    return found


def rows(lake: SmallLake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        static_table(lake.store, metadata(lake)).scan().to_arrow().to_pylist()
    )
    return found


def compactions(lake: SmallLake) -> list[Compaction]:
    found = [
        lake.lake.compaction(key)
        for key in lake.keys("compactions/events/")
        if key.endswith("json")
    ]
    return [one for one in found if one is not None]


def order_of(shared: SharedFile) -> RowOrder:
    assert shared.order is not None
    return shared.order


def order(lake: SmallLake) -> str:
    """Return the key of the row order of the lake's only sorted file."""
    (compaction,) = compactions(lake)
    (shared,) = compaction.files
    return order_of(shared).key


def findings(proof: Proof) -> list[str]:
    return [str(f) for check in proof.checks for f in check.findings]


def is_sorted(found: list[dict[str, Any]]) -> bool:
    wanted = [(row["kind"] is not None, row["kind"], row["n"]) for row in found]
    return wanted == sorted(wanted)


def test_rows_are_sorted_across_days(lake: SmallLake) -> None:
    (file,) = live_files(lake.store, metadata(lake))
    assert keys.kind(file.key) == "shared file"
    assert is_sorted(rows(lake))
    (compaction,) = compactions(lake)
    ids = {c.name: c.id for c in lake.lake.load_existing().root.tables["events"].columns}
    assert order_of(compaction.files[0]).sorted_by == (ids["kind"], ids["n"])
    assert findings(verify(lake.lake, deep=True)) == []


def test_the_rows_of_a_replaced_day_are_deleted_at_their_positions(lake: SmallLake) -> None:
    before = rows(lake)
    lake.job = b"version 2"
    lake.run(days(2, 3), clear=1, keep=lambda _: False, accept_compaction=True)
    (shared,) = [f for f in live_files(lake.store, metadata(lake)) if f.deleted]
    positions = list(deleted_positions(lake.store, shared))
    assert positions[-1] - positions[0] + 1 > len(positions), "they are not together"
    in_day_2 = [n for n, row in enumerate(before) if day(2) <= row["_timestamp"] < day(3)]
    assert positions == in_day_2
    assert rows(lake) == [row for n, row in enumerate(before) if n not in in_day_2]
    assert findings(verify(lake.lake, deep=True)) == []


def test_the_positions_of_a_delete_file_are_verified(lake: SmallLake) -> None:
    """The rows of another day are deleted instead, as many as before: only the deep check reads the positions."""
    lake.job = b"version 2"
    lake.run(days(2, 3), clear=1, keep=lambda _: False, accept_compaction=True)
    (compaction,) = compactions(lake)
    runs = compaction.files[0].runs
    one, two = ([r for r in runs if r.interval == days(n, n + 1)] for n in (1, 2))
    assert [r.rows for r in one] == [r.rows for r in two]
    assert runs[: len(one) + len(two)] == (*one, *two)
    # As if the runs of these days had another order: then each day's rows are those of the other.
    swapped = replace(compaction.files[0], runs=(*two, *one, *runs[len(one) + len(two) :]))
    lake.overwrite(compaction.key, replace(compaction, files=(swapped,)).encode())
    assert any("I13" in one for one in findings(verify(lake.lake, deep=True)))


@pytest.mark.parametrize("deep", [False, True])
def test_a_row_order_that_is_gone_is_a_finding(lake: SmallLake, deep: bool) -> None:
    key = order(lake)
    lake.store.delete([key])
    found = findings(verify(lake.lake, deep=deep))
    assert any(key in one and "I3" in one for one in found), found


@pytest.mark.parametrize("deep", [False, True])
def test_another_row_order_is_a_finding(lake: SmallLake, deep: bool) -> None:
    key = order(lake)
    lake.overwrite(key, b"another")
    found = findings(verify(lake.lake, deep=deep))
    assert any(key in one and "I3" in one for one in found), found


@pytest.mark.parametrize("damage", ["gone", "another"])
def test_a_replacement_without_the_row_order_is_refused_and_changes_nothing(
    lake: SmallLake, damage: str
) -> None:
    key, before = order(lake), rows(lake)
    if damage == "gone":
        lake.store.delete([key])
    else:
        lake.overwrite(key, b"another")
    lake.job = b"version 2"
    with pytest.raises(Corrupt, match=key):
        lake.run(days(2, 3), clear=1)
    assert rows(lake) == before


def test_sorted_files_are_compacted_again_with_new_files(lake: SmallLake) -> None:
    lake.job = b"version 2"
    lake.run(days(2, 3), clear=1, keep=lambda r: r.value.get("n") != 1, accept_compaction=True)
    lake.run(days(5, 6))
    lake.run(days(6, 7))
    before = sorted(rows(lake), key=repr)
    compacted(lake)
    assert len(list(live_files(lake.store, metadata(lake)))) == 1
    assert sorted(rows(lake), key=repr) == before
    assert is_sorted(rows(lake))
    assert findings(verify(lake.lake, deep=True)) == []
    for number in range(1, 5):
        lake.job = f"version {number + 2}".encode()
        lake.run(days(number, number + 1), clear=2)
        assert findings(verify(lake.lake, deep=True)) == []


@pytest.mark.parametrize("snapshots_kept", [1, 50])
def test_gc_keeps_a_row_order_as_long_as_an_entry_or_a_snapshot_needs_it(
    snapshots_kept: int,
) -> None:
    """A stage that found its rows in a sorted file reads the row order later: it stays as long as the file."""

    def declared(warehouse: str) -> Pipeline:
        upkeep = Upkeep(sort_by=["kind", "n"], snapshots_kept=snapshots_kept)
        found = by_kind(warehouse)
        return replace(found, tables=[replace(found.tables[0], upkeep=upkeep), *found.tables[1:]])

    lake = SmallLake(declared=declared)
    for number in range(1, 5):
        lake.run(days(number, number + 1))
    compacted(lake)
    key = order(lake)

    def collected() -> None:
        collect(lake.lake, IcebergReach(lake.store), delete=True, reader_grace=timedelta(0))

    collected()
    assert lake.store.get(key) is not None
    for number in range(1, 5):
        lake.job = f"version {number + 1}".encode()
        lake.run(days(number, number + 1), clear=1)
        assert findings(verify(lake.lake, deep=True)) == []
    rules = {
        o.rule
        for o in read_files(lake.lake, reader_grace=timedelta(0)).objects
        if o.what == "row order"
    }
    collected()
    is_there = lake.store.get(key) is not None
    assert is_there is (snapshots_kept == 50)
    assert rules == ({"history"} if is_there else {"nothing"})
    assert findings(verify(lake.lake, deep=True)) == []


def test_the_answer_of_all_files_has_the_row_order_with_its_rule() -> None:
    lake = SmallLake(store=MemoryStore(), declared=by_kind)
    for number in range(1, 4):
        lake.run(days(number, number + 1))
    compacted(lake)
    answer = read_files(lake.lake)
    (found,) = [one for one in answer.objects if one.what == "row order"]
    assert (found.rule, found.heap.objects) == ("current", 1)


def renamed(warehouse: str) -> Pipeline:
    declared = by_kind(warehouse)
    columns = [
        Column("number", "long", source="n", renamed_from="n"),
        Column("sort", "string", required=False, source="kind", renamed_from="kind"),
    ]
    events = Table("events", columns=columns, upkeep=Upkeep(sort_by=["sort", "number"]))
    return replace(declared, tables=[events, *declared.tables[1:]])


def with_a_new_column(warehouse: str) -> Pipeline:
    declared = by_kind(warehouse)
    columns = [*declared.tables[0].columns, Column("more", "string", required=False)]
    events = Table("events", columns=columns, upkeep=Upkeep(sort_by=["more", "kind", "n"]))
    return replace(declared, tables=[events, *declared.tables[1:]])


@pytest.mark.parametrize("declared", [renamed, with_a_new_column])
@pytest.mark.parametrize("commits", [0, 1])
def test_columns_that_changed_since_are_sorted_by(
    declared: Callable[[str], Pipeline], commits: int
) -> None:
    """Without a commit since, the metadata still has the columns before: a plan changes only the root."""
    lake = SmallLake(declared=by_kind)
    for number in range(1, 4):
        lake.run(days(number, number + 1))
    lake.declared = declared
    if commits:
        lake.run(days(4, 5))
    else:
        lake.plan(days(4, 5))
    compacted(lake)
    (file,) = [
        f for f in live_files(lake.store, metadata(lake)) if keys.kind(f.key) == "shared file"
    ]
    found = rows(lake)
    assert len(found) == file.rows
    names = ("sort", "number") if "sort" in found[0] else ("kind", "n")
    assert is_sorted([{"kind": row[names[0]], "n": row[names[1]]} for row in found])
    assert findings(verify(lake.lake, deep=True)) == []


def test_a_file_that_arrow_cannot_sort_is_left_in_the_order_of_its_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = SmallLake(declared=by_kind)
    for number in range(1, 4):
        lake.run(days(number, number + 1))
    before = sorted(rows(lake), key=repr)
    monkeypatch.setattr(rewriting, "SORT_BYTES_MAX", 100)
    compacted(lake)
    (compaction,) = compactions(lake)
    assert [shared.order for shared in compaction.files] == [None]
    assert sorted(rows(lake), key=repr) == before
    assert findings(verify(lake.lake, deep=True)) == []


def test_the_manifest_names_the_sort_order_of_a_sorted_file_alone(lake: SmallLake) -> None:
    lake.job = b"version 2"
    lake.run(days(2, 3), clear=1)
    table = static_table(lake.store, metadata(lake))
    found = {task.file.sort_order_id for task in table.scan().plan_files()}
    assert found == {None, table.sort_order().order_id}
    assert not table.sort_order().is_unsorted


def test_an_order_that_changed_while_rows_were_sorted_is_not_that_of_the_file() -> None:
    """The file names the order that it has, which is not the default order of the table any more."""
    lake = SmallLake(declared=by_kind)
    for number in range(1, 4):
        lake.run(days(number, number + 1))

    def by_number(warehouse: str) -> Pipeline:
        declared = by_kind(warehouse)
        events = replace(declared.tables[0], upkeep=Upkeep(sort_by=["n"]))
        return replace(declared, tables=[events, *declared.tables[1:]])

    class Meanwhile(LocalWriter):
        def write(self, *arguments: Any) -> Any:
            yield from super().write(*arguments)
            lake.declared = by_number
            lake.run(days(5, 6))

    compact(lake.lake, lake.tables, Meanwhile(lake.lake), OPTIONS)
    table = static_table(lake.store, metadata(lake))
    ids = {c.name: c.id for c in lake.lake.load_existing().root.tables["events"].columns}
    orders = {o.order_id: tuple(f.source_id for f in o.fields) for o in table.metadata.sort_orders}
    (file,) = [t.file for t in table.scan().plan_files() if "/shared/" in t.file.file_path]
    assert orders[file.sort_order_id] == (ids["kind"], ids["n"])
    assert orders[table.metadata.default_sort_order_id] == (ids["n"],)
