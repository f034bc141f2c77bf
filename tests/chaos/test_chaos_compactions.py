"""The parts of a chaos run that compact: shared files read without tallystick, what gc leaves, ends of processes."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import closing
from chaos.compactor import CANCELLED, Compactions, Compactor
from chaos.course import NEMESES, Course
from chaos.moments import COMPACT, PLAN, after_the_first_root
from chaos.moved_rows import CompactedObjects, CompactedTables
from chaos.rounds import Round
from chaos.run import exit_code_of
from chaos.servers import LostReplies
from chaos.tally_process import RETRY_LATER, Ended, TallyProcess
from chaos.tap import Point, sender_of
from chaos.victims import freeze
from chaos.workspace import Lake
from oracle.audit import Finding
from oracle.place import Listed
from oracle.reading import rows_of
from simulation import compacting_mutants
from support.small_lake import SmallLake, day, days, pipeline
from tallystick.format import keys
from tallystick.operations.compact import CompactOptions, compact
from tallystick.operations.compact.local import LocalWriter
from tallystick.operations.gc import collect
from tallystick.pipeline import Pipeline, Upkeep
from tallystick.tables.reach import IcebergReach
from tallystick_devstack.testing.fault_proxy import NO_FAULT, HttpFault, Seen


class StoredObjects(CompactedObjects):
    """The objects of a small lake in memory."""

    def __init__(self, small: SmallLake) -> None:
        self._small = small
        self.moved = {}

    def get(self, key: str, *, unless: str | None = None) -> tuple[bytes, str] | None:
        found = self._small.store.get(key)
        return None if found is None else (found.body, found.etag)

    def head(self, key: str) -> Listed | None:
        found = self.get(key)
        return None if found is None else Listed(len(found[0]), found[1])

    def listing(self) -> dict[str, Listed]:
        return {one.key: Listed(one.size_bytes, "") for one in self._small.store.list("")}

    def key_of(self, location: str) -> str:
        return location.removeprefix(f"{self._small.store.uri}/")


def sorted_events(warehouse: str) -> Pipeline:
    """Declare a sort order of the events, as the pipeline of a round does, and none of the other tables."""
    declared = pipeline(warehouse)
    events = replace(declared.tables[0], upkeep=Upkeep(sort_by=["kind", "n"]))
    return replace(declared, tables=[events, *declared.tables[1:]])


def small_lake() -> SmallLake:
    """Return a lake with three days."""
    small = SmallLake(declared=sorted_events)
    for number in (1, 2, 3):
        small.run(days(number, number + 1))
    return small


def move_rows(small: SmallLake) -> None:
    options = CompactOptions(until=day(9), files_min=2)
    compact(small.lake, small.tables, LocalWriter(small.lake), options)


def replace_day(small: SmallLake, number: int, job: bytes = b"version 2") -> None:
    small.job = job
    small.run(days(number, number + 1), clear=1)


def reported(small: SmallLake, table: str) -> set[str]:
    """Return the keys that the records of committed intervals name for a table."""
    found: set[str] = set()
    for entry in small.lake.load_existing().whole_ledger().entries:
        (commit, *_) = small.lake.earlier_commits(entry)
        found.update(commit.added.get(table, ()))
    return found


def read(small: SmallLake, table: str) -> tuple[set[str], list[Any]]:
    """Return the keys of a table's reported files, and its rows, read file by file."""
    objects = StoredObjects(small)
    root = small.root()["tables"][table]
    files = CompactedTables(objects).live(root["metadata"])
    rows = [r for f in files for r in rows_of(objects, f.key, root["columns"]).to_pylist()]
    assert sum(f.rows for f in files) == len(rows)
    assert len({f.key for f in files}) == len(files)
    return {f.key for f in files}, sorted(rows, key=repr)


# ---------------------------------------------------------------- shared files


@pytest.mark.parametrize("table", ["events", "per_kind", "dead_letters"])
def test_rows_of_shared_files_are_found_under_the_files_that_reports_list(table: str) -> None:
    small = small_lake()
    before = read(small, table)
    assert before[0] == reported(small, table)
    move_rows(small)
    assert small.keys(f"tables/{table}/shared/")
    assert read(small, table) == before
    replace_day(small, 2)
    after = read(small, table)
    assert after[0] == reported(small, table) != before[0]
    assert after[1] == before[1]
    assert list(closing.misnamed(StoredObjects(small))) == []
    move_rows(small)
    assert read(small, table) == after


