"""Intervals that memory does not hold: what is sent is the same, and memory does not grow with the rows.

The numbers here are small: what is held in memory is set to a few rows, so that the local disk is used as for millions.
tests/bench/bench_publish_memory.py has the millions.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import shutil
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick import pipeline
from tallystick.errors import OutputRefused, OutputUnavailable, ScratchFull
from tallystick.outputs import changes as changes_module
from tallystick.outputs import occurrences, spill
from tallystick.outputs.calls.effects import check_keys, effects
from tallystick.outputs.changes import Change, changes
from tallystick.outputs.encoding import encoded
from tallystick.outputs.port import Publication, Rows
from tallystick.outputs.spill import DigestTables
from tallystick.tables.schema import arrow_type
from unit.outputs.sendings import SCOPE, TableRows, publication

LINEAGE = ("topic", "part", "at")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every interval is too large for memory; returns the folder in which temporary ones are made."""
    monkeypatch.setattr(occurrences, "HELD", 0)
    monkeypatch.setattr(changes_module, "HELD", 0)
    monkeypatch.setattr(occurrences, "PIECE_ROWS", 3)
    monkeypatch.setattr(spill, "BATCH", 4)
    monkeypatch.setattr(spill, "SLICE_ROWS", 5)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def rows_of(keys: list[tuple[str, int, int]], **more: list[Any]) -> Rows:
    """Rows with this lineage, ten to a file."""
    names = dict(zip(LINEAGE, zip(*keys, strict=True), strict=True)) if keys else {}
    table = pa.table({name: list(values) for name, values in (names | more).items()})
    return TableRows(*(table.slice(at, 10) for at in range(0, len(table), 10)))


def in_memory(one: Publication, identity: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """What was sent when all was held in memory: operation, row, its number, identity and occurrence, in order."""

    def counted(rows: Rows) -> Iterator[tuple[dict[str, Any], tuple[Any, ...], int]]:
        seen: dict[bytes, int] = {}
        for batch in rows.batches():
            for row in batch.to_pylist():
                key = tuple(row.get(name) for name in identity)
                name = encoded({"k": list(key)})
                yield row, key, seen.setdefault(name, 0)
                seen[name] += 1

    def named(key: tuple[Any, ...], n: int) -> bytes:
        return encoded({"k": list(key), "n": n})

    there = {named(key, n): encoded(row) for row, key, n in counted(one.rows_before)}
    found: list[tuple[Any, ...]] = []
    for at, (row, key, n) in enumerate(counted(one.rows)):
        was = there.pop(named(key, n), None)
        if was != encoded(row):
            found.append(("row" if was is None else "correction", row, at, key, n))
    for at, (row, key, n) in enumerate(counted(one.rows_before)):
        if named(key, n) in there:
            found.append(("retraction", row, at, key, n))
    return found


def told(found: list[Change]) -> list[tuple[Any, ...]]:
    """The same of changes; their numbers count them."""
    assert [one.number for one in found] == list(range(len(found)))
    return [(c.operation, c.row, c.row_number, c.identity, c.occurrence) for c in found]


RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 4)), max_size=24
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=RECORDS, after=RECORDS, ordered=st.booleans(), chance=st.integers(0, 9))
def test_what_is_sent_of_a_large_interval_is_what_was_sent_of_a_small_one(
    large: Path,
    before: list[tuple[str, int, int]],
    after: list[tuple[str, int, int]],
    ordered: bool,
    chance: int,
) -> None:
    draw = random.Random(chance)
    if ordered:
        before, after = sorted(before), sorted(after)
    values = [draw.randint(0, 1) for _ in range(24)]
    old = rows_of(before, n=values[: len(before)])
    new = rows_of(after, n=values[::-1][: len(after)])
    first = replace(publication([]), rows=new)
    again = replace(first, generation=2, instead_of="9" * 32, generation_before=1, rows_before=old)
    for one in (first, again):
        assert told(list(changes(one, LINEAGE))) == in_memory(one, LINEAGE)
    assert not list(large.iterdir())


