"""Input splits that share a task: their rows are in the same files, and each has an account of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.engine.attempt import assemble
from tallystick.engine.in_turn import run_in_turn
from tallystick.engine.input_splits import InputSplit, split_plan
from tallystick.engine.parquet import WriteLimits
from tallystick.engine.task import TaskResult, Work, run_splits
from tallystick.errors import OutsideRetention, ReportRejected
from tallystick.format.report import FileReport, Lineage
from tallystick.pipeline import Table
from tallystick.store.memory import MemoryStore

MakeWork = Callable[..., Work]
# The values of each partition from offset 0. One record of partition 1 is no JSON.
VALUES = (
    [b'{"n":1,"kind":"a"}', b'{"n":2,"kind":"b"}'],
    [b'{"n":10,"kind":"a"}', b"{", b'{"n":20,"kind":"c"}'],
    [b'{"n":100,"kind":"a"}'],
)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("small")


@pytest.fixture
def work(make_work: MakeWork, kit: SimpleNamespace, store: MemoryStore) -> Work:
    return make_work(*(kit.planned(0, len(values)) for values in VALUES), store=store)


@pytest.fixture
def reading_of(kit: SimpleNamespace) -> Callable[[InputSplit], Any]:
    def reading(split: InputSplit) -> Any:
        start, end = split.span.start, split.span.end
        return kit.FakeReading([kit.raw_batch(start, VALUES[split.partition][start:end])])

    return reading


def splits_of(work: Work, records_per_task: int = 100) -> tuple[InputSplit, ...]:
    return split_plan(work.plan, records_per_task=records_per_task)


def rows(store: MemoryStore, *files: FileReport) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in files:
        stored = store.get(file.key)
        assert stored is not None
        found += pq.read_table(pa.BufferReader(stored.body)).to_pylist()
    return found


def span(partition: int, first: int, last: int) -> Lineage:
    return Lineage(topic="events", partition=partition, first=first, last=last)


def test_rows_of_all_partitions_are_in_one_file_per_table_and_value(
    work: Work, store: MemoryStore, reading_of: Any, tmp_path: Path
) -> None:
    results = run_splits(work, splits_of(work), reading_of, scratch=tmp_path)
    first, *others = results
    assert [(r.split.partition, r.account.records, r.account.dead_letters) for r in results] == [
        (0, 2, 0),
        (1, 2, 1),
        (2, 1, 0),
    ]
    assert [(r.files, r.reasons, r.partials) for r in others] == [((), {}, {"per_kind": b""})] * 2
    events = {f.partition: f for f in first.files if f.table == "events"}
    assert events[("a",)].lineage == (span(0, 0, 0), span(1, 0, 0), span(2, 0, 0))
    assert events[("b",)].lineage == (span(0, 1, 1),)
    assert events[("c",)].lineage == (span(1, 2, 2),)
    stored = rows(store, *events.values())
    assert sorted((r["_kafka_partition"], r["_offset"], r["n"]) for r in stored) == [
        (0, 0, 1),
        (0, 1, 2),
        (1, 0, 10),
        (1, 2, 20),
        (2, 0, 100),
    ]
    (dead,) = [f for f in first.files if f.table == "dead_letters"]
    assert dead.lineage == (span(1, 1, 1),)
    assert len(first.files) == len(events) + 1
    assert {f.key.split("/")[-1][:5] for f in first.files} == {first.split.task}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sizes", [(3,), (1, 2), (2, 1), (1, 1, 1)])
def test_the_report_is_the_same_however_the_splits_are_grouped(
    work: Work, store: MemoryStore, reading_of: Any, sizes: tuple[int, ...]
) -> None:
    splits = splits_of(work)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    groups = [splits[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    report = assemble(work, splits, run_in_turn(work, groups, reading_of))
    assert [(a.partition, a.records, a.dead_letters) for a in report.accounts] == [
        (0, 2, 0),
        (1, 2, 1),
        (2, 1, 0),
    ]
    assert {name: report.rows(name) for name in ("events", "dead_letters", "per_kind")} == {
        "events": 5,
        "dead_letters": 1,
        "per_kind": 3,
    }
    combined = rows(store, *(f for f in report.files if f.table == "per_kind"))
    assert {row["kind"]: row["n"] for row in combined} == {"a": 111, "b": 2, "c": 20}


def test_a_split_in_the_middle_of_a_partition_shares_the_files_too(
    work: Work, reading_of: Any
) -> None:
    """The splits of partition 1 are [0, 1), [1, 2) and [2, 3): its rows have one span in a file."""
    splits = splits_of(work, records_per_task=1)
    assert len(splits) == sum(map(len, VALUES))
    first, *_ = run_splits(unpartitioned(work), splits, reading_of)
    (events,) = [f for f in first.files if f.table == "events"]
    assert events.lineage == (span(0, 0, 1), span(1, 0, 2), span(2, 0, 0))


def unpartitioned(work: Work) -> Work:
    """Return the work with a table that has no partition columns, and so one file per task."""
    (table, summed) = work.pipeline.tables
    plain = replace(work.pipeline, tables=[Table("events", columns=table.columns), summed])
    return replace(work, pipeline=plain)


def test_rows_that_are_sorted_on_disk_keep_the_lineage_of_their_partitions(
    make_work: MakeWork, kit: SimpleNamespace, store: MemoryStore, reading_of: Any
) -> None:
    """With more values than open files, rows wait in a spill, without the split that they came from."""
    limits = WriteLimits(files_open=1, waiting_bytes=1)
    work = make_work(
        *(kit.planned(0, len(values)) for values in VALUES), store=store, limits=limits
    )
    first, *_ = run_splits(work, splits_of(work), reading_of)
    events = {f.partition: f.lineage for f in first.files if f.table == "events"}
    assert events == {
        ("a",): (span(0, 0, 0), span(1, 0, 0), span(2, 0, 0)),
        ("b",): (span(0, 1, 1),),
        ("c",): (span(1, 2, 2),),
    }


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_split_that_cannot_be_read_leaves_no_upload_of_its_task(
    work: Work, store: MemoryStore, reading_of: Any, failing: int, tmp_path: Path
) -> None:
    def gone(split: InputSplit) -> Any:
        if split.partition == failing:
            raise OutsideRetention("its records are gone.", hint="none.")
        return reading_of(split)

    with pytest.raises(OutsideRetention, match="gone"):
        run_splits(work, splits_of(work), gone, scratch=tmp_path)
    assert list(store.list("")) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_result_that_is_lost_is_refused(work: Work, reading_of: Any, lost: int) -> None:
    splits = splits_of(work)
    results = run_splits(work, splits, reading_of)
    with pytest.raises(ReportRejected, match=r"has no result"):
        assemble(work, splits, [r for i, r in enumerate(results) if i != lost])


def test_results_without_partial_rows_are_refused(work: Work, reading_of: Any) -> None:
    """An aggregating table would lose the rows of a split without any error."""
    splits = splits_of(work)
    results = [replace(r, partials={}) for r in run_splits(work, splits, reading_of)]
    with pytest.raises(KeyError, match="per_kind"):
        assemble(work, splits, results)


def test_a_result_is_the_same_after_its_way_from_the_worker(work: Work, reading_of: Any) -> None:
    for result in run_splits(work, splits_of(work), reading_of):
        sent = TaskResult.from_text(result.to_text(), "here")
        assert replace(sent, partials=result.partials) == result
