"""Statistics from a footer: equal to PyIceberg's if those are right, and never narrower than the rows."""

from __future__ import annotations

import io
import itertools
import math
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from tallystick.errors import ReportRejected, SchemaChanged
from tallystick.format.columns import TableColumn
from tallystick.format.report import FileReport
from tallystick.format.types import PRIMITIVES
from tallystick.store.memory import MemoryStore
from tallystick.tables.data_files import data_file
from tallystick.tables.file_io import StoreFileIO
from tallystick.tables.iceberg import iceberg_schema, iceberg_type, schema_columns
from tallystick.tables.schema import FIELD_ID, arrow_schema, arrow_type, table_columns
from tallystick.tables.statistics import column_statistics, split_offsets

KINDS = (*sorted(PRIMITIVES), "decimal(9,2)", "decimal(18,0)", "decimal(38,10)", "fixed[20]")
COLUMNS = tuple(
    TableColumn(
        id=10 + i, name=kind.translate(str.maketrans("(,)[]", "_____")), type=kind, required=False
    )
    for i, kind in enumerate(KINDS)
)
KEY = (
    "tables/t/data/20130101T000000000Z-20130102T000000000Z/"
    "00000000000000000000000000000001/a1/t0-00000000000000000000000000000002.parquet"
)


def value_of(kind):
    """Return a strategy for values whose truncated upper bound is right in PyIceberg, too."""
    plain = st.characters(min_codepoint=32, max_codepoint=0xD000)
    first_us, last_us = -62_135_596_800_000_000, 253_402_300_799_999_999
    strategies = {
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "date": st.dates(),
        "timestamp": st.integers(first_us, last_us),
        "timestamptz": st.integers(first_us, last_us),
        "time": st.times(),
        "uuid": st.uuids().map(lambda u: u.bytes),
        "fixed[20]": st.binary(min_size=20, max_size=20).filter(lambda b: b"\xff" not in b),
        "string": st.text(plain, max_size=40),
        "binary": st.binary(max_size=40).filter(lambda b: b"\xff" not in b),
        "decimal(9,2)": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
        "decimal(18,0)": st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal),
        "decimal(38,10)": st.integers(-(10**38) + 1, 10**38 - 1).map(
            lambda n: Decimal((n < 0, digits(n), -10))
        ),
    }
    return st.none() | strategies[kind]


def digits(number):
    return tuple(int(d) for d in str(abs(number)))


def write(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue(), pq.read_metadata(io.BytesIO(sink.getvalue()))


def column_of(kind, values, *, required=False, row_group_size=None):
    """Return the statistics of a file with one column."""
    column = TableColumn(id=7, name="c", type=kind, required=required)
    array = pa.array(values, arrow_type(kind))
    _, footer = write(
        pa.table([array], schema=arrow_schema([column])), row_group_size=row_group_size
    )
    (found,) = column_statistics(footer, [column], where="file")
    return found


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(*(value_of(kind) for kind in KINDS)), min_size=1, max_size=12),
    group=st.integers(1, 12),
)
def test_statistics_equal_those_of_pyiceberg(rows, group):
    arrays = [
        pa.array(
            [row[i] for row in rows],
            pa.int64() if kind.startswith("timestamp") else arrow_type(kind),
        )
        for i, kind in enumerate(KINDS)
    ]
    arrays = [a.cast(arrow_type(kind)) for a, kind in zip(arrays, KINDS, strict=True)]
    body, footer = write(pa.table(arrays, schema=arrow_schema(COLUMNS)), row_group_size=group)
    store = MemoryStore("lake")
    store.create(KEY, body)
    report = FileReport(
        table="t",
        key=KEY,
        etag="e",
        size_bytes=len(body),
        rows=len(rows),
        columns=column_statistics(footer, COLUMNS, where=KEY),
        split_offsets=split_offsets(footer),
    )
    schema = iceberg_schema(COLUMNS)
    location = f"{store.uri}/{KEY}"
    ours = data_file(report, location=location, schema=schema, spec=UNPARTITIONED_PARTITION_SPEC)
    metadata = new_table_metadata(
        schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "memory://lake/t"
    )
    # new_table_metadata numbers columns from 1; in tallystick, the root has the ids.
    metadata = metadata.model_copy(update={"schemas": [schema], "current_schema_id": 0})
    theirs = parquet_file_to_data_file(StoreFileIO(store), metadata, location)
    for name in (
        "file_path",
        "record_count",
        "file_size_in_bytes",
        "column_sizes",
        "value_counts",
        "split_offsets",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.null_value_counts == theirs.null_value_counts
    assert ours.lower_bounds == theirs.lower_bounds
    assert ours.upper_bounds == theirs.upper_bounds


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=24), min_size=1, max_size=5
    )
)
def test_text_bounds_include_every_value(values):
    found = column_of("string", values)
    assert all(bytes.fromhex(found.lower) <= v.encode() for v in values)
    assert found.upper is None or all(v.encode() <= bytes.fromhex(found.upper) for v in values)
    assert len(bytes.fromhex(found.lower).decode()) <= 16
    assert found.upper is None or len(bytes.fromhex(found.upper).decode()) <= 16


