"""`verify` proves good lakes, reports what it has checked, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fakes import FakeLog
from support.small_lake import TOPIC, SmallLake, day, days, fill, good_lake
from tallystick.lake import Lake
from tallystick.operations.verify import CHECKS, Demands, verify
from unit.operations.verify.proving import EVENTS, prove


def forwards() -> SmallLake:
    small = SmallLake()
    for number in range(1, 7):
        small.run(days(number, number + 1))
    return small


def backwards() -> SmallLake:
    small = SmallLake()
    for number in range(6, 0, -1):
        small.run(days(number, number + 1))
    return small


def empty() -> SmallLake:
    small = SmallLake()
    small.lake.open("small")
    return small


def only_granted() -> SmallLake:
    small = SmallLake()
    small.plan(days(1, 2))
    return small


def with_loss() -> SmallLake:
    small = SmallLake()
    small.run(days(1, 2))
    small.log.expire(TOPIC, 0, before=6)
    small.run(days(2, 4), accept_loss=True)
    return small


def with_new_partition() -> SmallLake:
    small = SmallLake()
    small.run(days(1, 2))
    small.log.grow(TOPIC, partitions=3)
    small.log.append(TOPIC, 2, day(3), n=1)
    small.run(days(2, 4))
    return small


def compacted() -> SmallLake:
    log = FakeLog()
    log.create(TOPIC, compacted=True)
    for number in range(4):
        log.append(TOPIC, 0, day(1), "absent" if number % 2 else "data", n=number)
    small = SmallLake(log=log)
    small.run(days(1, 2))
    return small


def replaced_twice() -> SmallLake:
    small = SmallLake()
    small.run(days(1, 3))
    for clear in (1, 2):
        small.job = f"version {clear + 1}".encode()
        small.run(days(1, 3), clear=clear)
    return small


@pytest.mark.parametrize(
    "build",
    [
        good_lake,
        forwards,
        backwards,
        empty,
        only_granted,
        with_loss,
        with_new_partition,
        compacted,
        replaced_twice,
    ],
)
def test_a_good_lake_is_proven_deeply(build: Callable[[], SmallLake]) -> None:
    proof = prove(build(), deep=True, demands=Demands())
    assert [f for check in proof.checks for f in check.findings] == []
    assert proof.proven
    assert [check.name for check in proof.checks] == list(CHECKS)


def test_a_ledger_of_many_pages_is_proven() -> None:
    log = FakeLog()
    fill(log, days_count=12)
    small = SmallLake(log=log)
    small.lake = Lake(small.store, small.runtime, proven=True, page_bytes_max=1500)
    for number in (*range(12, 6, -1), *range(1, 7)):
        small.run(days(number, number + 1))
    assert len(small.root()["pages"]) > 2
    assert prove(small).proven


def test_every_demanded_record_has_a_row(small: SmallLake) -> None:
    proof = prove(small, deep=True, demands=EVENTS)
    assert proof.proven
    remarks = next(c for c in proof.checks if c.name == "rows").remarks
    assert "events: 15 rows of 15 offsets; 15 decoded records, all of them" in remarks


def test_rows_are_read_only_on_demand(small: SmallLake) -> None:
    assert "rows" not in {check.name for check in prove(small).checks}


def test_the_counts_are_those_of_the_lake(small: SmallLake) -> None:
    counted = {check.name: check.counted for check in prove(small).checks}
    assert counted["chain"] == {"record": 5, "commit": 5}
    assert counted["tiling"]["committed offset"] == 25
    assert counted["accounts"]["dead letter"] == 6
    assert counted["tables"] == {"table": 3, "file": 15, "row": 27}


def test_verify_writes_nothing(small: SmallLake) -> None:
    before = list(small.store.list(""))
    prove(small, deep=True)
    assert list(small.store.list("")) == before


def test_verify_reports_its_progress(small: SmallLake) -> None:
    reported: list[tuple[str, int, int]] = []
    verify(small.lake, watch=lambda what, done, total: reported.append((what, done, total)))
    assert ("intervals", 4, 4) in reported
    assert {what for what, _, _ in reported} == {
        "listing",
        "pages",
        "records",
        "tables",
        "intervals",
    }
