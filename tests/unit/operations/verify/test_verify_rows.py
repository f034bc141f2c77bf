"""`verify --deep` finds damage that only the rows show, and refuses demands that it cannot check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from support.small_lake import TOPIC, SmallLake, days, pipeline
from tallystick.errors import InvalidRequest
from tallystick.format.report import FileReport
from tallystick.operations.verify import Demands, Finding
from tallystick.pipeline import Column, Pipeline, Table
from unit.operations.verify.proving import EVENTS, findings, live_file, prove


def _rewrite(small: SmallLake, file: FileReport, edit: Callable[[pa.Table], pa.Table]) -> None:
    """Change a file's rows. Its size and ETag change with them, which the check of objects reports."""
    stored = small.store.get(file.key)
    assert stored is not None
    rows = edit(pq.read_table(pa.BufferReader(stored.body)))
    into = BytesIO()
    pq.write_table(rows, into)
    small.overwrite(file.key, into.getvalue())


def _with_duplicate(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def _with_moved_offsets(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("_offset")
    return rows.set_column(at, rows.schema.field(at), pc.add(rows.column("_offset"), 1000))


def _unknown_offset(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("_offset")
    return rows.set_column(
        at, "_offset", pa.array([None, *rows.column("_offset").to_pylist()[1:]], pa.int64())
    )


def _with_dead_letter(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("_offset")
    dead = pa.array([2], pa.int64())  # the dead letter of day 1 in partition 0
    return pa.concat_tables([rows, rows.slice(0, 1).set_column(at, rows.schema.field(at), dead)])


@pytest.mark.parametrize(
    ("edit", "message", "expected", "found"),
    [
        (_with_duplicate, f"1 offsets of {TOPIC}[0] have several rows", "offset 0 once", "2 times"),
        (_with_duplicate, "rows in the file and in its report", "2", "3"),
        (_with_moved_offsets, f"2 rows of {TOPIC}[0]", "offsets inside [0, 3)", "1000"),
        (_with_moved_offsets, "lineage in the file and in its report", "0, 1)", "1000, 1001)"),
        (
            _with_dead_letter,
            f"1 offsets of {TOPIC}[0]",
            "a row or a dead letter",
            "offset 2 is both",
        ),
        (lambda rows: rows.slice(0, 1), f"offsets of {TOPIC}[0] with rows", "2", "1"),
        (_unknown_offset, "lineage of its rows", "without nulls", "1 nulls"),
        (
            lambda rows: rows.drop_columns(["_offset"]),
            "the data file's content",
            "Parquet",
            "_offset",
        ),
    ],
)
def test_each_damage_to_rows_is_found_deeply(
    small: SmallLake, edit: Callable[[pa.Table], pa.Table], message: str, expected: str, found: str
) -> None:
    _rewrite(small, live_file(small), edit)
    reported = findings(prove(small, deep=True, demands=EVENTS), "rows")
    assert any(
        message in f.message and expected in f.expected and found in f.found for f in reported
    ), [str(f) for f in reported]


def test_dead_letters_are_counted_by_their_rows(small: SmallLake) -> None:
    _rewrite(small, live_file(small, "dead_letters"), lambda rows: rows.slice(0, 0))
    reported = findings(prove(small, deep=True), "rows")
    assert [f for f in reported if f.message.startswith("dead letters of")] == [
        Finding(
            rule="I7",
            where=f"{days(1, 2)} table dead_letters",
            message=f"dead letters of {TOPIC}[0]",
            expected="1",
            found="0",
        )
    ]


def test_a_file_that_is_no_parquet_is_found(small: SmallLake) -> None:
    small.overwrite(live_file(small).key, b"not Parquet at all")
    reported = findings(prove(small, deep=True), "rows")
    assert reported[0].message == "the data file's content"


def test_several_rows_of_one_record_are_accepted_if_demanded(small: SmallLake) -> None:
    _rewrite(small, live_file(small), _with_duplicate)
    reported = findings(
        prove(small, deep=True, demands=Demands(repeats=frozenset({"events"}))), "rows"
    )
    assert not any("several rows" in f.message for f in reported)


def test_fewer_rows_than_records_are_accepted_unless_every_record_is_demanded() -> None:
    small = SmallLake()
    small.run(days(1, 2), keep=lambda record: record.value.get("n") != 1)
    proof = prove(small, deep=True)
    assert proof.proven
    remarks = next(c for c in proof.checks if c.name == "rows").remarks
    assert "events: 3 rows of 3 offsets; 5 decoded records, not all of them" in remarks
    reported = findings(prove(small, deep=True, demands=EVENTS), "rows")
    assert [(f.expected, f.found) for f in reported] == [("2", "1"), ("3", "2")]


def test_a_demand_about_an_unknown_table_is_refused(small: SmallLake) -> None:
    with pytest.raises(InvalidRequest, match="no table 'flights'"):
        prove(small, deep=True, demands=Demands(every_record=frozenset({"flights"})))


def test_intervals_of_any_length_are_proven() -> None:
    small = SmallLake()
    small.run(days(1, 2), **{"from": "2013-01-01T00:00:00", "to": "2013-01-01T01:30:00"})
    small.run(days(1, 2), run="scheduled__rest")
    assert [
        e.interval.end - e.interval.start for e in small.lake.load_existing().whole_ledger().entries
    ] == [
        timedelta(minutes=90),
        timedelta(minutes=1350),
    ]
    assert prove(small, deep=True, demands=EVENTS).proven


@pytest.mark.parametrize(
    ("demands", "message"),
    [
        (Demands(every_record=frozenset({"per_kind"})), "table per_kind aggregates"),
        (Demands(repeats=frozenset({"per_kind"})), "table per_kind aggregates"),
        (Demands(every_record=frozenset({"dead_letters"})), "dead_letters has no decoded"),
        (Demands(repeats=frozenset({"dead_letters"})), "dead_letters has no decoded"),
    ],
)
def test_a_demand_that_cannot_be_checked_is_refused(
    small: SmallLake, demands: Demands, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=rf"{message}.*each come from one record: events\."):
        prove(small, deep=True, demands=demands)


def test_a_table_that_was_added_later_lacks_the_records_of_earlier_intervals() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.run(days(2, 3))

    def with_another_table(warehouse: str) -> Pipeline:
        known = pipeline(warehouse)
        late = Table("late", columns=[Column("n", "long")])
        return dataclasses.replace(known, tables=[*known.tables, late])

    small.declared = with_another_table
    small.run(days(3, 4))
    without = prove(small, deep=True)
    assert without.proven
    remarks = next(c for c in without.checks if c.name == "rows").remarks
    assert "late: 5 rows of 5 offsets; 15 decoded records, not all of them" in remarks
    demanded = prove(small, deep=True, demands=Demands(every_record=frozenset({"late"})))
    assert [(f.where, f.expected, f.found) for f in findings(demanded, "rows")] == [
        (f"{days(1, 2)} table late", "2", "0"),
        (f"{days(1, 2)} table late", "3", "0"),
        (f"{days(2, 3)} table late", "2", "0"),
        (f"{days(2, 3)} table late", "3", "0"),
    ]
