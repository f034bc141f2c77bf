"""gc over real tables in memory: what goes, what stays, and what makes it refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from pyiceberg.table import TableProperties

from support.fakes import stage
from support.small_lake import NOW, SmallLake, days, good_lake
from tallystick.errors import Corrupt, InvalidRequest, Superseded
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations.commit import commit
from tallystick.operations.gc import Collection, collect
from tallystick.operations.status import read_tables
from tallystick.operations.verify import Demands, verify
from tallystick.store.memory import MemoryStore
from tallystick.tables import snapshots, staging
from tallystick.tables.reach import IcebergReach
from tallystick.tables.reading import LiveFile, live_files

NO_GRACE = timedelta(0)
EVENTS = Demands(every_record=frozenset({"events"}))


@pytest.fixture
def small() -> SmallLake:
    return good_lake(MemoryStore(now=lambda: NOW))


def swept(small: SmallLake, **how: object) -> Collection:
    """Collect for good, with no grace and no grant given up unless asked."""
    asked = {"delete": True, "reader_grace": NO_GRACE, "cancel_after": None, **how}
    # A process of its own: nothing is known of pages that were read before.
    lake = Lake(small.store, small.runtime, proven=True)
    return collect(lake, IcebergReach(small.store), **asked)  # type: ignore[arg-type]


def proven(small: SmallLake) -> bool:
    return verify(small.lake, deep=True, demands=EVENTS).proven


def rows(small: SmallLake) -> list[int]:
    return [t.rows for t in read_tables(small.lake).tables]


def later(small: SmallLake, by: timedelta) -> None:
    """Let time pass."""
    small.runtime = replace(small.runtime, now=lambda: NOW + by)
    small.lake.runtime = small.runtime


def test_a_dry_run_changes_nothing_and_finds_what_the_real_one_deletes(small: SmallLake) -> None:
    assert isinstance(small.store, MemoryStore)
    before = dict(small.store._objects)
    dry = swept(small, delete=False)
    assert small.store._objects == before
    real = swept(small)
    gone = before.keys() - small.store._objects.keys()
    assert (dry.deleted, real.deleted) == (False, True)
    # The swap of the real one makes another page than the one that was listed garbage.
    assert dry.total.objects > 0
    assert real.total.objects == len(gone)
    assert {k: v for k, v in real.garbage.items() if k != "page"} == {
        k: v for k, v in dry.garbage.items() if k != "page"
    }
    assert real.total.size_bytes == sum(len(before[key].body) for key in gone)


def test_what_is_left_is_proven_row_by_row_and_reads_as_before(small: SmallLake) -> None:
    before = rows(small)
    swept(small)
    assert proven(small)
    assert rows(small) == before
    assert swept(small).total.objects == 0


def test_a_replaced_generation_goes_once_no_snapshot_lists_it(small: SmallLake) -> None:
    """Day 2 was replaced: its first plan and report go; its files stay for as long as Iceberg lists their snapshot."""
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


def test_what_lost_attempts_left_goes_and_what_a_grant_owns_stays(small: SmallLake) -> None:
    """Day 6 is granted: what is staged for it stays, whoever staged it. A second attempt of day 3 lost, and goes."""
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
    kept_scratch = keys.scratch_list(granted.plan, "a9", "0" * 32)
    for key in (scratch, kept_scratch):
        small.store.create(key, b"{}")
    swept(small)
    for gone in (lost, scratch, *(f.key for f in lost_report.files)):
        assert small.store.get(gone) is None, gone
    for kept in (pending, kept_scratch, *(f.key for f in pending_report.files)):
        assert small.store.get(kept) is not None, kept
    result = commit(small.lake, small.tables, plan_key=granted.plan, report_key=pending)
    assert not result.already
    assert proven(small)


def test_an_old_grant_is_given_up_and_its_run_learns_that_it_is_superseded(
    small: SmallLake,
) -> None:
    planned = small.plan(days(4, 5))
    (piece,) = planned.intervals
    report = stage(small.lake, small.log, piece.plan)
    later(small, timedelta(days=8))
    found = swept(small, cancel_after=timedelta(days=7))
    assert {c.interval for c in found.cancelled} == {days(4, 5), days(6, 7)}
    assert small.store.get(report) is None
    with pytest.raises(Superseded, match="cancelled"):
        commit(small.lake, small.tables, plan_key=piece.plan, report_key=report)
    # A clear of the run plans anew, over the same boundaries.
    small.run(days(4, 5), clear=1)
    assert proven(small)


def test_a_young_grant_is_left_alone(small: SmallLake) -> None:
    later(small, timedelta(days=6))
    assert swept(small, cancel_after=timedelta(days=7)).cancelled == ()


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """A lake whose metadata lists one snapshot and one older metadata file, as after fifty commits."""
    kept = {**staging.TABLE_PROPERTIES, TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "1"}
    monkeypatch.setattr(staging, "TABLE_PROPERTIES", kept)
    monkeypatch.setattr(staging, "expire", partial(snapshots.expire, keep=1))
    return good_lake(MemoryStore(now=lambda: NOW))


def test_files_of_a_replaced_generation_go_with_the_last_snapshot_that_lists_them(
    forgetful: SmallLake,
) -> None:
    small = forgetful
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


def test_readers_of_a_version_within_the_grace_keep_its_tables(forgetful: SmallLake) -> None:
    small = forgetful
    version = small.lake.load_existing().root.version
    for clear in (1, 2):  # two versions on, the metadata of now does not even name that of then
        small.job += b"!"
        small.run(days(3, 4), clear=clear)
    before = read_tables(small.lake, as_of=version)
    swept(small, reader_grace=timedelta(hours=24))
    assert read_tables(small.lake, as_of=version) == before
    found = swept(small, reader_grace=NO_GRACE)
    newest = small.lake.load_existing().root.record
    assert newest is not None
    assert found.oldest == keys.record_version(newest)
    with pytest.raises(InvalidRequest, match=r"can be read no more: gc has collected tables/"):
        read_tables(small.lake, as_of=version)
    # A longer grace than the last one cannot bring them back, and says so.
    assert "can be read no more" in swept(small, reader_grace=timedelta(days=1)).remarks[0]
    assert proven(small)


def test_what_tallystick_never_wrote_stays_and_is_told(small: SmallLake) -> None:
    small.store.create("readme.txt", b"mine")
    small.store.create("tables/events/data/by-hand.parquet", b"mine")
    found = swept(small)
    assert found.foreign == ("readme.txt", "tables/events/data/by-hand.parquet")
    assert small.store.get("readme.txt") is not None


def test_scratch_of_a_probe_that_may_be_under_way_stays(small: SmallLake) -> None:
    young = keys.probe("1" * 32)
    small.store.create(young, b"x")
    swept(small)
    assert small.store.get(young) is not None
    later(small, timedelta(hours=2))
    swept(small)
    assert small.store.get(young) is None


def test_commit_records_all_stay(small: SmallLake) -> None:
    before = small.keys("commits/")
    swept(small)
    assert small.keys("commits/") == before


# ---------------------------------------------------------------- refusals


def untouched(small: SmallLake, match: str) -> None:
    assert isinstance(small.store, MemoryStore)
    before = set(small.store._objects)
    with pytest.raises(Corrupt, match=match) as refused:
        swept(small)
    assert "othing was deleted" in str(refused.value) or "nothing was changed" in str(refused.value)
    assert before <= set(small.store._objects)


def test_a_root_that_was_set_back_is_not_collected(small: SmallLake) -> None:
    assert isinstance(small.store, MemoryStore)
    then = small.store._objects[keys.ROOT]
    small.job = b"version 3"
    small.run(days(3, 4), clear=1)
    small.store._objects[keys.ROOT] = then
    untouched(small, "the root was set back")


def test_a_root_that_was_set_back_and_went_on_is_not_collected_either(small: SmallLake) -> None:
    """By then its version is as high as that of the lost one: the lost records' parents tell."""
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
    untouched(small, "the root was set back")


