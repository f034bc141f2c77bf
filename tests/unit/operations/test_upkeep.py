"""A declared upkeep reaches the tables by a plan's swap and a commit, and changes nothing of what is committed."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.fakes import stage
from support.small_lake import NOW, SmallLake, day, days, pipeline
from tallystick.errors import SchemaChanged
from tallystick.format import keys
from tallystick.lake import Snapshot, Update
from tallystick.operations.commit import commit
from tallystick.operations.compact import CompactOptions, compact
from tallystick.operations.compact.local import LocalWriter
from tallystick.operations.gc import collect
from tallystick.operations.verify import verify
from tallystick.pipeline import Column, Pipeline, Upkeep
from tallystick.tables import staging
from tallystick.tables.reach import IcebergReach
from tallystick.tables.reading import static_table

BEFORE = pipeline("memory://lake").tables[0].columns
SNAPSHOTS = "history.expire.min-snapshots-to-keep"


def declare(small: SmallLake, upkeep: Upkeep | None = None, **of_events: Any) -> None:
    """Deploy the same pipeline with an upkeep, and one of the table of events."""

    def declared(warehouse: str) -> Pipeline:
        first = pipeline(warehouse)
        own = Upkeep(**of_events) if of_events else None
        events = replace(first.tables[0], upkeep=own)
        return replace(first, tables=[events, *first.tables[1:]], upkeep=upkeep)

    small.declared = declared


@pytest.fixture
def small() -> SmallLake:
    """Return a lake with day 1, without a declared upkeep."""
    lake = SmallLake()
    lake.run(days(1, 2))
    return lake


def metadata(small: SmallLake, table: str = "events") -> Any:
    found = small.lake.load_existing().root.tables[table]
    return static_table(small.store, found.metadata or "").metadata


def snapshots_kept(small: SmallLake) -> dict[str, str]:
    return {
        name: metadata(small, name).properties[SNAPSHOTS]
        for name in ("events", "per_kind", "dead_letters")
    }


def proven(small: SmallLake) -> None:
    proof = verify(small.lake, deep=True)
    assert proof.proven, [str(f) for c in proof.checks for f in c.findings]


def test_it_is_in_the_root_after_a_plan_and_in_the_metadata_after_a_commit(
    small: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    declare(small, Upkeep(snapshots_kept=8), snapshots_kept=5, sort_by=["kind", "n"])
    before = metadata(small)
    with caplog.at_level(logging.INFO, "tallystick.operations.plan.tables"):
        (planned,) = small.plan(days(2, 3)).intervals
    assert "table events: snapshots_kept changes from 50 to 5" in caplog.messages
    assert "table events: sort_by changes from nothing to kind, n" in caplog.messages
    root = small.lake.load_existing().root
    assert root.tables["events"].upkeep == Upkeep(snapshots_kept=5, sort_by=["kind", "n"])
    assert root.tables["per_kind"].upkeep.snapshots_kept == 8
    assert metadata(small) == before
    report = stage(small.lake, small.log, planned.plan)
    commit(small.lake, small.tables, plan_key=planned.plan, report_key=report)
    assert snapshots_kept(small) == {"events": "5", "per_kind": "8", "dead_letters": "8"}
    assert [f.source_id for f in metadata(small).sort_order().fields] == [2, 1]
    proven(small)
    declare(small)
    small.run(days(3, 4))
    assert set(snapshots_kept(small).values()) == {"50"}
    assert metadata(small).sort_order().is_unsorted
    assert "upkeep" not in small.root()["tables"]["events"]
    proven(small)


def test_a_change_of_it_alone_replans_nothing_and_replaces_nothing(small: SmallLake) -> None:
    before = small.root()
    declare(small, Upkeep(snapshots_kept=8), sort_by=["n"])
    for clear in (0, 1):
        (owned,) = small.plan(days(1, 2), clear=clear).intervals
        assert owned.committed
    assert small.root() == before, "not even the root is swapped"
    assert small.plan(days(1, 2), run="again", mode="replace").intervals[0].committed is False


def test_a_change_of_the_code_is_noticed_as_before(small: SmallLake) -> None:
    """The counterpart: the same clear replaces the interval if its rows could be others."""
    small.job = b"version 2"
    (planned,) = small.plan(days(1, 2), clear=1).intervals
    assert not planned.committed


def test_a_plan_from_before_the_change_is_committed_with_the_upkeep_of_the_root(
    small: SmallLake,
) -> None:
    (old,) = small.plan(days(2, 3)).intervals
    report = stage(small.lake, small.log, old.plan)
    declare(small, snapshots_kept=5)
    small.run(days(3, 4))
    commit(small.lake, small.tables, plan_key=old.plan, report_key=report)
    assert snapshots_kept(small)["events"] == "5"
    proven(small)


@pytest.mark.parametrize("first", [0, 1])
def test_two_commits_of_one_change_race_and_the_loser_stages_again(
    small: SmallLake, first: int
) -> None:
    """Both stage the same change of upkeep on one root; the second one to swap finds it there."""
    declare(small, snapshots_kept=2, sort_by=["n"])
    staged = []
    for number in (2, 3):
        (planned,) = small.plan(days(number, number + 1)).intervals
        staged.append((planned.plan, stage(small.lake, small.log, planned.plan)))
    winner, loser = staged[first], staged[1 - first]
    raced: list[str] = []

    class RacedTables:
        """Stages as usual; the other commit lands after the first table was staged."""

        def stage(self, state: Any, **change: Any) -> str:
            key = small.tables.stage(state, **change)
            if not raced:
                raced.append(key)
                commit(small.lake, small.tables, plan_key=winner[0], report_key=winner[1])
            return key

    commit(small.lake, RacedTables(), plan_key=loser[0], report_key=loser[1])
    tables = small.lake.load_existing().root.tables
    assert not {table.metadata for table in tables.values()} & set(raced)
    found = tables["events"]
    assert found.upkeep == Upkeep(snapshots_kept=2, sort_by=["n"])
    assert metadata(small).properties[SNAPSHOTS] == "2"
    assert len(metadata(small).snapshots) == 2
    assert [order.order_id for order in metadata(small).sort_orders] == [0, 1]
    proven(small)


def test_a_collection_after_a_tighter_number_leaves_a_lake_that_is_proven() -> None:
    small = SmallLake()
    for clear in range(12):
        small.job = f"version {clear}".encode()
        small.run(days(1, 2), clear=clear)
    small.run(days(2, 3))
    assert len(metadata(small).snapshots) == 13
    files = len(small.data_files("events"))
    declare(small, Upkeep(snapshots_kept=5, metadata_kept=1))
    small.run(days(3, 4))
    assert len(metadata(small).snapshots) == 5
    proven(small)
    collect(small.lake, IcebergReach(small.store), delete=True, reader_grace=timedelta(0))
    proven(small)
    assert len(small.data_files("events")) < files
    table = static_table(small.store, small.root()["tables"]["events"]["metadata"])
    for snapshot in table.metadata.snapshots:
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows
    small.run(days(6, 7))
    proven(small)


def test_the_age_of_snapshots_is_that_at_the_commit() -> None:
    small = SmallLake()
    declare(small, snapshots_kept=1, snapshots_kept_for=timedelta(days=2))
    for number in range(1, 4):
        at = NOW + timedelta(days=number)
        small.runtime = replace(small.runtime, now=lambda at=at: at)
        small.lake.runtime = small.runtime
        small.run(days(number, number + 1))
    kept = len(metadata(small).snapshots)
    small.lake.runtime = replace(small.runtime, now=lambda: NOW + timedelta(days=4, seconds=1))
    small.run(days(4, 5))
    assert (kept, len(metadata(small).snapshots)) == (3, 2)
    proven(small)


def test_a_compaction_keeps_the_declared_upkeep(small: SmallLake) -> None:
    declare(small, snapshots_kept=2)
    for number in (2, 3, 4):
        small.run(days(number, number + 1))
    options = CompactOptions(until=day(9), files_min=2)
    compact(small.lake, small.tables, LocalWriter(small.lake), options)
    assert len(metadata(small).snapshots) == 2
    assert small.lake.load_existing().root.tables["events"].upkeep == Upkeep(snapshots_kept=2)
    proven(small)


def test_the_order_follows_a_renamed_column(small: SmallLake) -> None:
    declare(small, sort_by=["n"])
    small.run(days(2, 3))

    def renamed(warehouse: str) -> Pipeline:
        first = pipeline(warehouse)
        columns = [Column("number", "long", renamed_from="n", source="n"), *BEFORE[1:]]
        events = replace(first.tables[0], columns=columns, upkeep=Upkeep(sort_by=["number"]))
        return replace(first, tables=[events, *first.tables[1:]])

    small.declared = renamed
    small.run(days(3, 4))
    assert metadata(small).schema().find_column_name(1) == "number"
    assert [order.order_id for order in metadata(small).sort_orders] == [0, 1]
    assert [f.source_id for f in metadata(small).sort_order().fields] == [1]
    proven(small)
    declare(small, sort_by=["n"])
    with pytest.raises(SchemaChanged, match="'n' was renamed to 'number' in the lake"):
        small.run(days(4, 5))


def test_a_plan_has_the_size_and_the_compression_of_files(small: SmallLake) -> None:
    declare(small, file_size_bytes=1 << 20, compression="gzip", parquet_version=2)
    (planned,) = small.plan(days(2, 3)).intervals
    plan = small.lake.plan(planned.plan)
    assert plan is not None
    found = {t.name: (t.file_size_bytes, t.compression, t.parquet_version) for t in plan.tables}
    assert found["events"] == (1 << 20, "gzip", 2)
    assert found["per_kind"] == found["dead_letters"] == (128 << 20, "zstd", 1)


def test_an_object_of_a_lake_without_a_declared_upkeep_has_no_such_field(
    small: SmallLake,
) -> None:
    """Roots, records and plans of an earlier version are read and written with the same bytes."""
    (planned,) = small.plan(days(2, 3)).intervals
    (record,) = small.keys("commits/")
    for key in (keys.ROOT, planned.plan, record):
        found = small.store.get(key)
        assert found is not None
        for name in (b'"upkeep"', b'"compression"', b'"file_size_bytes"', b'"parquet_version"'):
            assert name not in found.body


def test_a_swap_by_something_else_keeps_it(small: SmallLake) -> None:
    declare(small, snapshots_kept=5)
    small.run(days(2, 3))
    before = small.lake.load_existing().root.tables

    def step(snapshot: Snapshot) -> Update[None]:
        root = snapshot.root
        return Update(tables=root.tables, topics=root.topics, ledger=snapshot.around(()))

    small.lake.swap(step)
    assert small.lake.load_existing().root.tables == before


def test_a_commit_that_does_not_stage_from_the_upkeep_of_the_root_is_detected(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed guard: staged from the declaration at the time of its plan, it would undo a change."""
    (old,) = small.plan(days(2, 3)).intervals
    report = stage(small.lake, small.log, old.plan)
    declare(small, snapshots_kept=5)
    small.run(days(3, 4))
    real = staging.upkeep_changes

    def of_the_plan(found: Any, _: Upkeep, columns: Any, **fixed: Any) -> Any:
        return real(found, Upkeep(), columns, **fixed)

    monkeypatch.setattr(staging, "upkeep_changes", of_the_plan)
    commit(small.lake, small.tables, plan_key=old.plan, report_key=report)
    with pytest.raises(AssertionError):
        assert snapshots_kept(small)["events"] == "5"