@settings(max_examples=300, deadline=None)
@given(values=st.lists(st.binary(max_size=24), min_size=1, max_size=5))
def test_binary_bounds_include_every_value(values):
    found = column_of("binary", values)
    assert all(bytes.fromhex(found.lower) <= v for v in values)
    assert found.upper is None or all(v <= bytes.fromhex(found.upper) for v in values)


@pytest.mark.parametrize(
    ("value", "upper"),
    [
        ("x" * 16, "x" * 16),
        ("x" * 17, "x" * 15 + "y"),
        ("x" * 15 + "\U0010ffff" + "z", "x" * 14 + "y"),
        ("\U0010ffff" * 17, None),
        ("x" * 15 + "\ud7ff" + "z", "x" * 15 + "\ue000"),
    ],
    ids=[
        "fits",
        "cut",
        "last character cannot grow",
        "no character can grow",
        "surrogates are skipped",
    ],
)
def test_upper_bounds_of_long_texts(value, upper):
    found = column_of("string", [value])
    assert found.upper == (None if upper is None else upper.encode().hex())
    assert bytes.fromhex(found.lower).decode() == value[:16]


def test_upper_bounds_of_long_binaries():
    assert column_of("binary", [b"\xff" * 17]).upper is None
    assert bytes.fromhex(column_of("binary", [b"a" + b"\xff" * 17]).upper) == b"b"


def test_bounds_exclude_nan_and_order_zeros():
    for kind in ("float", "double"):
        mixed = column_of(kind, [math.nan, 1.5, -2.5])
        assert from_bytes(iceberg_type(kind), bytes.fromhex(mixed.lower)) == -2.5
        assert from_bytes(iceberg_type(kind), bytes.fromhex(mixed.upper)) == 1.5
        only = column_of(kind, [math.nan])
        assert (only.lower, only.upper, only.nulls) == (None, None, 0)
        zero = from_bytes(iceberg_type(kind), bytes.fromhex(column_of(kind, [0.0]).lower))
        assert math.copysign(1, zero) == -1, "-0.0 is below 0.0"


def test_a_row_group_without_bounds_removes_those_of_the_file_unless_all_are_null():
    # Parquet writers omit bounds of values above 4 kB; a group of only nulls has none.
    assert column_of("string", ["a", "b" * 5000], row_group_size=1).upper is None
    nulls = column_of("string", [None, "a", None], row_group_size=1)
    assert (nulls.lower, nulls.upper, nulls.nulls, nulls.values) == ("61", "61", 2, 3)


