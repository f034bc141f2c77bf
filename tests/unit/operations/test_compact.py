"""A compaction moves rows into shared files: no row changes, and each interval can still be replaced alone."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.small_lake import NOW, TOPIC, SmallLake, day, days, pipeline
from tallystick.errors import Corrupt, InvalidRequest
from tallystick.format import keys
from tallystick.operations.compact import CompactOptions, CompactResult, compact, local
from tallystick.operations.compact import publish as publish_module
from tallystick.operations.compact.local import LocalWriter
from tallystick.operations.compare import compare
from tallystick.operations.dead_letters import WantedLetters, read_dead_letters
from tallystick.operations.gc import collect
from tallystick.operations.lookback import read_lookback
from tallystick.operations.status import read_log, read_tables
from tallystick.operations.status.timeline import read_timeline
from tallystick.operations.verify import verify
from tallystick.pipeline import Column, Lookback, Pipeline, Table, Upkeep
from tallystick.protocol.invariants import InvariantError
from tallystick.tables.reach import IcebergReach
from tallystick.tables.reading import live_files, static_table
from tallystick.tables.staging import IcebergTables

EVERYTHING = CompactOptions(until=day(9), files_min=2)


def sorted_pipeline(warehouse: str) -> Pipeline:
    """Declare the same pipeline with a sort order for each table, which mixes the rows of different days."""
    declared = pipeline(warehouse)
    return replace(
        declared,
        tables=[replace(t, upkeep=Upkeep(sort_by=["kind", "n"])) for t in declared.tables],
    )


def with_a_short_history(declared: Callable[[str], Pipeline]) -> Callable[[str], Pipeline]:
    """Declare the same pipeline; its tables' metadata names one snapshot and one earlier metadata file."""

    def short(warehouse: str) -> Pipeline:
        whole = declared(warehouse)
        kept = {"snapshots_kept": 1, "metadata_kept": 1}
        upkeep = [replace(t.upkeep or Upkeep(), **kept) for t in whole.tables]
        tables = [replace(t, upkeep=u) for t, u in zip(whole.tables, upkeep, strict=True)]
        return replace(whole, tables=tables)

    return short


@cache
def built(declared: Callable[[str], Pipeline]) -> SmallLake:
    """Return a lake with the days 1 to 4, to be copied."""
    lake = SmallLake(declared=declared)
    for number in range(1, 5):
        lake.run(days(number, number + 1))
    return lake


@pytest.fixture(params=[pipeline, sorted_pipeline], ids=["unsorted", "sorted"])
def small(request: pytest.FixtureRequest) -> SmallLake:
    """Return a lake with the days 1 to 4."""
    lake = built(request.param).copy()
    lake.log = deepcopy(lake.log)
    return lake


def compacted(small: SmallLake, options: CompactOptions = EVERYTHING) -> CompactResult:
    return compact(small.lake, small.tables, LocalWriter(small.lake), options)


def metadata(small: SmallLake, table: str) -> str:
    found = small.lake.load_existing().root.tables[table].metadata
    assert found is not None
    return found


def rows(small: SmallLake, table: str) -> list[dict[str, Any]]:
    found = static_table(small.store, metadata(small, table)).scan().to_arrow().to_pylist()
    return sorted(found, key=repr)


def everything(small: SmallLake) -> dict[str, list[dict[str, Any]]]:
    return {name: rows(small, name) for name in small.lake.load_existing().root.tables}


def files(small: SmallLake, table: str) -> list[str]:
    return sorted(f.key for f in live_files(small.store, metadata(small, table)))


def proven(small: SmallLake, *, deep: bool = True) -> None:
    proof = verify(small.lake, deep=deep)
    assert proof.proven, [str(f) for c in proof.checks for f in c.findings]


def test_small_files_become_one_and_no_row_changes(small: SmallLake) -> None:
    before = everything(small)
    assert len(files(small, "events")) == 8
    result = compacted(small)
    assert everything(small) == before
    assert {name: len(files(small, name)) for name in before} == dict.fromkeys(before, 1)
    assert not result.left
    assert (result.tables["events"].files_before, result.tables["events"].files_after) == (8, 1)
    assert compacted(small).tables == {}, "nothing is left to do"


