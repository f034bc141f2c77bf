"""All objects of a lake with the rule that keeps each: complete, and in agreement with gc."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.fake_output import Declared, FakeOutput, Wire
from support.fakes import stage
from support.small_lake import NOW, SmallLake, day, days, good_lake, with_short_history
from tallystick.errors import Corrupt, RootVanished
from tallystick.format import keys
from tallystick.format.registrations import Registration
from tallystick.lake import Lake
from tallystick.operations.compact import CompactOptions, compact
from tallystick.operations.compact.local import LocalWriter
from tallystick.operations.gc import Collection, Heap, collect
from tallystick.operations.publish import publish
from tallystick.operations.status import files, read_tables
from tallystick.operations.status.files import FilesOfTable, LakeFiles, StoredObjects, read_files
from tallystick.operations.status.kept import KeptBy, Rule
from tallystick.pipeline import Pipeline
from tallystick.protocol.retention import Marked
from tallystick.store import Stored
from tallystick.store.memory import MemoryStore
from tallystick.tables.files import FilesReader
from tallystick.tables.reach import IcebergReach
from tallystick.tables.rows import StoredRows

GRACES = (timedelta(0), timedelta(hours=24))


@pytest.fixture
def small() -> SmallLake:
    return good_lake(MemoryStore(now=lambda: NOW))


@pytest.fixture
def short_history() -> SmallLake:
    """Return a lake whose metadata lists one snapshot, replaced twice: old files are in no snapshot any more."""
    small = good_lake(MemoryStore(now=lambda: NOW), declared=with_short_history)
    for clear in (1, 2):
        small.job += b"!"
        small.run(days(3, 4), clear=clear)
    return small


@pytest.fixture
def compacted() -> SmallLake:
    """Return a lake with shared files, of which a replacement has deleted rows."""
    small = SmallLake(store=MemoryStore(now=lambda: NOW))
    for number in range(1, 5):
        small.run(days(number, number + 1))
    options = CompactOptions(until=day(9), files_min=2)
    compact(small.lake, small.tables, LocalWriter(small.lake), options)
    small.job = b"version 2"
    small.run(days(2, 3), run="again", mode="replace")
    return small


def collection(small: SmallLake, *, delete: bool = False, grace: timedelta) -> Collection:
    lake = Lake(small.store, small.runtime, proven=True)
    reach = IcebergReach(small.store)
    return collect(lake, reach, delete=delete, reader_grace=grace, cancel_after=None)


def every(answer: LakeFiles) -> list[StoredObjects]:
    return [*answer.objects, *(one for table in answer.tables for one in table.objects)]


def kept_by(answer: LakeFiles, rule: Rule) -> dict[str, int]:
    """Return the number of objects that a rule keeps, by sort."""
    found = Counter[str]()
    for one in every(answer):
        if one.rule == rule:
            found[one.what] += one.heap.objects
    return dict(found)


def table_of(answer: LakeFiles, name: str) -> FilesOfTable:
    return next(one for one in answer.tables if one.table.name == name)


# ---------------------------------------------------------------- complete, and as gc


@pytest.mark.parametrize("grace", GRACES)
@pytest.mark.parametrize("lake", ["small", "short_history", "compacted"])
def test_nothing_needs_exactly_what_gc_would_delete(
    request: pytest.FixtureRequest, lake: str, grace: timedelta
) -> None:
    small: SmallLake = request.getfixturevalue(lake)
    small.store.create("readme.txt", b"mine")
    answer = read_files(small.lake, reader_grace=grace)
    unneeded = sum((one.heap for one in every(answer) if one.rule == "nothing"), Heap())
    assert unneeded == collection(small, grace=grace).total
    assert unneeded.objects > 0
    assert kept_by(answer, "doubt") == {}
    collection(small, delete=True, grace=grace)
    assert kept_by(read_files(small.lake, reader_grace=grace), "nothing") == {}


@pytest.mark.parametrize("lake", ["small", "short_history", "compacted"])
def test_each_object_is_counted_once(request: pytest.FixtureRequest, lake: str) -> None:
    small: SmallLake = request.getfixturevalue(lake)
    small.store.create("readme.txt", b"mine")
    small.store.create("tables/gone/metadata/00000-a.metadata.json", b"{}")
    listed = list(small.store.list(""))
    total = sum((one.heap for one in every(read_files(small.lake))), Heap())
    assert total == Heap(objects=len(listed), size_bytes=sum(o.size_bytes for o in listed))


def test_it_writes_nothing(small: SmallLake) -> None:
    assert isinstance(small.store, MemoryStore)
    before = dict(small.store._objects)
    read_files(small.lake)
    assert small.store._objects == before


@pytest.mark.parametrize("lake", ["small", "compacted"])
def test_the_counts_of_live_files_are_those_of_the_tables(
    request: pytest.FixtureRequest, lake: str
) -> None:
    small: SmallLake = request.getfixturevalue(lake)
    answer = read_files(small.lake)
    assert [one.table for one in answer.tables] == list(read_tables(small.lake).tables)
    for one in answer.tables:
        live = Heap(objects=one.table.files, size_bytes=one.table.size_bytes)
        assert sum(one.sizes, Heap()) == live
        assert live == next(
            o.heap for o in one.objects if (o.what, o.rule) == ("data file", "current")
        )


def test_what_is_reached_is_what_gc_reaches(small: SmallLake) -> None:
    for table in small.lake.load_existing().root.tables.values():
        assert table.metadata is not None
        found = FilesReader(small.store).table_files(table.metadata)
        assert found.current | found.older == IcebergReach(small.store).reached([table.metadata])
        assert not found.current & found.older


def test_older_versions_are_reached_as_gc_reaches_them(short_history: SmallLake) -> None:
    small = short_history
    every_version = [k for k in small.keys("tables/") if k.endswith(".metadata.json")]
    reader = FilesReader(small.store)
    for table in small.lake.load_existing().root.tables.values():
        assert table.metadata is not None
        reader.table_files(table.metadata)
    assert reader.reached(every_version) == IcebergReach(small.store).reached(every_version)
    assert reader.reached([]) == frozenset()


class Counting(MemoryStore):
    """A store that counts how often each object is read."""

    def __init__(self) -> None:
        super().__init__(now=lambda: NOW)
        self.read = Counter[str]()

    def get(self, key: str) -> Stored | None:
        self.read[key] += 1
        return super().get(key)


def test_each_manifest_is_read_once_although_versions_share_it() -> None:
    store = Counting()
    small = good_lake(store)
    store.read.clear()
    read_files(small.lake)
    counted = {key: count for key, count in store.read.items() if key.endswith(".avro")}
    assert set(counted.values()) == {1}
    # The replacement wrote one manifest of each table that has only deletions, and is not read at all.
    there = {key for key in small.keys("tables/") if key.endswith(".avro")}
    assert len(there - counted.keys()) == len(small.root()["tables"])
    assert not [key for key in store.read if key.endswith(".parquet")]


def test_a_table_without_any_commit_has_no_files() -> None:
    empty = SmallLake(store=MemoryStore(now=lambda: NOW))
    empty.plan(days(1, 2))
    answer = read_files(empty.lake)
    assert answer.tables
    for one in answer.tables:
        assert (one.table.files, one.snapshots, one.since, one.objects) == (0, 0, None, ())
    assert kept_by(answer, "granted") == {"plan": 1}


# ---------------------------------------------------------------- the rules


def test_files_of_a_replaced_generation_are_kept_by_the_history_of_snapshots(
    small: SmallLake,
) -> None:
    """Day 2 was replaced: two files of `events`, one of each partition, are in older snapshots only."""
    answer = read_files(small.lake)
    (old,) = [
        o
        for o in table_of(answer, "events").objects
        if (o.what, o.rule) == ("data file", "history")
    ]
    assert old.heap.objects == 2
    assert table_of(answer, "events").snapshots == 4


def test_files_that_no_snapshot_lists_are_kept_by_the_reader_grace(
    short_history: SmallLake,
) -> None:
    within = read_files(short_history.lake, reader_grace=timedelta(hours=24))
    after = read_files(short_history.lake, reader_grace=timedelta(0))
    assert {"data file", "metadata file", "manifest list", "page"} <= kept_by(
        within, "grace"
    ).keys()
    assert kept_by(after, "grace").keys() <= {"page"}
    data_files = kept_by(within, "grace")["data file"]
    assert kept_by(after, "nothing")["data file"] >= data_files > 0


def test_what_a_run_has_staged_is_granted(small: SmallLake) -> None:
    (granted,) = [e.granted for e in small.lake.load_existing().whole_ledger().entries if e.granted]
    report = small.lake.report(stage(small.lake, small.log, granted.plan))
    assert report is not None
    assert kept_by(read_files(small.lake), "granted") == {
        "plan": 1,
        "report": 1,
        "data file": len(report.files),
    }


def test_every_committed_interval_has_a_current_plan_and_report(small: SmallLake) -> None:
    """Day 2 has two reports until gc; day 5 has no offsets and no report."""
    current = kept_by(read_files(small.lake), "current")
    assert (current["plan"], current["report"]) == (4, 3)
    assert current["page"] == len(small.root()["pages"])
    assert kept_by(read_files(small.lake), "always") == {"record": 5}


def test_what_an_output_still_needs_is_kept_by_it() -> None:
    def declared(warehouse: str) -> Pipeline:
        return replace(with_short_history(warehouse), outputs=(Declared(),))

    small = SmallLake(declared=declared)
    small.run(days(1, 2))
    output = FakeOutput(Wire())
    assert not publish(small.lake, {"feed": lambda: output}, rows_of=StoredRows)
    small.job += b"!"
    small.run(days(1, 2), clear=1)
    answer = read_files(small.lake, reader_grace=timedelta(0))
    needed = kept_by(answer, "outputs")
    assert needed.keys() == {"data file", "plan", "report"}
    assert not publish(small.lake, {"feed": lambda: output}, rows_of=StoredRows)
    after = read_files(small.lake, reader_grace=timedelta(0))
    assert kept_by(after, "outputs") == {}
    assert kept_by(after, "nothing")["data file"] >= needed["data file"]


def test_what_a_commit_outside_the_ledger_reaches_is_in_doubt(small: SmallLake) -> None:
    assert isinstance(small.store, MemoryStore)
    small.plan(days(4, 5))
    then = small.store._objects[keys.ROOT]
    small.run(days(4, 5), clear=1)
    small.store._objects[keys.ROOT] = then
    small.run(days(7, 8))
    assert {"data file", "plan", "page"} <= kept_by(read_files(small.lake), "doubt").keys()
    later = replace(small.runtime, now=lambda: NOW + timedelta(days=31))
    small.lake.runtime = later
    assert kept_by(read_files(small.lake), "doubt") == {}


def test_a_version_that_a_registration_names_is_kept_regardless_of_the_grace(
    short_history: SmallLake,
) -> None:
    small = short_history
    assert "metadata file" not in kept_by(read_files(small.lake, reader_grace=GRACES[0]), "grace")
    oldest = min(small.keys("commits/"), key=keys.record_version)
    named = {"company": Registration(target="catalog:company", registered=oldest)}
    small.change(
        keys.ROOT,
        lambda root: root.update(registrations={n: r.to_json() for n, r in named.items()}),
    )
    answer = read_files(small.lake, reader_grace=GRACES[0])
    assert {"metadata file", "manifest list", "page"} <= kept_by(answer, "grace").keys()
    assert kept_by(answer, "doubt") == {}
    unneeded = sum((one.heap for one in every(answer) if one.rule == "nothing"), Heap())
    assert unneeded == collection(small, grace=GRACES[0]).total


def test_what_a_compaction_has_prepared_is_granted() -> None:
    ours, other = "a" * 32, "b" * 32
    marked = Marked(
        named=frozenset(),
        granted=frozenset(),
        reported=frozenset(),
        compacting=frozenset({keys.CompactionId(ours)}),
    )
    kept = KeptBy(marked, (), current=frozenset(), history=frozenset(), grace=frozenset())
    for uuid, rule in ((ours, "granted"), (other, "nothing")):
        assert kept.rule(keys.compaction("events", uuid)) == rule
        assert kept.rule(keys.shared_file("events", uuid, "task", "c" * 32)) == rule


def test_delete_files_are_counted_apart_and_compactions_are_current(compacted: SmallLake) -> None:
    answer = read_files(compacted.lake)
    current = kept_by(answer, "current")
    # The rows of day 2 are deleted from the shared file of each table.
    assert [one.deletes for one in answer.tables] == [1, 1, 1]
    assert (current["delete file"], current["compaction"]) == (3, 3)
    assert kept_by(answer, "history")["data file"] > 0
    assert kept_by(answer, "doubt") == {}


def test_foreign_objects_are_not_counted_as_garbage(small: SmallLake) -> None:
    small.store.create("readme.txt", b"mine")
    small.store.create("tables/events/data/by-hand.parquet", b"mine")
    assert kept_by(read_files(small.lake), "foreign") == {"foreign": 2}


# ---------------------------------------------------------------- sizes and logs


def test_a_file_is_in_the_class_that_begins_with_its_size(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small.lake.load_existing().root
    metadata = root.tables["events"].metadata
    assert metadata is not None
    sizes = sorted(FilesReader(small.store).table_files(metadata).data.values())
    limits = (sizes[0], sizes[-1], sizes[-1] + 1)
    monkeypatch.setattr(files, "SIZES", limits)
    counted = [heap.objects for heap in table_of(read_files(small.lake), "events").sizes]
    inside = sum(sizes[0] <= size < sizes[-1] for size in sizes)
    assert counted == [0, inside, sizes.count(sizes[-1]), 0]


def test_the_metadata_log_names_files_that_gc_has_deleted(small: SmallLake) -> None:
    before = table_of(read_files(small.lake), "events")
    assert (before.log, before.log_kept.objects) == (3, 3)
    collection(small, delete=True, grace=timedelta(0))
    after = table_of(read_files(small.lake), "events")
    assert (after.log, after.log_kept) == (3, Heap())


# ---------------------------------------------------------------- damage, and progress


def test_a_manifest_that_is_gone_is_corrupt(small: SmallLake) -> None:
    (gone, *_) = small.keys("tables/events/metadata/snap-")
    small.store.delete([gone])
    with pytest.raises(Corrupt, match="snap-"):
        read_files(small.lake)


def test_a_lake_without_its_root_has_vanished(small: SmallLake) -> None:
    small.store.delete([keys.ROOT])
    with pytest.raises(RootVanished):
        read_files(small.lake)


def test_the_progress_ends_at_the_number_of_tables(small: SmallLake) -> None:
    seen: list[tuple[Any, ...]] = []
    read_files(small.lake, watch=lambda *step: seen.append(step))
    assert [step for step in seen if step[0] == "tables"] == [("tables", n, 3) for n in (1, 2, 3)]