def test_what_one_lost_commit_reached_stays_for_a_month_although_the_root_went_on(
    small: SmallLake,
) -> None:
    """Its parent is in the chain, as that of a commit that lost a race: only the ledger, which lacks its plan, tells."""
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
    (told,) = found.remarks
    assert "tells of a commit that the ledger does not know" in told
    went_on = small.store._objects[keys.ROOT]
    # Whoever finds it out has all of it back.
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
def test_a_missing_object_that_the_root_needs_ends_it_before_anything_is_deleted(
    small: SmallLake, gone: object
) -> None:
    key = gone(small)  # type: ignore[operator]
    small.store.delete([key])
    untouched(small, key.rsplit("/", 1)[-1].replace(".", r"\."))


def test_a_grant_whose_plan_is_gone_is_named(small: SmallLake) -> None:
    (granted,) = [e.granted for e in small.lake.load_existing().whole_ledger().entries if e.granted]
    small.store.delete([granted.plan])
    with pytest.raises(Corrupt, match=r"is gone, and it is granted.*tally release"):
        swept(small, cancel_after=timedelta(days=7))


# ---------------------------------------------------------------- beside others


class Interrupted(MemoryStore):
    """A store whose deletions stop after a few, as if the process had died."""

    left = 3

    def delete(self, keys_: Iterator[str]) -> None:  # type: ignore[override]
        for key in list(keys_):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            super().delete([key])


@pytest.mark.parametrize("left", [0, 1, 2, 5])
def test_a_collection_that_dies_is_finished_by_the_next(left: int) -> None:
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
