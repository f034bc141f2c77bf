"""A compaction that meets a fault at any single request moves its rows once or not at all, and the next run finishes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.small_lake import SmallLake, day, days, pipeline
from tallystick.errors import Corrupt, RetryLater
from tallystick.lake import Lake
from tallystick.operations.compact import CompactOptions, compact
from tallystick.operations.compact.local import LocalWriter
from tallystick.operations.verify import verify
from tallystick.pipeline import Pipeline, Upkeep
from tallystick.store import Store
from tallystick.tables.reading import live_files, static_table
from tallystick.tables.staging import IcebergTables
from tallystick_devstack.testing.faults import APPLICABLE, Fault, FaultyStore, Killed, script

OPTIONS = CompactOptions(until=day(9), tables=("events",), files_min=2)


def sorted_pipeline(warehouse: str) -> Pipeline:
    """Declare a sort order: then a compaction writes a row order before each file, and a replacement reads it."""
    declared = pipeline(warehouse)
    events = replace(declared.tables[0], upkeep=Upkeep(sort_by=["kind", "n"]))
    return replace(declared, tables=[events, *declared.tables[1:]])


def compacted_once() -> SmallLake:
    """Return a lake whose days 1 and 2 share a sorted file, of which day 1 was replaced, and with days 3 and 4."""
    small = SmallLake(declared=sorted_pipeline)
    small.run(days(1, 2))
    small.run(days(2, 3))
    run_compact(small, small.store)
    small.job = b"version 2"
    small.run(days(1, 2), clear=1)
    small.run(days(3, 4))
    small.run(days(4, 5))
    return small


def run_compact(small: SmallLake, store: Store) -> None:
    lake = Lake(store, small.runtime, proven=True)
    compact(lake, IcebergTables(store, small.runtime), LocalWriter(lake), OPTIONS)


def rows(small: SmallLake) -> list[Any]:
    metadata = small.lake.load_existing().root.tables["events"].metadata
    assert metadata is not None
    return sorted(static_table(small.store, metadata).scan().to_arrow().to_pylist(), key=repr)


BEFORE = compacted_once()
ROWS = rows(BEFORE)


def calls() -> list[str]:
    small = BEFORE.copy()
    faulty = FaultyStore(small.store)
    run_compact(small, faulty)
    return [call.verb for call in faulty.calls]


CALLS = calls()


@pytest.mark.parametrize("fault", sorted(Fault))
def test_a_fault_at_any_call_moves_rows_once_or_not_at_all(fault: Fault) -> None:
    tried = [i for i, verb in enumerate(CALLS) if fault in APPLICABLE[verb]]  # type: ignore[index]
    for index in tried:
        small = BEFORE.copy()
        faulty = FaultyStore(small.store, script({index: fault}))
        try:
            run_compact(small, faulty)
        except (Killed, RetryLater, Corrupt):
            pass
        assert faulty.fired, index
        assert rows(small) == ROWS, f"{fault} at call {index}"
        run_compact(small, small.store)
        while faulty.held:
            faulty.release()
        run_compact(small, small.store)
        assert rows(small) == ROWS, f"{fault} at call {index}"
        metadata = small.lake.load_existing().root.tables["events"].metadata
        assert len(list(live_files(small.store, metadata or ""))) == 1, f"{fault} at call {index}"
    assert verify(small.lake, deep=True).proven


def test_a_compaction_deletes_nothing() -> None:
    assert "delete" not in CALLS
