"""gc over real tables in memory: what it deletes, what it keeps, and when it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from support.fakes import stage
from support.small_lake import NOW, SmallLake, days, good_lake, pipeline, with_short_history
from tallystick.errors import Corrupt, InvalidRequest, Superseded
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations.commit import commit
from tallystick.operations.gc import Collection, collect
from tallystick.operations.status import read_tables
from tallystick.operations.status.files import read_files
from tallystick.operations.verify import Demands, verify
from tallystick.store.memory import MemoryStore
from tallystick.tables.reach import IcebergReach
from tallystick.tables.reading import LiveFile, live_files

NO_GRACE = timedelta(0)
EVENTS = Demands(every_record=frozenset({"events"}))


@pytest.fixture
def small() -> SmallLake:
    return good_lake(MemoryStore(now=lambda: NOW))


def swept(small: SmallLake, **options: object) -> Collection:
    """Collect and delete; by default without reader grace and without cancelling grants."""
    arguments = {"delete": True, "reader_grace": NO_GRACE, "cancel_after": None, **options}
    # A separate process: its cache has no pages.
    lake = Lake(small.store, small.runtime, proven=True)
    return collect(lake, IcebergReach(small.store), **arguments)  # type: ignore[arg-type]


def proven(small: SmallLake) -> bool:
    return verify(small.lake, deep=True, demands=EVENTS).proven


def rows(small: SmallLake) -> list[int]:
    return [t.rows for t in read_tables(small.lake).tables]


def later(small: SmallLake, by: timedelta) -> None:
    """Advance the clock."""
    small.runtime = replace(small.runtime, now=lambda: NOW + by)
    small.lake.runtime = small.runtime


def test_a_dry_run_changes_nothing_and_lists_what_gc_deletes(small: SmallLake) -> None:
    assert isinstance(small.store, MemoryStore)
    before = dict(small.store._objects)
    dry = swept(small, delete=False)
    assert small.store._objects == before
    real = swept(small)
    gone = before.keys() - small.store._objects.keys()
    assert (dry.deleted, real.deleted) == (False, True)
    # The swap of the real collection turns another page into garbage than the dry run listed.
    assert dry.total.objects > 0
    assert real.total.objects == len(gone)
    assert {k: v for k, v in real.garbage.items() if k != "page"} == {
        k: v for k, v in dry.garbage.items() if k != "page"
    }
    assert real.total.size_bytes == sum(len(before[key].body) for key in gone)


def test_after_gc_the_lake_is_proven_row_by_row_and_reads_as_before(small: SmallLake) -> None:
    before = rows(small)
    swept(small)
    assert proven(small)
    assert rows(small) == before
    assert swept(small).total.objects == 0


def test_the_plan_and_report_of_a_replaced_generation_are_deleted_and_its_listed_files_stay(
    small: SmallLake,
) -> None:
    """Day 2 was replaced. The files of its first generation stay for as long as Iceberg lists their snapshot."""
    replaced = [
        c
        for r in small.keys("commits/")
        for c in small.lake.record(r).intervals
        if c.generation == 1
    ]  # type: ignore[union-attr]
    old = next(c for c in replaced if c.interval == days(2, 3))
    files = [f for named in old.added.values() for f in named]
    collected = swept(small)
    assert collected.garbage["plan"].objects >= 1
    assert collected.garbage["report"].objects == 1
    assert old.report is not None
    assert small.store.get(old.plan) is None
    assert small.store.get(old.report) is None
    assert all(small.store.get(f) is not None for f in files)


def test_objects_of_lost_attempts_are_deleted_and_those_of_a_granted_plan_stay(
    small: SmallLake,
) -> None:
    """Day 6 is granted: all that is staged for it stays. A second attempt of day 3 lost, and is deleted."""
    (granted,) = [e.granted for e in small.lake.load_existing().whole_ledger().entries if e.granted]
    pending = stage(small.lake, small.log, granted.plan)
    taken = small.lake.load_existing().whole_ledger().entry(days(3, 4))
    assert taken is not None
    assert taken.committed is not None
    lost = stage(small.lake, small.log, taken.committed.plan)
    lost_report, pending_report = small.lake.report(lost), small.lake.report(pending)
    assert lost_report is not None
    assert pending_report is not None
    scratch = keys.scratch_list(taken.committed.plan, "a9", "0" * 32)
    granted_scratch = keys.scratch_list(granted.plan, "a9", "0" * 32)
    for key in (scratch, granted_scratch):
        small.store.create(key, b"{}")
    swept(small)
    for gone in (lost, scratch, *(f.key for f in lost_report.files)):
        assert small.store.get(gone) is None, gone
    for remaining in (pending, granted_scratch, *(f.key for f in pending_report.files)):
        assert small.store.get(remaining) is not None, remaining
    result = commit(small.lake, small.tables, plan_key=granted.plan, report_key=pending)
    assert not result.already
    assert proven(small)


def test_an_old_grant_is_cancelled_and_its_run_is_superseded(
    small: SmallLake,
) -> None:
    planned = small.plan(days(4, 5))
    (planned_day,) = planned.intervals
    report = stage(small.lake, small.log, planned_day.plan)
    later(small, timedelta(days=8))
    found = swept(small, cancel_after=timedelta(days=7))
    assert {c.interval for c in found.cancelled} == {days(4, 5), days(6, 7)}
    assert small.store.get(report) is None
    with pytest.raises(Superseded, match="cancelled"):
        commit(small.lake, small.tables, plan_key=planned_day.plan, report_key=report)
    # A clear of the run plans again, with the same boundaries.
    small.run(days(4, 5), clear=1)
    assert proven(small)


def test_a_recent_grant_is_left_alone(small: SmallLake) -> None:
    later(small, timedelta(days=6))
    assert swept(small, cancel_after=timedelta(days=7)).cancelled == ()


@pytest.fixture
def short_history() -> SmallLake:
    """Return a lake whose metadata lists one snapshot and one older metadata file, as after fifty commits."""
    return good_lake(MemoryStore(now=lambda: NOW), declared=with_short_history)


def test_files_of_a_replaced_generation_are_deleted_with_the_last_snapshot_that_lists_them(
    short_history: SmallLake,
) -> None:
    small = short_history
    before = rows(small)
    small.job = b"version 3"
    small.run(days(3, 4), clear=1)
    live = {f.key for t in ("events", "per_kind") for f in files_of(small, t)}
    old = {k for t in ("events", "per_kind") for k in small.data_files(t)} - live
    assert old
    found = swept(small)
    assert found.garbage["data file"].objects >= len(old)
    assert all(small.store.get(k) is None for k in old)
    assert all(small.store.get(k) is not None for k in live)
    assert proven(small)
    assert rows(small) == before


def files_of(small: SmallLake, table: str) -> list[LiveFile]:
    metadata = small.lake.load_existing().root.tables[table].metadata
    assert metadata is not None
    return list(live_files(small.store, metadata))


def test_readers_of_a_version_within_the_grace_keep_its_tables(short_history: SmallLake) -> None:
    small = short_history
    version = small.lake.load_existing().root.version
    # Two versions later, the current metadata no longer names the metadata of that version.
    for clear in (1, 2):
        small.job += b"!"
        small.run(days(3, 4), clear=clear)
    before = read_tables(small.lake, as_of=version)
    swept(small, reader_grace=timedelta(hours=24))
    assert read_tables(small.lake, as_of=version) == before
    found = swept(small, reader_grace=NO_GRACE)
    newest = small.lake.load_existing().root.record
    assert newest is not None
    assert found.oldest == keys.record_version(newest)
    with pytest.raises(InvalidRequest, match=r"can no longer be read: gc has collected tables/"):
        read_tables(small.lake, as_of=version)
    # A longer grace than the last one cannot restore them, and a remark states it.
    assert "can no longer be read" in swept(small, reader_grace=timedelta(days=1)).remarks[0]
    assert proven(small)


@pytest.mark.parametrize(
    ("declared", "given", "used"),
    [
        (None, {"reader_grace": None}, timedelta(hours=24)),
        (timedelta(hours=36), {"reader_grace": None}, timedelta(hours=36)),
        (timedelta(0), {"reader_grace": None}, timedelta(0)),
        (timedelta(hours=36), {"reader_grace": timedelta(hours=1)}, timedelta(hours=1)),
    ],
)
def test_the_declared_reader_grace_is_used_unless_another_is_given(
    declared: timedelta | None, given: dict[str, timedelta | None], used: timedelta
) -> None:
    small = SmallLake(declared=lambda w: replace(with_short_history(w), reader_grace=declared))
    small.run(days(1, 2))
    first = small.lake.load_existing().root.version
    for clear in (1, 2, 3):
        small.job += b"!"
        small.run(days(1, 2), clear=clear)
    later(small, used - timedelta(milliseconds=1))
    assert read_files(small.lake, **given).reader_grace == used
    swept(small, **given)
    read_tables(small.lake, as_of=first)
    later(small, used)
    swept(small, **given)
    with pytest.raises(InvalidRequest, match="gc has collected"):
        read_tables(small.lake, as_of=first)


def test_the_declared_reader_grace_changes_with_the_declaration_and_with_nothing_else() -> None:
    small = SmallLake(
        declared=lambda warehouse: replace(pipeline(warehouse), reader_grace=timedelta(hours=1))
    )
    small.run(days(1, 2))
    assert small.root()["reader_grace"] == 3_600_000
    swept(small)
    assert small.root()["reader_grace"] == 3_600_000
    small.declared = pipeline
    small.run(days(2, 3))
    assert "reader_grace" not in small.root()


def test_foreign_objects_stay_and_are_reported(small: SmallLake) -> None:
    small.store.create("readme.txt", b"mine")
    small.store.create("tables/events/data/by-hand.parquet", b"mine")
    found = swept(small)
    assert found.foreign == ("readme.txt", "tables/events/data/by-hand.parquet")
    assert small.store.get("readme.txt") is not None


def test_scratch_of_a_probe_that_may_be_in_progress_stays(small: SmallLake) -> None:
    recent = keys.probe("1" * 32)
    small.store.create(recent, b"x")
    swept(small)
    assert small.store.get(recent) is not None
    later(small, timedelta(hours=2))
    swept(small)
    assert small.store.get(recent) is None


def test_all_commit_records_stay(small: SmallLake) -> None:
    before = small.keys("commits/")
    swept(small)
    assert small.keys("commits/") == before


# ---------------------------------------------------------------- refusals


def assert_refused(small: SmallLake, match: str) -> None:
    assert isinstance(small.store, MemoryStore)
    before = set(small.store._objects)
    with pytest.raises(Corrupt, match=match) as refused:
        swept(small)
    assert re.search("[Nn]othing was (deleted|changed)", str(refused.value))
    assert before <= set(small.store._objects)


def test_a_root_that_was_set_back_is_not_collected(small: SmallLake) -> None:
    assert isinstance(small.store, MemoryStore)
    then = small.store._objects[keys.ROOT]
    small.job = b"version 3"
    small.run(days(3, 4), clear=1)
    small.store._objects[keys.ROOT] = then
    assert_refused(small, "the root was set back")


def test_a_root_that_was_set_back_and_went_on_is_not_collected_either(small: SmallLake) -> None:
    """Its version is then as high as that of the lost root: the parents of the lost records show it."""
    assert isinstance(small.store, MemoryStore)
    then = small.store._objects[keys.ROOT]
    small.job = b"version 3"
    for clear in (1, 2):
        small.job += b"!"
        small.run(days(3, 4), clear=clear)
    small.store._objects[keys.ROOT] = then
    for number in range(3, 8):
        small.job += b"?"
        small.run(days(1, 2), clear=number)
    assert_refused(small, "the root was set back")


def test_the_objects_of_a_lost_commit_stay_for_a_month_although_the_root_went_on(
    small: SmallLake,
) -> None:
    """Its parent is in the chain, as for a commit that lost a race. Only the ledger, which lacks its plan, shows it."""
    assert isinstance(small.store, MemoryStore)
    small.plan(days(4, 5))
    then = small.store._objects[keys.ROOT]
    small.run(days(4, 5), clear=1)
    lost = small.store._objects[keys.ROOT]
    assert swept(small.copy()).remarks == ()
    reached = set(small.keys("tables/")) | set(small.keys("plans/")) | set(small.keys("attempts/"))
    small.store._objects[keys.ROOT] = then
    small.run(days(7, 8))  # its two swaps give the root a version as high as that of the lost one
    found = swept(small)
    (remark,) = found.remarks
    assert "describes a commit that is not in the ledger" in remark
    went_on = small.store._objects[keys.ROOT]
    # An operator who restores the lost root has all of it back.
    small.store._objects[keys.ROOT] = lost
    assert proven(small)
    small.store._objects[keys.ROOT] = went_on
    later(small, timedelta(days=31))
    assert swept(small).remarks == ()
    assert reached - set(small.keys(""))


def metadata_of(small: SmallLake) -> str:
    key = small.lake.load_existing().root.tables["events"].metadata
    assert key is not None
    return key


def manifest_of(small: SmallLake) -> str:
    found = json.loads(small.store.get(metadata_of(small)).body)  # type: ignore[union-attr]
    return str(found["snapshots"][-1]["manifest-list"]).removeprefix(f"{small.store.uri}/")


@pytest.mark.parametrize(
    "gone", [metadata_of, manifest_of, SmallLake.page, lambda s: s.keys("commits/")[-1]]
)
def test_a_missing_object_that_the_root_needs_ends_gc_before_anything_is_deleted(
    small: SmallLake, gone: object
) -> None:
    key = gone(small)  # type: ignore[operator]
    small.store.delete([key])
    assert_refused(small, key.rsplit("/", 1)[-1].replace(".", r"\."))


def test_a_grant_whose_plan_is_missing_is_named(small: SmallLake) -> None:
    (granted,) = [e.granted for e in small.lake.load_existing().whole_ledger().entries if e.granted]
    small.store.delete([granted.plan])
    with pytest.raises(Corrupt, match=r"is gone, and it is granted.*tally release"):
        swept(small, cancel_after=timedelta(days=7))


# ---------------------------------------------------------------- interrupted


class Interrupted(MemoryStore):
    """A store whose deletions stop after a few, as if the process was killed."""

    left = 3

    def delete(self, keys_: Iterator[str]) -> None:  # type: ignore[override]
        for key in list(keys_):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            super().delete([key])


@pytest.mark.parametrize("left", [0, 1, 2, 5])
def test_a_killed_collection_is_completed_by_the_next(left: int) -> None:
    store = Interrupted(now=lambda: NOW)
    small = good_lake(store)
    store.left = left
    with pytest.raises(KeyboardInterrupt):
        swept(small, batch=1)
    assert proven(small)
    store.left = 10**6
    swept(small)
    assert proven(small)
    assert swept(small).total.objects == 0