def test_shared_files_are_written_as_the_upkeep_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Upkeep(compression="snappy", parquet_version=2)
    small = SmallLake(
        declared=lambda uri: replace(
            pipeline(uri), tables=[replace(t, upkeep=declared) for t in pipeline(uri).tables]
        )
    )
    for number in range(1, 5):
        small.run(days(number, number + 1))
    written: list[tuple[str, str, int]] = []
    write = local.write_shared_file

    def noted(store: Any, runtime: Any, order: Any, *given: Any, **named: Any) -> Any:
        table = order.table
        written.append((table.name, table.compression, table.parquet_version))
        return write(store, runtime, order, *given, **named)

    monkeypatch.setattr(local, "write_shared_file", noted)
    compacted(small)
    assert sorted(written) == [
        ("dead_letters", "zstd", 1),
        ("events", "snappy", 2),
        ("per_kind", "snappy", 2),
    ]


def test_a_member_is_replaced_alone(small: SmallLake) -> None:
    untouched = SmallLake()
    for number in range(1, 5):
        untouched.run(days(number, number + 1))
    compacted(small)
    for lake in (small, untouched):
        lake.job = b"version 2"
        lake.run(
            days(2, 3),
            run="again",
            mode="replace",
            keep=lambda r: r.value.get("n") != 1,
            accept_compaction=True,
        )
    assert everything(small) == everything(untouched)
    (shared,) = [f for f in live_files(small.store, metadata(small, "events")) if f.deleted]
    assert shared.deleted == 5
    proven(small)


def test_the_lake_is_proven_after_a_compaction_and_after_each_replacement(
    small: SmallLake,
) -> None:
    compacted(small)
    proven(small)
    for number in range(1, 5):
        small.job = f"version {number + 1}".encode()
        small.run(days(number, number + 1), run=f"again-{number}", mode="replace")
        proven(small)
    # The last replacement dropped the shared file.
    assert all(keys.kind(key) == "data file" for key in files(small, "events"))


def test_a_collection_deletes_the_moved_files_and_nothing_that_is_needed(
    small: SmallLake,
) -> None:
    before = everything(small)
    old = files(small, "events")
    compacted(small)
    collect(small.lake, IcebergReach(small.store), delete=True, reader_grace=timedelta(0))
    assert everything(small) == before
    proven(small)
    assert all(small.store.get(key) is not None for key in old), "the table's history names them"
    small.declared = with_a_short_history(small.declared)  # as after many commits
    for number in (3, 4):
        small.job = f"version {number}".encode()
        small.run(days(number, number + 1), run=f"again-{number}", mode="replace")
    collect(small.lake, IcebergReach(small.store), delete=True, reader_grace=timedelta(0))
    assert all(small.store.get(key) is None for key in old), "no history names them"
    assert everything(small) == before
    proven(small)


def test_an_interval_that_is_replaced_while_its_rows_are_rewritten_keeps_its_new_rows(
    small: SmallLake,
) -> None:
    """The compaction is published nevertheless, without these rows."""

    class Meanwhile(LocalWriter):
        done = False

        def write(self, *arguments: Any) -> Any:
            yield from super().write(*arguments)
            if not self.done:
                self.done = True
                small.job = b"version 2"
                small.run(
                    days(2, 3),
                    run="again",
                    mode="replace",
                    keep=lambda r: r.value.get("n") != 1,
                    accept_compaction=True,
                )

    result = compact(small.lake, small.tables, Meanwhile(small.lake), EVERYTHING)
    assert not result.left
    proven(small)
    other = SmallLake()
    for number in range(1, 5):
        other.run(days(number, number + 1))
    other.job = b"version 2"
    other.run(
        days(2, 3),
        run="again",
        mode="replace",
        keep=lambda r: r.value.get("n") != 1,
        accept_compaction=True,
    )
    assert everything(small) == everything(other)
    assert len(files(small, "events")) == 3, "a shared file, and the two files of the replacement"


def test_a_compaction_whose_grant_gc_has_cancelled_changes_nothing(small: SmallLake) -> None:
    before = files(small, "events")

    class Meanwhile(LocalWriter):
        def write(self, *arguments: Any) -> Any:
            yield from super().write(*arguments)
            collect(
                small.lake,
                IcebergReach(small.store),
                delete=True,
                reader_grace=timedelta(0),
                cancel_after=-timedelta(days=1),
            )

    result = compact(small.lake, small.tables, Meanwhile(small.lake), EVERYTHING)
    assert set(result.left.values()) == {"its grant was cancelled"}
    assert files(small, "events") == before
    proven(small)


