"""Intervals that do not fit in memory: the same is sent, and memory does not grow with the number of rows.

The numbers here are small: the limit of rows in memory is set to a few, so that the local disk is used as for millions.
bench/parts/publish_memory.py tests millions.
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
from unit.outputs.publications import SCOPE, TableRows, publication

LINEAGE = ("topic", "part", "at")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make every interval too large for memory. Returns the folder that gets the temporary folders."""
    monkeypatch.setattr(occurrences, "HELD", 0)
    monkeypatch.setattr(changes_module, "HELD", 0)
    monkeypatch.setattr(occurrences, "PIECE_ROWS", 3)
    monkeypatch.setattr(spill, "BATCH", 4)
    monkeypatch.setattr(spill, "SLICE_ROWS", 5)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def rows_of(keys: list[tuple[str, int, int]], **more: list[Any]) -> Rows:
    """Return rows with this lineage, ten per file."""
    names = dict(zip(LINEAGE, zip(*keys, strict=True), strict=True)) if keys else {}
    table = pa.table({name: list(values) for name, values in (names | more).items()})
    return TableRows(*(table.slice(at, 10) for at in range(0, len(table), 10)))


def in_memory(pub: Publication, identity: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return the changes as computed in memory: operation, row, its number, identity and occurrence, in order."""

    def counted(rows: Rows) -> Iterator[tuple[dict[str, Any], tuple[Any, ...], int]]:
        occurrences_of: dict[bytes, int] = {}
        for batch in rows.batches():
            for row in batch.to_pylist():
                key = tuple(row.get(name) for name in identity)
                name = encoded({"k": list(key)})
                yield row, key, occurrences_of.setdefault(name, 0)
                occurrences_of[name] += 1

    def named(key: tuple[Any, ...], n: int) -> bytes:
        return encoded({"k": list(key), "n": n})

    there = {named(key, n): encoded(row) for row, key, n in counted(pub.rows_before)}
    found: list[tuple[Any, ...]] = []
    for at, (row, key, n) in enumerate(counted(pub.rows)):
        was = there.pop(named(key, n), None)
        if was != encoded(row):
            found.append(("row" if was is None else "correction", row, at, key, n))
    for at, (row, key, n) in enumerate(counted(pub.rows_before)):
        if named(key, n) in there:
            found.append(("retraction", row, at, key, n))
    return found


def as_tuples(found: list[Change]) -> list[tuple[Any, ...]]:
    """Return the same fields of changes. Their numbers are consecutive from 0."""
    assert [change.number for change in found] == list(range(len(found)))
    return [(c.operation, c.row, c.row_number, c.identity, c.occurrence) for c in found]


RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 4)), max_size=24
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=RECORDS, after=RECORDS, ordered=st.booleans(), seed=st.integers(0, 9))
def test_a_large_interval_is_sent_as_if_it_were_in_memory(
    large: Path,
    before: list[tuple[str, int, int]],
    after: list[tuple[str, int, int]],
    ordered: bool,
    seed: int,
) -> None:
    draw = random.Random(seed)
    if ordered:
        before, after = sorted(before), sorted(after)
    values = [draw.randint(0, 1) for _ in range(24)]
    old = rows_of(before, n=values[: len(before)])
    new = rows_of(after, n=values[::-1][: len(after)])
    first = replace(publication([]), rows=new)
    again = replace(first, generation=2, instead_of="9" * 32, generation_before=1, rows_before=old)
    for pub in (first, again):
        assert as_tuples(list(changes(pub, LINEAGE))) == in_memory(pub, LINEAGE)
    assert not list(large.iterdir())


PARTS = [[("t", 0, n // 2) for n in range(20)], [("t", 1, n // 3) for n in range(20)]]


@pytest.mark.parametrize(
    "keys",
    [
        PARTS[0] + PARTS[1],
        # The files of a plan are not necessarily in the order of their offsets.
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
    pub = replace(publication([]), rows=rows_of(keys, n=list(range(len(keys)))))
    assert as_tuples(list(changes(pub, LINEAGE))) == in_memory(pub, LINEAGE)


OVERLAPPING = [("t", 0, 1), ("t", 0, 2), ("t", 0, 3), ("t", 1, 0), ("t", 0, 2), ("t", 0, 9)]


def test_a_run_that_overlaps_another_is_detected(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with partitions has two files for one range of offsets, and a record may have rows in both."""
    pub = replace(publication([]), rows=rows_of(OVERLAPPING))
    assert [c.occurrence for c in changes(pub, LINEAGE)] == [0, 0, 0, 0, 1, 0]
    # Without the check of previous runs it would count as the first, and be sent with the key of another row.
    monkeypatch.setattr(occurrences, "bisect_right", lambda *_: 0)
    assert [c.occurrence for c in changes(pub, LINEAGE)] == [0] * 6


@pytest.mark.parametrize(
    "offsets",
    [
        # A doubled key on both sides of the end of a piece (three rows here), whose run then overlaps another.
        [10, 11, 12, 7, 8, 9, 9, 10, 11],
        [10, 11, 12, 7, 8, 9, 9, 9, 10, 11],
        [10, 11, 12, 7, 8, 9, 9, 13, 14],
    ],
)
def test_a_run_that_continues_over_the_end_of_a_piece_has_the_same_bounds(
    large: Path, offsets: list[int]
) -> None:
    pub = replace(publication([]), rows=rows_of([("t", 0, at) for at in offsets]))
    assert as_tuples(list(changes(pub, LINEAGE))) == in_memory(pub, LINEAGE)


def test_the_lineage_of_a_table_in_its_order_needs_no_disk(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are the columns and types that the product writes."""

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
    pub = replace(publication([]), rows=TableRows(table), identity=names)
    assert as_tuples(list(changes(pub, names))) == in_memory(pub, names)


def test_more_runs_than_fit_in_memory_are_sorted_on_disk(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(occurrences, "RUNS_MAX", 3)
    keys = PARTS[0] + PARTS[1]
    pub = replace(publication([]), rows=rows_of(keys))
    assert as_tuples(list(changes(pub, LINEAGE))) == in_memory(pub, LINEAGE)


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
    pub = replace(publication([]), rows=TableRows(table.slice(0, 2), table.slice(2)))
    found = [c.occurrence for c in changes(pub, ("k",))]
    assert found == [sum(repr(v) == repr(w) for w in values[:at]) for at, v in enumerate(values)]


def test_keys_of_calls_are_the_same_in_memory_and_on_disk(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publication that one process began in memory is completed by a process that uses the disk."""
    old, new = (
        [{"k": k, "n": 1} for k in "abcab"],
        [{"k": k, "n": n} for n, k in enumerate("bacad")],
    )
    publications = (
        publication(old),
        publication(new, plan=2, generation=2, instead_of=1, before=old),
    )

    def found() -> list[Any]:
        return [
            (e.number, e.key, e.row_key, e.row_number, e.operation)
            for pub in publications
            for e in effects(pub, SCOPE, key=(), once=False)
        ]

    of_large = found()
    monkeypatch.setattr(occurrences, "HELD", 100)
    monkeypatch.setattr(changes_module, "HELD", 100)
    assert found() == of_large


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["b", "a", "c", "a", "b"], r"found rows 1 and 3 with the key \(k='a'\)"),
        (["b", "a", None, "a"], r"row 2: expected a value in key column 'k', found null"),
        (["b", "a", "c"], ""),
    ],
)
def test_a_doubled_key_is_found_in_a_large_interval(
    large: Path, values: list[Any], message: str
) -> None:
    pub = publication([{"k": value} for value in values])
    if message:
        with pytest.raises(OutputRefused, match=message):
            check_keys(pub, ["k"])
    else:
        check_keys(pub, ["k"])
    assert not list(large.iterdir())


