"""The values of upkeep are checked when they are declared, and when they are read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tallystick.errors import InvalidPipeline
from tallystick.format.upkeep import SORTABLE, Upkeep, check_reader_grace, is_sortable


def refused(build: Any) -> str:
    with pytest.raises(InvalidPipeline) as caught:
        build()
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("snapshots_kept", 1, 1000),
        ("metadata_kept", 1, 1000),
        ("file_size_bytes", 1 << 20, 2 << 30),
    ],
)
def test_a_number_outside_of_its_range_is_refused(name: str, least: int, most: int) -> None:
    for found in (least, most):
        assert getattr(Upkeep(**{name: found}), name) == found
    for wrong in (least - 1, most + 1, float(least), True, "9", None):
        message = refused(lambda wrong=wrong: Upkeep(**{name: wrong}))
        assert message == (
            f"upkeep: expected {name} to be a whole number from {least} to {most}, found {wrong!r}."
        )


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (
            {"snapshots_kept_for": timedelta(0)},
            "of at least 1 ms in whole milliseconds, found 0:00",
        ),
        ({"snapshots_kept_for": timedelta(microseconds=1500)}, "in whole milliseconds, found 0:00"),
        ({"compression": "lz4"}, "unknown compression='lz4'"),
        ({"parquet_version": 3}, "unknown parquet_version=3"),
        ({"parquet_version": True}, "unknown parquet_version=True"),
        ({"parquet_version": 2.0}, "unknown parquet_version=2.0"),
        ({"sort_by": "origin"}, "sort_by: expected a list, found the string 'origin'"),
        ({"sort_by": ["a", "b", "a"]}, "expected each column of sort_by once, found a, b, a"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(wrong: dict[str, Any], problem: str) -> None:
    assert problem in refused(lambda: Upkeep(**wrong))


def test_a_parquet_version_is_stored_only_if_it_is_not_the_first() -> None:
    """The upkeep of a lake of an earlier version is read and written with the same bytes."""
    first, second = Upkeep(), Upkeep(parquet_version=2)
    assert "parquet_version" not in first.to_json()
    assert Upkeep.from_json(first.to_json(), "upkeep") == first
    assert second.to_json()["parquet_version"] == 2
    assert Upkeep.from_json(second.to_json(), "upkeep") == second
    assert second.changes(first) == ("parquet_version changes from 1 to 2",)


@pytest.mark.parametrize(
    "grace",
    [timedelta(milliseconds=-1), timedelta(days=3651), timedelta(microseconds=1)],
)
def test_a_reader_grace_outside_of_its_range_is_not_stored(grace: timedelta) -> None:
    assert "reader_grace: expected 0 to" in refused(lambda: check_reader_grace(grace))


def test_a_reader_grace_inside_of_its_range_is_returned() -> None:
    for grace in (timedelta(0), timedelta(hours=36)):
        assert check_reader_grace(grace) == grace


def test_a_column_to_sort_by_has_a_type_that_arrow_and_iceberg_order_alike() -> None:
    assert all(map(is_sortable, (*SORTABLE, "decimal(9,2)", "fixed[3]")))
    assert not any(map(is_sortable, ("float", "double", "uuid", "list<long>", "map<string,long>")))
