"""Deleted positions of a data file are not read, and each data file has at most one delete file."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Operation

from tallystick.errors import Corrupt
from tallystick.tables.file_io import StoreFileIO
from tallystick.tables.reach import IcebergReach
from tallystick.tables.reading import deleted_positions, live_files, static_table
from tallystick.tables.snapshots import manifests


def row(day, number):
    return {"departure": datetime(2013, 1, day, 5, tzinfo=UTC), "origin": "JFK", "delay": number}


def delays(table, key=None):
    """Return the numbers in the table, as PyIceberg reads them."""
    return sorted(r["delay"] for r in table.rows(key))


def summary(table):
    return static_table(table.store, table.state.metadata).metadata.current_snapshot().summary


@pytest.fixture
def two_days(flights):
    """Return a table with a file of ten rows per day, and the keys of both files."""
    files = flights.files([row(day, 10 * day + n) for day in (1, 2) for n in range(10)])
    flights.commit(files)
    flights.first, flights.second = (f.key for f in files)
    return flights


def test_deleted_positions_are_not_read(two_days):
    two_days.commit(delete={two_days.first: ((0, 2), (5, 6))})
    assert delays(two_days) == [12, 13, 14, 16, 17, 18, 19, *range(20, 30)]
    (first, second) = sorted(
        live_files(two_days.store, two_days.state.metadata), key=lambda f: -f.deleted
    )
    assert (first.key, first.rows, first.deleted) == (two_days.first, 10, 3)
    assert list(deleted_positions(two_days.store, first)) == [0, 1, 5]
    assert (second.key, second.deleted, second.deletes) == (two_days.second, 0, None)
    assert list(deleted_positions(two_days.store, second)) == []
    found = summary(two_days)
    assert found.operation is Operation.DELETE
    assert (found["total-delete-files"], found["total-position-deletes"]) == ("1", "3")
    assert (found["total-data-files"], found["total-records"]) == ("2", "20")


def test_new_deletes_take_the_place_of_those_that_the_file_had(two_days):
    two_days.commit(delete={two_days.first: ((0, 2),), two_days.second: ((0, 1),)})
    before = two_days.state.metadata
    two_days.commit(delete={two_days.first: ((0, 2), (8, 10))})
    assert delays(two_days) == [*range(12, 18), *range(21, 30)]
    assert delays(two_days, before) == [*range(12, 20), *range(21, 30)], "time travel"
    found = summary(two_days)
    assert (found["total-delete-files"], found["total-position-deletes"]) == ("2", "5")


def test_a_dropped_file_loses_its_deletes(two_days):
    two_days.commit(delete={two_days.first: ((0, 2),), two_days.second: ((0, 1),)})
    two_days.commit(drop=[two_days.first])
    assert delays(two_days) == list(range(21, 30))
    assert summary(two_days)["total-delete-files"] == "1"
    two_days.commit(drop=[two_days.second])
    assert delays(two_days) == []
    assert summary(two_days)["total-delete-files"] == "0"
    two_days.commit(two_days.files([row(3, 1)]))
    assert delays(two_days) == [1]


def test_a_file_can_be_added_with_deleted_positions(two_days):
    (added,) = two_days.files([row(3, n) for n in range(3)])
    two_days.commit([added], delete={added.key: ((1, 2),)})
    assert delays(two_days) == [0, 2, *range(10, 30)]
    assert summary(two_days).operation is Operation.OVERWRITE


def test_appends_after_deletes_keep_them(two_days):
    two_days.commit(delete={two_days.first: ((0, 9),)})
    for number in range(
        60
    ):  # more than the manifests that are merged at once, and than the snapshots that are kept
        two_days.commit(two_days.files([row(3, 100 + number)]))
    assert delays(two_days) == [19, *range(20, 30), *range(100, 160)]


def test_deletes_of_a_file_with_older_partition_rules_are_matched_by_readers(two_days):
    two_days.state = replace(two_days.state, partition_by=("origin",))
    two_days.commit(two_days.files([row(4, 40)]))
    two_days.commit(delete={two_days.first: ((0, 9),)})
    assert delays(two_days) == [19, *range(20, 30), 40]


def test_delete_files_have_one_manifest(two_days):
    for number in range(4):
        two_days.commit(two_days.files([row(3, 100 + number)]))
        two_days.commit(delete={two_days.first: ((0, 1 + number),), two_days.second: ((0, 1),)})
    snapshot = static_table(two_days.store, two_days.state.metadata).metadata.current_snapshot()
    found = manifests(StoreFileIO(two_days.store), snapshot)
    assert [m.content for m in found].count(ManifestContent.DELETES) == 1
    assert delays(two_days) == [*range(14, 20), *range(21, 30), *range(100, 104)]


def test_a_file_that_is_not_in_the_table_has_no_deletes(two_days):
    (other,) = two_days.files([row(3, 1)])
    with pytest.raises(Corrupt, match="because rows of it are deleted, found none"):
        two_days.stage(delete={other.key: ((0, 1),)})


def test_gc_finds_the_delete_files_of_all_kept_snapshots(two_days):
    two_days.commit(delete={two_days.first: ((0, 2),)})
    old = {f.deletes for f in live_files(two_days.store, two_days.state.metadata)} - {None}
    two_days.commit(delete={two_days.first: ((0, 3),)})
    new = {f.deletes for f in live_files(two_days.store, two_days.state.metadata)} - {None}
    assert old.isdisjoint(new)
    assert old | new <= IcebergReach(two_days.store).reached([two_days.state.metadata])


@pytest.mark.parametrize("damage", ["other file", "not parquet", "gone"])
def test_a_damaged_delete_file_is_named(two_days, damage):
    two_days.commit(delete={two_days.first: ((0, 2),), two_days.second: ((0, 1),)})
    first, second = live_files(two_days.store, two_days.state.metadata)
    objects = two_days.store._objects
    if damage == "gone":
        del objects[first.deletes]
    else:
        body = objects[second.deletes].body if damage == "other file" else b"PAR1"
        objects[first.deletes] = replace(objects[first.deletes], body=body)
    with pytest.raises(Corrupt, match="deletes/"):
        list(deleted_positions(two_days.store, first))


def test_a_delete_file_has_plain_strings_and_positions(two_days, tmp_path):
    """Iceberg spec, Position Delete Files: file_path and pos with their reserved ids, required."""
    two_days.commit(delete={two_days.first: ((0, 2),)})
    first = next(f for f in live_files(two_days.store, two_days.state.metadata) if f.deleted)
    path = tmp_path / "deletes.parquet"
    path.write_bytes(two_days.store.get(first.deletes).body)
    schema = pq.ParquetFile(path).schema_arrow
    assert [(f.name, str(f.type), f.nullable) for f in schema] == [
        ("file_path", "string", False),
        ("pos", "int64", False),
    ]
    assert [f.metadata[b"PARQUET:field_id"] for f in schema] == [b"2147483546", b"2147483545"]
