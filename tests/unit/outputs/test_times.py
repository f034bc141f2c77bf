"""Times that no receiver can read: refused before anything is sent, with row, column and value."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from tallystick.errors import OutputRefused
from tallystick.outputs.port import Publication
from tallystick.outputs.times import check_times
from unit.outputs.publications import TableRows, publication

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
END = (datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) + 86_400_000_000
DAYS = date(1, 1, 1).toordinal() - date(1970, 1, 1).toordinal()


def with_times(
    kind: pa.DataType, *values: int | None, identity: tuple[str, ...] = ("k",)
) -> Publication:
    """Return a publication of rows k=r0, r1, ... with these numbers of their unit in `at` and `also`."""
    numbers = pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64())
    times = {"at": numbers.cast(kind), "also": numbers.cast(kind)}
    table = pa.table({"k": [f"r{i}" for i in range(len(values))], **times})
    return replace(publication([], identity=identity), rows=TableRows(table))


@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize(
    ("unit", "scale"), [("us", 1), ("ms", 1_000), ("s", 1_000_000)], ids=["us", "ms", "s"]
)
def test_times_of_the_years_1_to_9999_pass_to_the_last_unit_and_no_others(
    unit: str, scale: int, zone: str | None
) -> None:
    kind = pa.timestamp(unit, tz=zone)
    check_times(with_times(kind, FIRST // scale, None, 0, END // scale - 1))
    for value in (FIRST // scale - 1, END // scale):
        with pytest.raises(
            OutputRefused, match=rf"row 2 \(k='r2'\), column 'at': .* found {value} "
        ):
            check_times(with_times(kind, 0, None, value))


def test_dates_of_the_years_1_to_9999_pass_and_no_others() -> None:
    last = date.max.toordinal() - date(1970, 1, 1).toordinal()
    check_times(with_times(pa.date32(), DAYS, 0, None, last))
    for value in (DAYS - 1, last + 1):
        with pytest.raises(OutputRefused, match=rf"column 'at': .* found {value} days since 1970"):
            check_times(with_times(pa.date32(), value))


def test_nanoseconds_and_other_columns_pass() -> None:
    check_times(with_times(pa.timestamp("ns"), -(2**63) + 1, 2**63 - 1))
    check_times(publication([{"k": "a", "n": 1}]))


def test_a_key_column_with_an_unreadable_time_does_not_hide_the_error() -> None:
    with pytest.raises(OutputRefused, match=r"row 0 \(k='r0', also=\?\), column 'at'"):
        check_times(with_times(pa.timestamp("us"), END, identity=("k", "at", "also")))