def test_compactions_are_compacted_again_with_new_files(small: SmallLake) -> None:
    compacted(small)
    for number in (6, 7, 8):
        small.log.append(TOPIC, 0, day(number), n=number, kind="new")
        small.log.append(TOPIC, 1, day(number), n=number, kind="new")
        small.log.append(TOPIC, 0, day(number + 1), n=number, kind="next")
        small.log.append(TOPIC, 1, day(number + 1), n=number, kind="next")
        small.run(days(number, number + 1))
    before = everything(small)
    result = compacted(small)
    assert result.tables["events"].files_after == 1
    assert everything(small) == before
    proven(small)
    small.job = b"version 2"
    small.run(days(1, 2), run="again", mode="replace")
    proven(small)


def test_columns_that_changed_since_are_those_of_the_shared_file(small: SmallLake) -> None:
    def declared(warehouse: str) -> Pipeline:
        first = pipeline(warehouse)
        columns = [
            Column("number", "long", source="n", renamed_from="n"),
            Column("kind", "string", required=False),
            Column("more", "double", required=False),
        ]
        return replace(first, tables=[Table("events", columns=columns), *first.tables[1:]])

    small.declared = declared
    small.run(days(6, 7))
    before = everything(small)
    compacted(small)
    assert everything(small) == before
    proven(small)
    small.run(days(2, 3), run="again", mode="replace")
    proven(small)


def test_a_plan_that_changes_columns_while_rows_are_rewritten_wins(small: SmallLake) -> None:
    def declared(warehouse: str) -> Pipeline:
        first = pipeline(warehouse)
        columns = [Column("n", "long"), Column("kind", "string", required=False)]
        columns += [Column("more", "double", required=False)]
        return replace(first, tables=[Table("events", columns=columns), *first.tables[1:]])

    class Meanwhile(LocalWriter):
        def write(self, *arguments: Any) -> Any:
            yield from super().write(*arguments)
            small.declared = declared
            small.plan(days(6, 7))

    result = compact(small.lake, small.tables, Meanwhile(small.lake), EVERYTHING)
    assert "other columns" in " ".join(result.left.values())
    assert not small.lake.load_existing().root.compacting, "the grant is withdrawn"
    proven(small)
    small.declared = declared
    compacted(small)
    proven(small)


def test_dead_letters_are_found_in_shared_files(small: SmallLake) -> None:
    before = read_dead_letters(small.lake, WantedLetters(samples=100))
    compacted(small)
    after = read_dead_letters(small.lake, WantedLetters(samples=100))
    assert [(k.kind, k.count, dict(k.intervals), k.samples) for k in after.kinds] == [
        (k.kind, k.count, dict(k.intervals), k.samples) for k in before.kinds
    ]
    day_2 = WantedLetters(within=days(2, 3), samples=9)
    assert {k.count for k in read_dead_letters(small.lake, day_2).kinds} == {2}
    small.job = b"version 2"
    small.run(days(2, 3), run="again", mode="replace", keep=lambda r: True)
    assert {k.count for k in read_dead_letters(small.lake, day_2).kinds} == {2}


def test_a_lookback_reads_moved_rows_at_their_positions(small: SmallLake) -> None:
    (planned,) = small.plan(days(6, 7)).intervals
    plan = small.lake.plan(planned.plan)
    assert plan is not None

    def read() -> list[tuple[str, list[int]]]:
        lookback = Lookback(tables=["per_kind"], back=timedelta(days=9))
        found = read_lookback(small.lake, plan, lookback)
        rows = []
        for part in found.parts:
            for place in part.files["per_kind"]:
                stored = small.store.get(place.key)
                assert stored is not None
                assert stored.etag == place.etag
                table = pq.read_table(pa.BufferReader(stored.body)).slice(place.first, place.rows)
                rows.append((str(part.interval), table["n"].to_pylist()))
        return rows

    before = read()
    compacted(small)
    assert read() == before
    assert len(before) == 4


def test_a_run_that_finds_nothing_swaps_nothing(small: SmallLake) -> None:
    version = small.lake.load_existing().root.version
    result = compacted(small, CompactOptions(until=day(9), files_min=100))
    assert (result.tables, result.version) == ({}, version)
    assert small.lake.load_existing().root.version == version