def test_years_outside_the_range_of_python_have_bounds():
    found = column_of(
        "timestamptz", pa.array([2**62], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    )
    assert found.upper == (2**62).to_bytes(8, "little").hex()


def test_decimals_stored_as_integers_have_the_same_bounds():
    column = TableColumn(id=1, name="c", type="decimal(9,2)", required=False)
    table = pa.table(
        [pa.array([Decimal("-1.28"), Decimal("327.68")], pa.decimal128(9, 2))],
        schema=arrow_schema([column]),
    )
    found = [
        column_statistics(write(table, store_decimal_as_integer=f)[1], [column], where="f")[0]
        for f in (True, False)
    ]
    assert [(s.lower, s.upper) for s in found] == [("80", "008000")] * 2


class TestRefused:
    def footer(self, *columns):
        schema = arrow_schema(columns)
        return write(pa.table([pa.array([1], f.type) for f in schema], schema=schema))[1]

    def test_swapped_ids_are_refused(self):
        a, b = (
            TableColumn(id=i, name=n, type="long", required=True) for i, n in ((1, "a"), (2, "b"))
        )
        swapped = [
            TableColumn(id=i, name=n, type="long", required=True) for i, n in ((2, "a"), (1, "b"))
        ]
        with pytest.raises(
            SchemaChanged, match="file, column 'a': expected long with id 1, found long with id 2"
        ):
            column_statistics(self.footer(*swapped), [a, b], where="file")

    def test_another_type_and_a_missing_or_extra_column_are_refused(self):
        long = TableColumn(id=1, name="a", type="long", required=True)
        added = TableColumn(id=2, name="b", type="long", required=True)
        with pytest.raises(
            SchemaChanged, match="'a': expected long with id 1, found int with id 1"
        ):
            column_statistics(
                self.footer(TableColumn(id=1, name="a", type="int", required=True)),
                [long],
                where="file",
            )
        with pytest.raises(SchemaChanged, match="'b': expected long with id 2, found absent"):
            column_statistics(self.footer(long), [long, added], where="file")
        with pytest.raises(SchemaChanged, match="'b': expected absent, found long with id 2"):
            column_statistics(self.footer(long, added), [long], where="file")

    @pytest.mark.parametrize(
        "field",
        [pa.field("a", pa.int64()), pa.field("a", pa.int8(), metadata={FIELD_ID: b"1"}),
         pa.field("a", pa.timestamp("ms"), metadata={FIELD_ID: b"1"})],
        ids=["no id", "a type that Iceberg lacks", "another unit"],
    )  # fmt: skip
    def test_a_column_that_is_not_of_iceberg_is_refused(self, field):
        _, footer = write(pa.table([pa.array([1], field.type)], schema=pa.schema([field])))
        with pytest.raises(
            SchemaChanged,
            match="file: column 'a': expected a column type and a field id, found type",
        ):
            column_statistics(
                footer, [TableColumn(id=1, name="a", type="long", required=False)], where="file"
            )

    def test_nulls_in_a_required_column_are_refused(self):
        written = TableColumn(id=7, name="c", type="int", required=False)
        _, footer = write(
            pa.table([pa.array([1, None], pa.int32())], schema=arrow_schema([written]))
        )
        with pytest.raises(ReportRejected, match="required column 'c': expected no nulls, found 1"):
            column_statistics(
                footer, [TableColumn(id=7, name="c", type="int", required=True)], where="file"
            )

    def test_a_file_without_rows_or_counts_is_refused(self):
        column = TableColumn(id=7, name="c", type="int", required=False)
        schema = arrow_schema([column])
        with pytest.raises(ReportRejected, match="expected rows, found none"):
            column_statistics(write(schema.empty_table())[1], [column], where="file")
        table = pa.table([pa.array([1], pa.int32())], schema=schema)
        with pytest.raises(ReportRejected, match="expected a null count"):
            column_statistics(write(table, write_statistics=False)[1], [column], where="file")


def test_arrow_and_iceberg_schemas_round_trip():
    columns = tuple(
        TableColumn(id=c.id, name=c.name, type=c.type, required=required)
        for c, required in zip(COLUMNS, itertools.cycle([True, False]), strict=False)
    )
    assert table_columns(arrow_schema(columns), where="here") == columns
    assert schema_columns(iceberg_schema(columns)) == columns


def test_split_offsets_are_the_starts_of_row_groups():
    column = TableColumn(id=1, name="c", type="string", required=False)
    table = pa.table([pa.array([f"{i}" * 9 for i in range(40)])], schema=arrow_schema([column]))
    body, footer = write(table, row_group_size=10)
    assert len(split_offsets(footer)) == footer.num_row_groups == 4
    assert split_offsets(footer)[0] == len(b"PAR1")
    assert split_offsets(footer) == tuple(sorted(split_offsets(footer)))
    assert split_offsets(footer)[-1] < len(body)


def test_arrow_types_are_exact():
    assert arrow_type("timestamptz") == pa.timestamp("us", tz="UTC")
    assert arrow_type("decimal(38,10)") == pa.decimal128(38, 10)
    values = {
        "timestamptz": datetime(2013, 1, 1, tzinfo=UTC),
        "date": date(2013, 1, 1),
        "decimal(9,2)": Decimal("1.10"),
    }
    for kind, value in values.items():
        assert pa.array([value], arrow_type(kind)).to_pylist() == [value]


def test_tasks_that_write_files_do_not_import_pyiceberg():
    code = (
        "import sys, tallystick.tables.schema, tallystick.tables.statistics, tallystick.tables.partitioning;"
        "sys.exit('pyiceberg' in sys.modules or 'boto3' in sys.modules or 'duckdb' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