PARTS = [[("t", 0, n // 2) for n in range(20)], [("t", 1, n // 3) for n in range(20)]]


@pytest.mark.parametrize(
    "keys",
    [
        PARTS[0] + PARTS[1],
        # The files of a plan need not come in the order of their offsets.
        PARTS[1] + PARTS[0],
        PARTS[0][10:] + PARTS[1] + PARTS[0][:10],
        PARTS[0][:10] + PARTS[1] + PARTS[0][10:],
        [("t", 0, n) for n in (*range(4), *range(6, 10), *range(4, 6))],
    ],
)
def test_rows_in_runs_that_do_not_overlap_need_no_disk(
    large: Path, monkeypatch: pytest.MonkeyPatch, keys: list[tuple[str, int, int]]
) -> None:
    def none(_: DigestTables) -> None:
        raise AssertionError("the local disk was used")

    monkeypatch.setattr(DigestTables, "_open", none)
    one = replace(publication([]), rows=rows_of(keys, n=list(range(len(keys)))))
    assert told(list(changes(one, LINEAGE))) == in_memory(one, LINEAGE)


OVERLAPPING = [("t", 0, 1), ("t", 0, 2), ("t", 0, 3), ("t", 1, 0), ("t", 0, 2), ("t", 0, 9)]


def test_a_run_that_reaches_into_another_one_is_noticed(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files of one range of offsets, as a table with partitions has them: a record may have rows in both."""
    one = replace(publication([]), rows=rows_of(OVERLAPPING))
    assert [c.occurrence for c in changes(one, LINEAGE)] == [0, 0, 0, 0, 1, 0]
    # Without the look at earlier runs it would count as the first one, and be sent under another's key.
    monkeypatch.setattr(occurrences, "bisect_right", lambda *_: 0)
    assert [c.occurrence for c in changes(one, LINEAGE)] == [0] * 6


@pytest.mark.parametrize(
    "offsets",
    [
        # A doubled key on both sides of a piece's edge (three rows here), whose run then goes over another one.
        [10, 11, 12, 7, 8, 9, 9, 10, 11],
        [10, 11, 12, 7, 8, 9, 9, 9, 10, 11],
        [10, 11, 12, 7, 8, 9, 9, 13, 14],
    ],
)
def test_a_run_that_goes_on_over_the_edge_of_a_piece_is_bounded_as_before(
    large: Path, offsets: list[int]
) -> None:
    one = replace(publication([]), rows=rows_of([("t", 0, at) for at in offsets]))
    assert told(list(changes(one, LINEAGE))) == in_memory(one, LINEAGE)


def test_the_lineage_of_a_table_in_its_order_needs_no_disk(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns and types that the product itself writes."""

    def none(_: DigestTables) -> None:
        raise AssertionError("the local disk was used")

    monkeypatch.setattr(DigestTables, "_open", none)
    names = tuple(column.name for column in pipeline.LINEAGE)
    values: list[list[Any]] = [["t"] * 20, [0] * 20, list(range(20)), [NOON] * 20]
    table = pa.table(
        {
            column.name: pa.array(cells, arrow_type(column.type))
            for column, cells in zip(pipeline.LINEAGE, values, strict=True)
        }
    )
    one = replace(publication([]), rows=TableRows(table), identity=names)
    assert told(list(changes(one, names))) == in_memory(one, names)


def test_more_runs_than_are_held_are_sorted_on_the_disk(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(occurrences, "RUNS_MAX", 3)
    keys = PARTS[0] + PARTS[1]
    one = replace(publication([]), rows=rows_of(keys))
    assert told(list(changes(one, LINEAGE))) == in_memory(one, LINEAGE)


@pytest.mark.parametrize(
    "values",
    [
        [None, None, "a", None],
        [1.5, float("nan"), float("nan"), 1.5],
        [True, False, True, True],
        [b"a", b"b", b"a", b"a"],
    ],
)
def test_identities_of_any_type_are_counted(large: Path, values: list[Any]) -> None:
    table = pa.table({"k": values, "n": [1, 2, 3, 4]})
    one = replace(publication([]), rows=TableRows(table.slice(0, 2), table.slice(2)))
    found = [c.occurrence for c in changes(one, ("k",))]
    assert found == [sum(repr(v) == repr(w) for w in values[:at]) for at, v in enumerate(values)]


def test_keys_of_calls_are_the_same_however_they_are_counted(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output that was begun by a process that held all in memory goes on in one that does not."""
    old, new = (
        [{"k": k, "n": 1} for k in "abcab"],
        [{"k": k, "n": n} for n, k in enumerate("bacad")],
    )
    sendings = (
        publication(old),
        publication(new, plan=2, generation=2, instead_of=1, before=old),
    )

    def found() -> list[Any]:
        return [
            (e.number, e.key, e.row_key, e.row_number, e.operation)
            for one in sendings
            for e in effects(one, SCOPE, key=(), once=False)
        ]

    of_large = found()
    monkeypatch.setattr(occurrences, "HELD", 100)
    monkeypatch.setattr(changes_module, "HELD", 100)
    assert found() == of_large


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["b", "a", "c", "a", "b"], r"rows 1 and 3 have one key \(k='a'\)"),
        (["b", "a", None, "a"], r"row 2 has no value in its key column 'k'"),
        (["b", "a", "c"], ""),
    ],
)
def test_a_doubled_key_is_found_in_a_large_interval(
    large: Path, values: list[Any], said: str
) -> None:
    one = publication([{"k": value} for value in values])
    if said:
        with pytest.raises(OutputRefused, match=said):
            check_keys(one, ["k"])
    else:
        check_keys(one, ["k"])
    assert not list(large.iterdir())


# ---------------------------------------------------------------- memory


class Made:
    """Rows that are made when they are read. `shuffled`: no two neighbours are in order."""

    def __init__(self, count: int, *, shuffled: bool = False, value: int = 0) -> None:
        self.count, self.shuffled, self.value = count, shuffled, value

    def __len__(self) -> int:
        return self.count

    def batches(self, start: int = 0) -> Iterator[pa.RecordBatch]:
        assert start == 0
        for first in range(0, self.count, 500):
            at = range(first, min(first + 500, self.count))
            # 7,919 is a prime: each number below `count` comes once.
            numbers = [n * 7_919 % self.count for n in at] if self.shuffled else list(at)
            yield pa.RecordBatch.from_pydict(
                {"topic": ["t"] * len(at), "part": [0] * len(at), "at": numbers}
                | {"n": [self.value] * len(at)}
            )


def sent_of(count: int, *, shuffled: bool, before: bool) -> None:
    one = replace(publication([]), rows=Made(count, shuffled=shuffled), identity=LINEAGE)
    if before:
        was = Made(count, shuffled=shuffled, value=1)
        one = replace(one, instead_of="9" * 32, generation_before=1, rows_before=was)
    with closing(changes(one, LINEAGE)) as found:
        assert sum(1 for _ in found) == count


def checked(count: int) -> None:
    check_keys(replace(publication([]), rows=Made(count, shuffled=True)), ["at"])


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda n: sent_of(n, shuffled=False, before=False), id="first-in-order"),
        pytest.param(lambda n: sent_of(n, shuffled=True, before=False), id="first-in-no-order"),
        pytest.param(lambda n: sent_of(n, shuffled=True, before=True), id="replacement"),
        pytest.param(checked, id="keys"),
    ],
)
def test_memory_does_not_grow_with_the_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, work: Callable[[int], None]
) -> None:
    for module in (occurrences, changes_module):
        monkeypatch.setattr(module, "HELD", 500)
    monkeypatch.setattr(spill, "BATCH", 500)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    work(1_000)  # what is loaded and cached once
    peaks = []
    for count in (2_000, 8_000):
        gc.collect()
        tracemalloc.start()
        work(count)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # A dict of digests takes 101 bytes for each of the 6,000 rows more.
    assert peaks[1] - peaks[0] < 200_000, peaks


# ---------------------------------------------------------------- the folder


def test_the_folder_is_gone_when_a_sending_ends_early(large: Path) -> None:
    one = replace(publication([]), rows=rows_of(OVERLAPPING * 3))
    found = changes(one, LINEAGE)
    for _ in range(7):
        next(found)
    assert len(list(large.iterdir())) == 1
    found.close()
    assert not list(large.iterdir())


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_live_one_is_kept(
    large: Path,
) -> None:
    dead, alive = large / "tallystick-rows-dead", large / "tallystick-rows-alive"
    for folder in (dead, alive):
        (folder / "files").mkdir(parents=True)
        (folder / "lock").write_bytes(b"")
    with (alive / "lock").open("rb") as held, DigestTables() as one:
        fcntl.flock(held, fcntl.LOCK_EX)
        one.count("rows", [b"0" * 16])
        assert len(list(large.iterdir())) == 2
        assert alive.exists()
        assert not dead.exists()


def test_an_empty_folder_of_a_process_that_died_early_is_removed_and_a_new_one_is_kept(
    large: Path,
) -> None:
    old, new = large / "tallystick-rows-old", large / "tallystick-rows-new"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    with DigestTables() as one:
        one.count("rows", [b"0" * 16])
    assert [left.name for left in large.iterdir()] == [new.name]


def test_a_folder_that_was_removed_before_its_lock_was_held_is_made_again(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes the new folder for abandoned between the making of the lock file and the lock."""
    real, taken = fcntl.flock, []

    def late(file: Any, how: int) -> None:
        if not taken:
            taken.append(Path(file.name).parent)
            shutil.rmtree(taken[0])
        real(file, how)

    monkeypatch.setattr(spill.fcntl, "flock", late)
    with DigestTables() as one:
        one.count("rows", [b"0" * 16, b"0" * 16])
        assert one.counted("rows", 0, 2) == {1: 1}
    assert taken


def test_free_space_is_that_of_the_disk_also_where_the_folder_is_gone(tmp_path: Path) -> None:
    assert spill._free(tmp_path / "gone" / "too") > 0


@pytest.mark.parametrize(("free", "error"), [(0, ScratchFull), (1 << 40, OutputUnavailable)])
def test_a_disk_that_takes_no_more_is_named_with_what_to_do(
    large: Path, monkeypatch: pytest.MonkeyPatch, free: int, error: type[Exception]
) -> None:
    """DuckDB is given a folder that takes nothing, and less memory than the digests need."""
    monkeypatch.setattr(spill, "_free", lambda _: free)
    monkeypatch.setattr(spill, "MEMORY", "1MB")
    monkeypatch.setattr(spill, "BATCH", 65_536)
    with DigestTables() as one:
        one._open()
        assert one._folder is not None
        (one._folder / "files").write_text("no folder")
        with pytest.raises(error, match=r"on the local disk") as caught:
            one.count("rows", (n.to_bytes(16, "big") for n in range(300_000)))
    assert isinstance(caught.value.__cause__, duckdb.Error)
    assert "TMPDIR" in str(caught.value)
    assert not list(large.iterdir())
