"""Files of a table with many partition values: one per value, in limited memory, never more than a report can list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.engine.attempt import assemble
from tallystick.engine.input_splits import split_plan
from tallystick.engine.outputs import write_output
from tallystick.engine.parquet import TableWriter, WriteLimits
from tallystick.engine.room import ReportRoom, file_bytes, require_room
from tallystick.engine.task import Work, run_split
from tallystick.errors import InvalidPipeline
from tallystick.format.columns import TableColumn
from tallystick.format.report import FileReport, Lineage
from tallystick.pipeline import Column, Table
from tallystick.store.memory import MemoryStore
from tallystick.tables.calendar import DAY_US
from tallystick.tables.partitioning import partitions_in
from tallystick.tables.schema import arrow_field

DAYS = 3_650
MakeWork = Callable[..., Work]


def by_day(**changes: Any) -> dict[str, Any]:
    """Return the declaration of one record-level table, partitioned by day."""
    columns = [Column("n", "long"), Column("at", "timestamptz", parse="epoch_us")]
    return {"tables": [Table("events", columns=columns, partition_by=["day(at)"])], **changes}


def rows_of(offsets: Sequence[int], days: Any) -> pa.RecordBatch:
    count = len(offsets)
    at = pa.array(np.asarray(days, np.int64) * DAY_US + 1).cast(pa.timestamp("us", tz="UTC"))
    return pa.record_batch(
        {
            "n": pa.array(offsets, pa.int64()),
            "at": at,
            "_topic": pa.array(["events"] * count),
            "_kafka_partition": pa.array([0] * count, pa.int32()),
            "_offset": pa.array(offsets, pa.int64()),
            "_timestamp": at,
        }
    )


class Uploads:
    """The uploaded files, in memory."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.bodies: dict[str, bytes] = {}

    def __call__(self, table: str, path: Path) -> tuple[str, str]:
        key, etag = self.work.upload("00000")(table, path)
        self.bodies[key] = path.read_bytes()
        return key, etag

    def column(self, key: str, name: str) -> list[Any]:
        """Return the values of a column of an uploaded file."""
        values: list[Any] = pq.read_table(pa.BufferReader(self.bodies[key]))[name].to_pylist()
        return values


def written(
    work: Work, batches: Iterator[pa.RecordBatch], folder: Path, limits: WriteLimits, **room: Any
) -> tuple[tuple[FileReport, ...], Uploads]:
    uploads = Uploads(work)
    with TableWriter(
        work.planned("events"),
        partition_by=["day(at)"],
        upload=uploads,
        folder=folder,
        limits=limits,
        **room,
    ) as writer:
        for batch in batches:
            writer.write(pa.Table.from_batches([batch]), source=("events", 0))
        return writer.close(), uploads