# ---------------------------------------------------------------- memory


class GeneratedRows:
    """Rows that are generated when they are read. `shuffled`: no two neighbours are in order."""

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
    pub = replace(publication([]), rows=GeneratedRows(count, shuffled=shuffled), identity=LINEAGE)
    if before:
        was = GeneratedRows(count, shuffled=shuffled, value=1)
        pub = replace(pub, instead_of="9" * 32, generation_before=1, rows_before=was)
    with closing(changes(pub, LINEAGE)) as found:
        assert sum(1 for _ in found) == count


def checked(count: int) -> None:
    check_keys(replace(publication([]), rows=GeneratedRows(count, shuffled=True)), ["at"])


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
    work(1_000)  # loads and caches what is used once
    peaks = []
    for count in (2_000, 8_000):
        gc.collect()
        tracemalloc.start()
        work(count)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # A dict of digests would take 101 bytes for each of the 6,000 additional rows.
    assert peaks[1] - peaks[0] < 200_000, peaks


# ---------------------------------------------------------------- the folder


def test_the_folder_is_removed_if_a_publication_ends_early(large: Path) -> None:
    pub = replace(publication([]), rows=rows_of(OVERLAPPING * 3))
    found = changes(pub, LINEAGE)
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
    with (alive / "lock").open("rb") as lock, DigestTables() as tables:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tables.count("rows", [b"0" * 16])
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
    with DigestTables() as tables:
        tables.count("rows", [b"0" * 16])
    assert [left.name for left in large.iterdir()] == [new.name]


def test_a_folder_removed_before_it_was_locked_is_created_again(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process treats the new folder as abandoned between the creation of the lock file and the lock."""
    real, taken = fcntl.flock, []

    def late(file: Any, how: int) -> None:
        if not taken:
            taken.append(Path(file.name).parent)
            shutil.rmtree(taken[0])
        real(file, how)

    monkeypatch.setattr(spill.fcntl, "flock", late)
    with DigestTables() as tables:
        tables.count("rows", [b"0" * 16, b"0" * 16])
        assert tables.counted("rows", 0, 2) == {1: 1}
    assert taken


def test_free_space_is_that_of_the_disk_even_if_the_folder_is_gone(tmp_path: Path) -> None:
    assert spill._free(tmp_path / "gone" / "too") > 0


@pytest.mark.parametrize(("free", "error"), [(0, ScratchFull), (1 << 40, OutputUnavailable)])
def test_a_full_local_disk_is_an_error_with_a_hint(
    large: Path, monkeypatch: pytest.MonkeyPatch, free: int, error: type[Exception]
) -> None:
    """DuckDB gets a folder that it cannot write to, and less memory than the digests need."""
    monkeypatch.setattr(spill, "_free", lambda _: free)
    monkeypatch.setattr(spill, "MEMORY", "1MB")
    monkeypatch.setattr(spill, "BATCH", 65_536)
    with DigestTables() as tables:
        tables._open()
        assert tables._folder is not None
        (tables._folder / "files").write_text("no folder")
        with pytest.raises(error, match=r"on the local disk") as caught:
            tables.count("rows", (n.to_bytes(16, "big") for n in range(300_000)))
    assert isinstance(caught.value.__cause__, duckdb.Error)
    assert "TMPDIR" in str(caught.value)
    assert not list(large.iterdir())