@pytest.mark.parametrize(
    "mutant",
    [
        compacting_mutants.replacement_keeps_moved_rows,
        compacting_mutants.shared_file_dropped_with_its_first_run,
    ],
)
def test_rows_that_a_replacement_leaves_or_loses_are_found(
    mutant: compacting_mutants.Mutant,
) -> None:
    small = small_lake()
    move_rows(small)
    with mutant():
        replace_day(small, 2)
    assert read(small, "events")[0] != reported(small, "events")
    assert list(closing.misnamed(StoredObjects(small)))


def test_rows_of_a_sorted_file_that_are_deleted_at_their_numbers_are_an_error() -> None:
    small = small_lake()
    move_rows(small)
    with compacting_mutants.numbers_taken_for_positions():
        replace_day(small, 2)
    with pytest.raises(ValueError, match="rows deleted, or twice"):
        read(small, "events")


def test_deleted_positions_that_are_not_whole_files_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = small_lake()
    move_rows(small)
    replace_day(small, 2)
    real = CompactedTables._read_deletes

    def one_less(self: CompactedTables, key: str, count: int) -> tuple[str, frozenset[int]]:
        target, positions = real(self, key, count)
        return target, positions - {min(positions)}

    monkeypatch.setattr(CompactedTables, "_read_deletes", one_less)
    with pytest.raises(ValueError, match="of its 2 rows deleted"):
        read(small, "events")


def test_an_entry_that_names_another_compaction_is_found() -> None:
    small = small_lake()
    move_rows(small)

    def rename(page: Any) -> None:
        page["entries"][0]["committed"]["compactions"]["events"] = "0" * 32

    small.change(small.page(), rename)
    (found,) = closing.misnamed(StoredObjects(small))
    assert "names compaction 0000" in found


# ---------------------------------------------------------------- what gc leaves


def test_an_object_of_a_compaction_that_nothing_names_is_found_until_gc_has_run() -> None:
    small = small_lake()
    move_rows(small)
    replace_day(small, 2)
    assert list(closing.left(StoredObjects(small))) == []
    (shared, *_) = small.keys("tables/events/shared/")
    table, _ = keys.shared_file_parts(shared)
    leftovers = [
        keys.compaction(table, "f" * 32),
        f"compactions/{table}/{'f' * 32}/00000-{'e' * 32}.parquet",
        f"tables/{table}/shared/{'f' * 32}/0-{'e' * 32}.parquet",
        f"tables/{table}/deletes/{'d' * 32}.parquet",
    ]
    for key in leftovers:
        small.store.create(key, b"{}")
    found = list(closing.left(StoredObjects(small)))
    assert {line.split(" ", 1)[0] for line in found} == set(leftovers)
    collect(small.lake, IcebergReach(small.store), delete=True)
    assert list(closing.left(StoredObjects(small))) == []


def test_the_row_order_of_a_file_that_only_older_snapshots_list_is_not_left_over() -> None:
    small = small_lake()
    move_rows(small)
    for number in (1, 2, 3):
        replace_day(small, number)
    collect(small.lake, IcebergReach(small.store), delete=True)
    # The rows have left the shared file, and the compaction is gone.
    assert small.keys("tables/events/shared/")
    left = small.keys("compactions/events/")
    assert [keys.kind(key) for key in left] == ["row order"]
    assert list(closing.left(StoredObjects(small))) == []


def test_a_granted_compaction_is_found() -> None:
    small = small_lake()
    move_rows(small)

    def grant(root: Any) -> None:
        key = keys.compaction("events", "f" * 32)
        root["compacting"] = [{"key": key, "granted_at": "2024-05-01T00:00:00.000Z"}]

    small.change(keys.ROOT, grant)
    (found,) = closing.left(StoredObjects(small))
    assert "are granted" in found


# ---------------------------------------------------------------- processes


LAKE = Lake(name="none", days=1)
LOGIN = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


def tally(*argv: str) -> TallyProcess:
    """Start a command of `tally` on a store that refuses connections."""
    workspace: Any = SimpleNamespace(
        stack=SimpleNamespace(s3=SimpleNamespace(environment=lambda: LOGIN)),
        tap=SimpleNamespace(url="http://127.0.0.1:9"),
    )
    return TallyProcess(workspace, LAKE, *argv)


def test_a_process_ends_with_its_code_and_its_error() -> None:
    ended = tally("compact").end()
    assert ended.code == RETRY_LATER
    assert "store_unavailable" in str(ended)
    assert not ended.is_killed