@pytest.mark.parametrize(("days", "waiting_bytes", "runs"), [(DAYS, 200_000, 3), (40, 96 << 20, 0)])
def test_each_of_3650_values_in_random_order_gets_one_file(
    make_work: MakeWork,
    kit: SimpleNamespace,
    tmp_path: Path,
    days: int,
    waiting_bytes: int,
    runs: int,
) -> None:
    work = make_work(kit.planned(0, 10**6), pipeline=kit.small_pipeline(**by_day()))
    drawn = np.random.default_rng(5).permutation(np.tile(np.arange(days), 4))
    batches = np.array_split(np.arange(len(drawn)), 9)
    limits = WriteLimits(waiting_bytes=waiting_bytes)
    spilled: list[int] = []

    def incoming() -> Iterator[pa.RecordBatch]:
        for offsets in batches:
            yield rows_of(offsets.tolist(), drawn[offsets])
            spilled.append(len(list(tmp_path.glob("*.spill"))))

    files, uploads = written(work, incoming(), tmp_path, limits)

    assert len(files) == days
    assert {f.partition for f in files} == {(day,) for day in range(days)}
    assert sum(f.rows for f in files) == len(drawn)
    assert spilled[-1] == runs  # no other file is on the disk
    assert list(tmp_path.iterdir()) == []
    for file in files[:: max(1, days // 100)]:
        expected = np.flatnonzero(drawn == file.partition[0]).tolist()
        assert uploads.column(file.key, "_offset") == expected
        span = (expected[0], expected[-1])
        assert file.lineage == (Lineage(topic="events", partition=0, first=span[0], last=span[1]),)
        bounds = file.columns[0]
        assert tuple(
            int.from_bytes(bytes.fromhex(b), "little") for b in (bounds.lower, bounds.upper) if b
        ) == (span[0], span[1])


def test_open_files_are_continued_when_values_become_many(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    work = make_work(kit.planned(0, 10**6), pipeline=kit.small_pipeline(**by_day()))
    drawn = np.concatenate([np.arange(400) % 4, np.arange(2_000) % 50])
    batches = (rows_of(o.tolist(), drawn[o]) for o in np.split(np.arange(2_400), 6))
    # The first batch fills row groups of the four open files; the second has 46 more values.
    files, uploads = written(work, batches, tmp_path, WriteLimits(group_rows=60))
    assert sorted(f.partition for f in files) == [(day,) for day in range(50)]
    for file in files:
        found = uploads.column(file.key, "n")
        assert found == np.flatnonzero(drawn == file.partition[0]).tolist()
        assert file.rows == len(found)


def test_a_value_with_much_data_has_files_of_the_configured_size(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    work = make_work(kit.planned(0, 10**6), pipeline=kit.small_pipeline(**by_day()))
    drawn = np.where(np.arange(3_000) % 3, 0, np.arange(3_000) % 40)
    limits = WriteLimits(group_rows=300, file_bytes=1, waiting_bytes=20_000)
    batches = (rows_of(o.tolist(), drawn[o]) for o in np.split(np.arange(3_000), 10))
    files, _ = written(work, batches, tmp_path, limits)
    assert sum(f.partition == (0,) for f in files) > 3
    assert sum(f.rows for f in files) == 3_000
    assert {f.partition for f in files} == {(day,) for day in drawn.tolist()}


def test_files_have_the_size_and_the_compression_of_the_planned_table(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    work = make_work(kit.planned(0, 10**6), pipeline=kit.small_pipeline(**by_day()))
    rows = rows_of(list(range(3_000)), np.zeros(3_000))
    found: dict[str, tuple[int, set[str]]] = {}
    for codec, size_bytes in (("zstd", 1 << 62), ("snappy", 1 << 62), ("uncompressed", 1)):
        uploads = Uploads(work)
        table = replace(work.planned("events"), compression=codec, file_size_bytes=size_bytes)
        limits = WriteLimits(group_rows=1_000)
        with TableWriter(
            table,
            partition_by=(),
            upload=uploads,
            folder=tmp_path,
            limits=limits,
        ) as writer:
            for start in range(0, 3_000, 500):
                part = pa.Table.from_batches([rows.slice(start, 500)])
                writer.write(part, source=("events", 0))
            writer.close()
        footers = [pq.read_metadata(pa.BufferReader(body)) for body in uploads.bodies.values()]
        found[codec] = (
            len(footers),
            {
                f.row_group(g).column(c).compression
                for f in footers
                for g in range(f.num_row_groups)
                for c in range(f.num_columns)
            },
        )
    assert found == {
        "zstd": (1, {"ZSTD"}),
        "snappy": (1, {"SNAPPY"}),
        "uncompressed": (3, {"UNCOMPRESSED"}),
    }


def test_spilled_files_are_removed_after_a_failure(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    work = make_work(kit.planned(0, 10**6), pipeline=kit.small_pipeline(**by_day()))

    def incoming() -> Iterator[pa.RecordBatch]:
        yield rows_of(list(range(100)), np.arange(100))
        assert list(tmp_path.glob("*.spill"))
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        written(work, incoming(), tmp_path, WriteLimits(waiting_bytes=1))
    assert list(tmp_path.iterdir()) == []


def test_more_values_than_a_report_can_list_are_refused_at_their_batch(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    work = make_work(kit.planned(0, 10**6), pipeline=kit.small_pipeline(**by_day()))
    batches: list[int] = []

    def incoming() -> Iterator[pa.RecordBatch]:
        for first in range(0, 1_000, 100):
            batches.append(first)
            yield rows_of(list(range(first, first + 100)), np.arange(first, first + 100))

    room = ReportRoom(plan=work.plan, attempt="try-1", task="00000", bytes_max=100_000)
    with pytest.raises(InvalidPipeline) as refused:
        written(work, incoming(), tmp_path, WriteLimits(), room=room)
    assert "'events': one task" in refused.value.message
    assert "rows of 300 partition values (day(at)) so far" in refused.value.message
    assert "shorter intervals" in refused.value.hint
    assert "a coarser partition_by" in refused.value.hint
    assert batches == [0, 100, 200]
    assert not list(work.store.list(""))


def test_a_report_has_room_for_at_least_the_files_that_a_task_expects(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    """The estimate of a task is a lower bound: it never refuses files that fit."""
    work = make_work(kit.planned(0, 10**6), pipeline=kit.small_pipeline(**by_day()))
    files, _ = written(
        work, iter([rows_of(list(range(60)), np.arange(60))]), tmp_path, WriteLimits()
    )
    exact = file_bytes(files)
    room = ReportRoom(plan=work.plan, attempt="try-1", task="00000", bytes_max=exact)
    room.expect(work.planned("events"), ["day(at)"], len(files))


def test_files_of_all_tasks_together_are_refused_before_the_report_is_written(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    work = make_work(kit.planned(0, 10**6), pipeline=kit.small_pipeline(**by_day()))
    files, _ = written(
        work, iter([rows_of(list(range(60)), np.arange(60))]), tmp_path, WriteLimits()
    )
    require_room(files, tasks=3, plan=work.plan, bytes_max=file_bytes(files))
    with pytest.raises(InvalidPipeline) as refused:
        require_room(files, tasks=3, plan=work.plan, bytes_max=file_bytes(files) - 1)
    assert "table 'events' has 60 of 60 files, written by 3 task(s)" in refused.value.message
    for remedy in (
        "records_per_task (now 1000000)",
        "shorter intervals",
        "repartition()",
        "a coarser partition_by",
    ):
        assert remedy in refused.value.hint


def test_both_kinds_of_job_refuse_too_many_values(
    make_work: MakeWork, kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.engine.task.ReportRoom", _small_room)
    work = make_work(
        kit.planned(0, 100), pipeline=kit.small_pipeline(**by_day()), transform=lambda r: r
    )
    with pytest.raises(InvalidPipeline, match=r"one task of .* has rows of 100 partition values"):
        write_output(work, "events", "00000", [rows_of(list(range(100)), np.arange(100))])
    [split] = split_plan(work.plan, records_per_task=100)
    values = [b'{"n":%d,"at":%d}' % (i, i * DAY_US) for i in range(100)]
    with pytest.raises(InvalidPipeline, match=r"one task of .* has rows of 100 partition values"):
        run_split(work, split, kit.FakeReading([kit.raw_batch(0, values)]))


def _small_room(**arguments: Any) -> ReportRoom:
    return ReportRoom(**arguments, bytes_max=20_000)


def test_an_arrow_job_over_many_values_reports_one_file_per_value(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    store = MemoryStore("small")
    work = make_work(
        kit.planned(0, 500),
        pipeline=kit.small_pipeline(**by_day()),
        transform=lambda r: r,
        store=store,
    )
    splits = split_plan(work.plan, records_per_task=500)
    values = [b'{"n":%d,"at":%d}' % (i, i * 7 % 100 * DAY_US) for i in range(500)]
    batches = [kit.raw_batch(first, values[first : first + 50]) for first in range(0, 500, 50)]
    report = assemble(work, splits, [run_split(work, splits[0], kit.FakeReading(batches))])
    assert len([f for f in report.files if f.table == "events"]) == 100
    assert report.rows("events") == 500


def test_the_partition_values_of_a_table_are_its_distinct_tuples() -> None:
    table = pa.table({"a": ["x", None, "x"], "b": pa.array([1, 2, 1], pa.int32())})
    columns = [
        TableColumn(id=1, name="a", type="string", required=False),
        TableColumn(id=2, name="b", type="int", required=True),
    ]
    assert partitions_in(table, ["a", "b"], columns) == {("x", 1), (None, 2)}
    assert partitions_in(table, [], columns) == {()}
    assert partitions_in(table.slice(0, 0), ["a"], columns) == set()
    assert partitions_in(table.slice(0, 0), [], columns) == set()


def test_fields_of_a_struct_are_written_in_the_order_and_nullability_of_the_lake(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    """A field that was added later is the last one of the lake, and one that became optional stays optional there."""
    declared = [Column("d", "struct<new: optional int, a: long, l: list<struct<y: int, x: int>>>")]
    base = kit.small_pipeline(tables=[Table("events", columns=declared)])
    work = make_work(kit.planned(0, 10), pipeline=base)
    planned = work.planned("events")
    (column, *lineage) = planned.columns
    new, a, items = column.fields
    (element,) = items.fields
    y, x = element.fields
    swapped = replace(items, fields=(replace(element, fields=(x, y)),))
    column = replace(column, fields=(replace(a, required=False), swapped, new))
    uploads = Uploads(work)
    with TableWriter(
        replace(planned, columns=(column, *lineage)),
        partition_by=(),
        upload=uploads,
        folder=tmp_path,
    ) as writer:
        value = {"new": 1, "a": 2, "l": [{"y": 3, "x": 4}]}
        kind = pa.schema([arrow_field(declared[0])]).field(0).type
        rows = rows_of([0], [0])
        writer.write(
            pa.Table.from_batches([rows])
            .select(["_topic", "_kafka_partition", "_offset", "_timestamp"])
            .append_column("d", pa.array([value], kind)),
            source=("events", 0),
        )
        (file,) = writer.close()
    assert uploads.column(file.key, "d") == [{"a": 2, "l": [{"x": 4, "y": 3}], "new": 1}]
    fields = pq.read_schema(pa.BufferReader(uploads.bodies[file.key])).field("d").type
    assert [f.name for f in (fields.field(i) for i in range(3))] == ["a", "l", "new"]
    assert {c.id for c in file.columns} >= {new.id, a.id, x.id, y.id}
