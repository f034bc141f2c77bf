"""Partition transforms give the same values as Iceberg's, and a split neither loses nor doubles rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)

from tallystick.errors import InvalidPipeline
from tallystick.format.columns import TableColumn
from tallystick.tables.iceberg import iceberg_type
from tallystick.tables.partitioning import partitions_in, split_by_partition, transformed
from tallystick.tables.schema import arrow_schema, arrow_type

PEERS = {"year": YearTransform, "month": MonthTransform, "day": DayTransform, "hour": HourTransform}
# The first and last datetime of Python, in microseconds since 1970.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("kind", "transform"),
    [
        (k, t)
        for k in ("timestamp", "timestamptz", "date")
        for t in PEERS
        if (k, t) != ("date", "hour")
    ],
)
@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.none() | st.integers(FIRST_US, LAST_US), min_size=1, max_size=40))
def test_time_transforms_equal_pyicebergs(kind, transform, values):
    units = [v if v is None or kind != "date" else v // DAY_US for v in values]
    storage = pa.array(units, pa.int32() if kind == "date" else pa.int64())
    ours = transformed(storage.cast(arrow_type(kind)), transform, kind).to_pylist()
    peer = PEERS[transform]().transform(iceberg_type(kind))
    assert ours == [peer(unit) for unit in units]


@pytest.mark.parametrize(
    ("at", "year", "month", "day", "hour"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0, 0, 0, 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1, -1, -1, -1),
        (datetime(1969, 12, 31, tzinfo=UTC), -1, -1, -1, -24),
        (datetime(1969, 1, 1, tzinfo=UTC), -1, -12, -365, -8760),
        (datetime(1968, 12, 31, 23, tzinfo=UTC), -2, -13, -366, -8761),
        (datetime(2013, 1, 1, 5, tzinfo=UTC), 43, 516, 15_706, 376_949),
    ],
)
def test_time_transforms_around_1970(at, year, month, day, hour):
    values = pa.array([at], pa.timestamp("us", tz="UTC"))
    assert [transformed(values, t, "timestamptz").to_pylist() for t in PEERS] == [
        [year],
        [month],
        [day],
        [hour],
    ]


@settings(max_examples=40, deadline=None)
@given(days=st.lists(st.none() | st.integers(-700_000, 2_900_000), min_size=1))
def test_identity_of_dates_is_days(days):
    ours = transformed(pa.array(days, pa.int32()).cast(pa.date32()), "identity", "date").to_pylist()
    assert ours == [IdentityTransform().transform(iceberg_type("date"))(d) for d in days] == days


COLUMNS = (
    TableColumn(id=1, name="at", type="timestamptz", required=False),
    TableColumn(id=2, name="place", type="string", required=False),
    TableColumn(id=3, name="number", type="long", required=False),
    TableColumn(id=4, name="row", type="long", required=True),
)
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-3 * DAY_US, 3 * DAY_US),
        st.none() | st.sampled_from(["", "a", "A", "ä", "None"]),
        st.none() | st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=60,
)
RULES = st.lists(
    st.sampled_from(["year(at)", "month(at)", "day(at)", "hour(at)", "place", "number"]),
    unique=True,
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, rules=RULES, chunks=st.integers(1, 3))
def test_a_split_is_a_partition_of_the_rows(rows, rules, chunks):
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    table = pa.table(
        [
            pa.array(columns[0], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.array(columns[1], pa.string()),
            pa.array(columns[2], pa.int64()),
            pa.array(range(len(rows)), pa.int64()),
        ],
        schema=arrow_schema(COLUMNS),
    )
    length = len(rows) // chunks + 1
    table = pa.concat_tables([table.slice(i, length) for i in range(0, max(len(rows), 1), length)])

    partitions: dict[tuple[object, ...], list[int]] = {}
    for number, values in enumerate(rows):
        partitions.setdefault(tuple(expected(rule, values) for rule in rules), []).append(number)
    found = list(split_by_partition(table, rules, COLUMNS))

    assert [(partition, part.column("row").to_pylist()) for partition, part in found] == list(
        partitions.items()
    )
    assert all(part.schema.equals(table.schema, check_metadata=True) for _, part in found)


def expected(rule, values):
    at, place, number = values
    if rule in ("place", "number"):
        return place if rule == "place" else number
    return PEERS[rule.split("(")[0]]().transform(iceberg_type("timestamptz"))(at)


def test_an_empty_table_has_no_partition():
    assert list(split_by_partition(arrow_schema(COLUMNS).empty_table(), ["day(at)"], COLUMNS)) == []


def test_a_rule_without_a_column_is_refused():
    with pytest.raises(
        InvalidPipeline, match=r"expected one of the columns .*, found 'day\(nowhere\)'"
    ):
        list(split_by_partition(arrow_schema(COLUMNS).empty_table(), ["day(nowhere)"], COLUMNS))


def test_dates_split_by_their_days():
    columns = (TableColumn(id=1, name="d", type="date", required=True),)
    days = [date(2013, 1, 2), date(1969, 12, 31), date(2013, 1, 2)]
    table = pa.table({"d": pa.array(days, pa.date32())})
    assert [(p, t.num_rows) for p, t in split_by_partition(table, ["d"], columns)] == [
        ((15707,), 2),
        ((-1,), 1),
    ]


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour", "identity"])
def test_a_time_outside_the_calendar_has_no_partition(transform):
    for value in (2**63 - 1, LAST_US + 1, FIRST_US - 1, -(2**63)):
        column = pa.array([0, None, value], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        with pytest.raises(InvalidPipeline, match=f"{value} microseconds since 1970 lies outside"):
            transformed(column, transform, "timestamptz")


# ---------------------------------------------------------------- buckets and prefixes

DECIMALS = st.integers(-(10**9 - 10**4), 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2))
VALUES = {
    "int": st.integers(-(2**31) + 10**4, 2**31 - 1),
    "long": st.integers(-(2**63) + 10**4, 2**63 - 1),
    "date": st.integers(-700_000, 2_900_000),
    "timestamp": st.integers(FIRST_US, LAST_US),
    "timestamptz": st.integers(FIRST_US, LAST_US),
    "string": st.text(max_size=20),
    "binary": st.binary(max_size=20),
    "uuid": st.uuids().map(lambda u: u.bytes),
    "fixed[7]": st.binary(min_size=7, max_size=7),
    "decimal(9,2)": DECIMALS,
    "decimal(38,0)": st.integers(-(10**38) + 10**4, 10**38 - 1).map(Decimal),
}


def stored(values, kind):
    storage = {"date": pa.int32(), "timestamp": pa.int64(), "timestamptz": pa.int64()}
    return pa.array(values, storage.get(kind, arrow_type(kind))).cast(arrow_type(kind))


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), buckets=st.integers(1, 2**31 - 1))
def test_buckets_equal_pyicebergs(kind, data, buckets):
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=30))
    ours = transformed(stored(values, kind), f"bucket[{buckets}]", kind)
    peer = BucketTransform(buckets).transform(iceberg_type(kind))
    assert ours.type == pa.int32()
    assert ours.to_pylist() == [peer(value) for value in values]


@pytest.mark.parametrize(
    "kind", ["int", "long", "string", "binary", "decimal(9,2)", "decimal(38,0)"]
)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), width=st.integers(1, 10**4))
def test_prefixes_and_multiples_equal_pyicebergs(kind, data, width):
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=30))
    ours = transformed(stored(values, kind), f"truncate[{width}]", kind)
    peer = TruncateTransform(width).transform(iceberg_type(kind))
    assert ours.type == arrow_type(kind)
    assert ours.to_pylist() == [None if value is None else peer(value) for value in values]


@pytest.mark.parametrize(
    ("kind", "value", "hashed"),
    [
        # The examples of the Iceberg spec, Appendix B.
        ("int", 34, 2_017_239_379),
        ("long", 34, 2_017_239_379),
        ("decimal(9,2)", Decimal("14.20"), -500_754_589),
        ("date", 17_486, -653_330_422),
        ("timestamp", 1_510_871_468_000_000, -2_047_944_441),
        ("timestamptz", 1_510_871_468_000_000, -2_047_944_441),
        ("string", "iceberg", 1_210_000_089),
        ("binary", b"\x00\x01\x02\x03", -188_683_207),
        ("fixed[4]", b"\x00\x01\x02\x03", -188_683_207),
        ("uuid", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1_488_055_340),
    ],
)
def test_hashes_are_those_of_the_spec(kind, value, hashed):
    buckets = 2**31 - 1
    expected = (hashed & buckets) % buckets
    assert transformed(stored([value], kind), f"bucket[{buckets}]", kind).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("kind", "value", "width"),
    [
        ("int", -(2**31), 10),
        ("long", -(2**63), 10),
        ("decimal(2,0)", Decimal(-99), 10),
        ("decimal(38,0)", Decimal(-(10**38) + 1), 10),
    ],
)
def test_a_multiple_that_does_not_fit_the_type_is_refused(kind, value, width):
    with pytest.raises(InvalidPipeline, match=f"multiple of {width} below {value} does not fit"):
        transformed(stored([value], kind), f"truncate[{width}]", kind)


def test_decimals_and_bytes_are_text_in_a_partition_tuple():
    columns = (
        TableColumn(id=1, name="d", type="decimal(20,8)", required=False),
        TableColumn(id=2, name="b", type="binary", required=False),
    )
    rows = [(Decimal("-0.00000001"), b"\x00\xff\x01"), (Decimal("1E-8"), b""), (None, None)]
    table = pa.table(
        [
            stored(list(values), c.type)
            for values, c in zip(zip(*rows, strict=True), columns, strict=True)
        ],
        schema=arrow_schema(columns),
    )
    rules = ["truncate(10, d)", "truncate(2, b)"]
    expected = [("-0.00000010", "00ff"), ("0.00000000", ""), (None, None)]
    assert [p for p, _ in split_by_partition(table, rules, columns)] == expected
    assert partitions_in(table, rules, columns) == set(expected)