def test_a_stopped_process_can_be_killed() -> None:
    process = tally("compact")
    freeze([process.process])
    process.kill()
    assert process.end().is_killed


def compactor() -> Compactor:
    notes: list[str] = []
    return Compactor(
        workspace=SimpleNamespace(),  # type: ignore[arg-type]
        lake=LAKE,
        target="16KB",
        rng=random.Random(1),
        note=notes.append,
    )


def test_each_end_of_a_compaction_is_counted() -> None:
    one = compactor()
    left = {"a": CANCELLED, "b": "0 of its 2 files", "c": "0 of its 2 files"}
    one.count(Ended(code=0, out=json.dumps({"left": left}), err=""))
    one.count(Ended(code=-signal.SIGKILL, out="", err=""))
    one.count(Ended(code=RETRY_LATER, out="", err="StoreUnavailable"))
    assert one.counts == Compactions(killed=1, outdated=2, cancelled=1, refused=1)
    assert one.problems == []


@pytest.mark.parametrize("code", [1, 70, 76, 77, -signal.SIGTERM])
def test_an_end_that_no_fault_explains_is_a_problem(code: int) -> None:
    one = compactor()
    one.count(Ended(code=code, out="", err="Corrupt: a page is gone"))
    (problem,) = one.problems
    assert "Corrupt: a page is gone" in problem


# ---------------------------------------------------------------- moments and faults


def seen(path: str, app: str = "") -> Seen:
    agent = {"User-Agent": f"Boto3/1.40 md/Botocore#1.40 {app} tallystick"}
    return Seen(method="PUT", path=path, headers=agent, body=b"", upstream_statuses=[])


ROOT_PUT = "/lake/a/root.json"


def test_requests_of_commands_and_of_runs_are_distinguished() -> None:
    senders = {app: sender_of(seen(ROOT_PUT, app)) for app in ("", "app/tally-gc", "app/other")}
    assert senders == {"": "run", "app/tally-gc": "gc", "app/other": "run"}
    swap = seen(ROOT_PUT, "app/tally-compact")
    by = {s: Point(name="", method="PUT", path="root", sender=s) for s in ("run", "compact", None)}  # type: ignore[arg-type]
    assert {s for s, point in by.items() if point.matches(swap, "a")} == {"compact", None}
    assert all(point.sender == "compact" for point in COMPACT)


def test_faults_of_compactions_spare_the_swaps_of_runs() -> None:
    rule = LostReplies(
        lake="a", kind="before", first=1, many=9, answer=500, due_after=1, sender="compact"
    )
    assert rule(seen(ROOT_PUT)) == NO_FAULT
    assert rule(seen(ROOT_PUT, "app/tally-gc")) == NO_FAULT
    assert rule(seen(ROOT_PUT, "app/tally-compact")) == HttpFault(forward="never", answer=500)


def test_in_a_lake_with_a_root_its_creation_is_no_moment() -> None:
    swaps = [p for p in PLAN if (p.method, p.path) == ("PUT", r"root\.json$")]
    assert {p.nth for p in swaps} == {1, 2}
    later = after_the_first_root(PLAN)
    assert len(later) == len(PLAN) - 2
    assert {p.nth for p in later if (p.method, p.path) == ("PUT", r"root\.json$")} == {1}


# ---------------------------------------------------------------- the course


@contextmanager
def course(monkeypatch: pytest.MonkeyPatch, *published: int) -> Iterator[Course]:
    """Return a course of rounds in which so many compactions are published."""
    upcoming = iter(published)

    def run(self: Round) -> Finding:
        self.compactor.counts.published = next(upcoming)
        self.compactor.counts.killed = 1
        return Finding(records=300)

    monkeypatch.setattr(Round, "run", run)
    workspace: Any = SimpleNamespace(
        base=Path("unused"), declare=lambda _: None, remove=lambda _: None
    )
    yield Course(
        workspace=workspace,
        nemeses=[NEMESES["compact"]],
        seed=1,
        report=lambda _: None,
        rounds=len(published),
    )


def test_course_sums_compactions(monkeypatch: pytest.MonkeyPatch) -> None:
    with course(monkeypatch, 3, 4) as played:
        assert played.run() is None
    assert played.lines["compact"].compactions == 7
    assert played.compactions == Compactions(published=7, killed=2)
    assert exit_code_of(played, None) == 0


def test_course_without_a_published_compaction_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with course(monkeypatch, 0, 0) as played:
        assert played.run() is None
    assert exit_code_of(played, None) == 2