def test_intervals_that_end_later_and_other_tables_are_left_alone(small: SmallLake) -> None:
    result = compacted(small, CompactOptions(until=day(3), tables=("events",), files_min=2))
    assert {name: found.files_before for name, found in result.tables.items()} == {"events": 4}
    with pytest.raises(InvalidRequest, match="no table 'delays'"):
        compacted(small, CompactOptions(until=day(3), tables=("delays",)))


@pytest.mark.parametrize("size", [0, -1])
def test_a_target_of_no_bytes_is_refused(size: int) -> None:
    with pytest.raises(InvalidRequest, match="target size"):
        CompactOptions(until=day(1), target_bytes=size)


def test_files_of_the_target_size_are_made_by_partition_and_in_the_order_of_time(
    small: SmallLake,
) -> None:
    sizes = [f.size_bytes for f in live_files(small.store, metadata(small, "events"))]
    two = CompactOptions(until=day(9), tables=("events",), target_bytes=2 * max(sizes), files_min=2)
    compacted(small, two)
    assert len(files(small, "events")) == 4
    proven(small)


def test_an_old_version_can_be_read_and_a_compacted_one_too(small: SmallLake) -> None:
    before = everything(small)
    version = small.lake.load_existing().root.version
    result = compacted(small)
    for number in (version, result.version):
        found = read_tables(small.lake, count=False, as_of=number)
        assert found.version == number
        read = {
            t.name: static_table(small.store, t.metadata.removeprefix(f"{small.store.uri}/"))
            for t in found.tables
            if t.metadata is not None
        }
        assert {
            name: sorted(table.scan().to_arrow().to_pylist(), key=repr)
            for name, table in read.items()
        } == before


def test_the_commit_log_and_comparisons_name_compactions(small: SmallLake) -> None:
    first = small.lake.load_existing().root.version
    second = compacted(small).version
    line = read_log(small.lake, limit=1).commits[0]
    assert (line.version, line.intervals) == (second, ())
    tables = [keys.compaction_parts(key)[0] for key in line.compactions]
    assert sorted(tables) == ["dead_letters", "events", "per_kind"]
    assert read_timeline(small.lake, limit=1).commits[0].compacted == tuple(sorted(tables))
    found = compare(small.lake, left=first, right=second)
    assert (found.commits, found.intervals, found.declaration) == (1, (), ())


def test_grants_of_killed_compactions_are_cancelled_after_a_day(small: SmallLake) -> None:
    class Killed(LocalWriter):
        def write(self, *arguments: Any) -> Any:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        compact(small.lake, small.tables, Killed(small.lake), EVERYTHING)
    assert len(small.lake.load_existing().root.compacting) == 3
    small.lake.runtime = replace(small.runtime, now=lambda: NOW + timedelta(days=1))
    compacted(small)
    assert small.lake.load_existing().root.compacting == ()


class OvertakenTables(IcebergTables):
    """Tables whose first metadata of a compaction is followed by the commit of a replacement, before the swap."""

    def __init__(self, small: SmallLake) -> None:
        super().__init__(small.store, small.runtime)
        self._small, self._done = small, False

    def stage(self, *arguments: Any, **named: Any) -> str:
        staged = super().stage(*arguments, **named)
        if not self._done:
            self._done = True
            self._small.job = b"version 2"
            self._small.run(days(2, 3), run="again", mode="replace")
        return staged


def test_a_commit_between_the_decision_and_the_swap_is_decided_on_again(small: SmallLake) -> None:
    before = everything(small)
    compact(small.lake, OvertakenTables(small), LocalWriter(small.lake), EVERYTHING)
    assert everything(small) == before
    proven(small)
    assert small.lake.load_existing().root.compacting == ()


def test_a_decision_on_the_first_root_would_lose_the_commit(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removed guard of the test above."""
    real, first = publish_module.decide_compaction, {}

    def once(root: Any, entries: Any, compaction: Any, **more: Any) -> Any:
        decision = real(root, entries, compaction, **more)
        return first.setdefault(compaction.key, decision)

    monkeypatch.setattr(publish_module, "decide_compaction", once)
    with pytest.raises((Corrupt, InvariantError)):
        compact(small.lake, OvertakenTables(small), LocalWriter(small.lake), EVERYTHING)
