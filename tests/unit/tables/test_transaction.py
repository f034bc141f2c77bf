"""The transaction of a commit: its metadata is PyIceberg's, each update is applied once, and no snapshot is copied."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Snapshot

from support.fakes import FakeLog, FakeRecord
from support.small_lake import DAY, TOPIC, SmallLake
from tallystick.format.interval import Interval
from tallystick.tables import transaction
from tallystick.tables.transaction import TableTransaction

HOUR = timedelta(hours=1)


class Hours:
    """A lake of hourly intervals with two records each, which are committed in order."""

    def __init__(self) -> None:
        log = FakeLog()
        log.create(TOPIC)
        self.small = SmallLake(log=log)
        self.count = 0

    def commit(self, times: int = 1) -> None:
        for _ in range(times):
            start = DAY + self.count * HOUR
            for kind in ("a", "b"):
                record = FakeRecord(
                    at_ms=round(start.timestamp() * 1000),
                    value={"n": self.count, "kind": kind},
                )
                self.small.log.topics[TOPIC].partitions[0].records.append(record)
            self.count += 1
            assert len(self.small.run(Interval(start=start, end=start + HOUR))) == 1


def test_its_metadata_after_each_update_is_that_of_pyiceberg(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[int] = []

    class Compared(TableTransaction):
        @property
        def table_metadata(self) -> Any:
            found = super().table_metadata
            theirs = Transaction.table_metadata.__get__(self)
            # PyIceberg takes the time of a snapshot from its clock, but keeps it in the update.
            assert found == theirs
            compared.append(len(self._updates))
            return found

    monkeypatch.setattr("tallystick.tables.staging.TableTransaction", Compared)
    hours = Hours()
    hours.commit(52)  # from 51 snapshots on, one is expired
    # Without an update, with the snapshot and its branch, and with the expired snapshot.
    assert set(compared) == {0, 2, 3}


def test_each_update_is_applied_once_and_no_snapshot_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hours = Hours()
    hours.commit(60)
    applied: Counter[str] = Counter()
    copied: list[Any] = []
    real_apply, real_copy = transaction._apply_table_update, TableMetadataV2.__deepcopy__

    def apply(update: Any, *rest: Any) -> Any:
        applied[type(update).__name__] += 1
        return real_apply(update, *rest)

    def copy(self: Any, memo: Any = None) -> Any:
        copied.append(type(self))
        return real_copy(self, memo)

    monkeypatch.setattr(transaction, "_apply_table_update", apply)
    monkeypatch.setattr(TableMetadataV2, "__deepcopy__", copy)
    monkeypatch.setattr(Snapshot, "__deepcopy__", copy)
    hours.commit()
    tables = ("events", "per_kind")
    assert applied == {
        name: len(tables)
        for name in ("AddSnapshotUpdate", "SetSnapshotRefUpdate", "RemoveSnapshotsUpdate")
    }
    assert copied == []


def test_the_table_that_it_began_with_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[Any, str]] = []

    class Kept(TableTransaction):
        def __init__(self, table: Any) -> None:
            super().__init__(table)
            begun.append((table.metadata, table.metadata.model_dump_json()))

    hours = Hours()
    hours.commit(55)
    monkeypatch.setattr("tallystick.tables.staging.TableTransaction", Kept)
    hours.commit(2)
    assert len(begun) == 4
    assert all(metadata.model_dump_json() == text for metadata, text in begun)
