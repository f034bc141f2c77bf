"""One part of one output of a DataFrame job, and its refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tallystick.engine.outputs import write_output
from tallystick.engine.task import Work
from tallystick.engine.transform import JobTransform
from tallystick.errors import InvalidPipeline
from tallystick.format.report import Lineage
from tallystick.pipeline import Column, Table

MakeWork = Callable[..., Work]
AT = datetime(2013, 1, 1, tzinfo=UTC)


@pytest.fixture
def work(make_work: MakeWork, kit: SimpleNamespace) -> Work:
    """Return the work of a plan over two partitions, with a record-level table and one with keys and no combine."""
    shares = [
        Column("kind", "string", required=False),
        Column("at", "double"),
        Column("share", "double"),
    ]
    tables = [
        Table("events", columns=[Column("n", "long")]),
        Table("shares", columns=shares, keys=["kind", "at"]),
    ]
    declared = kit.small_pipeline(tables=[tables[0]])
    base: Work = make_work(kit.planned(0, 10), kit.planned(5, 10, 7), pipeline=declared)
    pipeline = kit.small_pipeline(tables=tables)
    ranges = ("events", (kit.planned(0, 10), kit.planned(5, 10, 7)))
    return Work(
        plan=kit.plan_of(pipeline, ranges),
        pipeline=pipeline,
        attempt=base.attempt,
        transform=base.transform,
        store=base.store,
        runtime=base.runtime,
    )


def events(*places: tuple[int, int], topic: str = "events") -> pa.RecordBatch:
    count = len(places)
    return pa.record_batch(
        {
            "n": pa.array(range(count), pa.int64()),
            "_topic": pa.array([topic] * count),
            "_kafka_partition": pa.array([p for p, _ in places], pa.int32()),
            "_offset": pa.array([o for _, o in places], pa.int64()),
            "_timestamp": pa.array([AT] * count, pa.timestamp("us", tz="UTC")),
        }
    )


def shares(*rows: tuple[str | None, float]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "kind": pa.array([k for k, _ in rows], pa.string()),
            "at": pa.array([a for _, a in rows], pa.float64()),
            "share": pa.array([0.5] * len(rows), pa.float64()),
        }
    )


def test_a_file_has_the_lineage_of_rows_from_several_partitions(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.engine.outputs.coalesce", iter)
    batches = [events((1, 9), (0, 3)), events((0, 8), (1, 7), (0, 0)), events((0, 4))]
    [file] = write_output(work, "events", "00004", batches)
    assert file.rows == 6
    assert file.key.split("/")[-1].startswith("00004-")
    assert file.lineage == (
        Lineage(topic="events", partition=0, first=0, last=8),
        Lineage(topic="events", partition=1, first=7, last=9),
    )


def test_rows_of_an_adopted_topic_are_stored_with_its_name_in_the_ledger(
    work: Work, kit: SimpleNamespace
) -> None:
    """The job reads the name in Kafka. The offsets of the old topic are in the plan, too, all of them lost."""
    gone, read = ("events", (kit.planned(0, 9, 9),)), ("events@2", (kit.planned(0, 10),))
    adopted = replace(work, plan=kit.plan_of(work.pipeline, gone, read))
    [file] = write_output(adopted, "events", "00000", [events((0, 9), (0, 3))])
    assert file.lineage == (Lineage(topic="events@2", partition=0, first=3, last=9),)
    with pytest.raises(InvalidPipeline, match=r"rows of other\[0\]"):
        write_output(adopted, "events", "00000", [events((0, 1), topic="other")])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            events((0, 3), (0, 10)),
            r"rows of events\[0\] at the planned offsets \[0, 10\), found offsets 3 to 10",
        ),
        # Lost before the plan, so it could not be read.
        (
            events((1, 6)),
            r"rows of events\[1\] at the planned offsets \[7, 10\), found offsets 6 to 6",
        ),
        (
            events((2, 0)),
            r"rows of events\[2\] at the planned offsets \(none\), found offsets 0 to 0",
        ),
        (
            events((0, 1), topic="other"),
            r"rows of other\[0\] at the planned offsets \(none\), found offsets 1 to 1",
        ),
        (events((0, 1)).drop_columns(["_offset"]), "expected column '_offset'"),
    ],
)
def test_rows_of_records_that_were_not_planned_are_refused(
    work: Work, batch: pa.RecordBatch, message: str
) -> None:
    with pytest.raises(InvalidPipeline, match=message) as caught:
        write_output(work, "events", "00000", [batch])
    assert caught.value.message.startswith("job jobs/small.py, table 'events'")
    assert not list(work.store.list("tables/"))


def test_a_table_with_keys_has_one_row_per_key_and_no_lineage(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.engine.outputs.coalesce", iter)
    batches = [shares((None, 0.0), (None, 1.0)), shares(("a", 0.0)), shares(("a", math.nan))]
    [file] = write_output(work, "shares", "00000", batches)
    assert (file.rows, file.lineage) == (4, ())


@pytest.mark.parametrize(
    ("batches", "key"),
    [
        ([shares(("a", 1.0), ("a", 1.0), ("b", 1.0))], "kind=a, at=1.0"),
        ([shares(("a", 1.0), ("b", 2.0)), shares(("b", 2.0))], "kind=b, at=2.0"),
        ([shares((None, 1.0)), shares((None, 1.0))], "kind=null, at=1.0"),
        ([shares(("a", -0.0)), shares(("a", 0.0))], "kind=a, at=0.0"),
    ],
)
def test_two_rows_of_one_key_are_refused(
    work: Work, batches: list[pa.RecordBatch], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.engine.outputs.coalesce", iter)
    with pytest.raises(InvalidPipeline) as caught:
        write_output(work, "shares", "00000", batches)
    assert f"found 2 rows of the key {key}" in caught.value.message


def test_an_arrow_job_needs_a_combine_for_a_table_with_keys(work: Work) -> None:
    untouched: Any = None
    with pytest.raises(InvalidPipeline, match="shares: expected combine for the keys") as caught:
        JobTransform(untouched, work.pipeline)
    assert "run_dataframe" in caught.value.hint


def test_a_time_outside_the_calendar_is_refused_by_column_and_value(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    """A table of a DataFrame job, partitioned by the hour of a sentinel."""
    columns = [Column("n", "long"), Column("at", "timestamptz")]
    tables = [Table("events", columns=columns, partition_by=["hour(at)"])]
    work = make_work(kit.planned(0, 10), pipeline=kit.small_pipeline(tables=tables))
    sentinel = pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    batch = events((0, 3)).append_column("at", sentinel)
    with pytest.raises(InvalidPipeline) as refused:
        write_output(work, "events", "00000", [batch])
    assert refused.value.message.startswith(
        "job jobs/small.py, table 'events', column 'at': 9223372036854775807 microseconds since 1970"
    )
    assert not list(work.store.list("tables/"))
