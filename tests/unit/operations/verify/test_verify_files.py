"""Damage to data files and table metadata is found, each by its check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.fakes import FakeLog
from support.small_lake import TOPIC, SmallLake, day, days
from tallystick.format import keys
from tallystick.format.report import FileReport
from unit.operations.verify.proving import Damage, check_damage, live_file, prove


def _records(small: SmallLake) -> list[str]:
    return small.keys("commits/")


def _delete(small: SmallLake, key: str) -> None:
    small.store.delete([key])


def _flip_last_byte(small: SmallLake) -> None:
    key = live_file(small).key
    stored = small.store.get(key)
    assert stored is not None
    small.overwrite(key, stored.body[:-1] + b"!")


def _edit_entry(small: SmallLake, number: int, edit: Callable[[Any], object]) -> None:
    small.change(small.page(), lambda page: edit(page["entries"][number]))


def _count_dead_letter_as_record(small: SmallLake) -> None:
    """Change an account that still adds up in the record, the report and the ledger: only the rows differ."""

    def shift(accounts: Any) -> None:
        accounts[0]["records"] += 1
        accounts[0]["dead_letters"] -= 1

    def edit(record: Any) -> None:
        shift(record["intervals"][0]["accounts"])
        record["intervals"][0]["totals"][:2] = [6, 1]

    small.change(_records(small)[1], edit)
    (report,) = small.keys(f"attempts/{days(1, 2).part}/")
    small.change(report, lambda r: shift(r["accounts"]))
    _edit_entry(small, 0, lambda e: e["committed"]["totals"].__setitem__(slice(0, 2), [6, 1]))


def _restage(
    small: SmallLake, *, add: list[FileReport], drop: frozenset[str] = frozenset()
) -> None:
    """Let the root name metadata that no commit made."""
    state = small.table_state("events")
    metadata = small.tables.stage(state, add=add, drop=drop, properties={}, now=small.runtime.now())
    record = small.root()["record"]
    for key in (keys.ROOT, record):
        small.change(key, lambda value: value["tables"]["events"].update(metadata=metadata))


def _add_unrecorded_file(small: SmallLake) -> None:
    file = live_file(small)
    key = keys.data_file(
        "events", keys.plan(day(1), day(2), "e" * 32), "attempt-1", "00000", "d" * 32
    )
    stored = small.store.get(file.key)
    assert stored is not None
    small.store.create(key, stored.body)
    _restage(
        small,
        add=[FileReport(table="events", key=key, etag="x", size_bytes=file.size_bytes, rows=1)],
    )


def _rename_column(small: SmallLake) -> None:
    small.change(keys.ROOT, lambda root: root["tables"]["events"]["columns"][0].update(name="m"))


def _stretch_lineage(small: SmallLake) -> None:
    (report,) = small.keys(f"attempts/{days(1, 2).part}/")

    def edit(value: Any) -> None:
        file = next(f for f in value["files"] if f["table"] == "events")
        file["lineage"][0][3] = 99

    small.change(report, edit)


def _metadata(small: SmallLake) -> str:
    return str(small.root()["tables"]["events"]["metadata"])


DAMAGES = {
    "a data file is deleted": Damage(
        do=lambda s: _delete(s, live_file(s).key),
        check="objects",
        rule="I3",
        where="tables/events/data/",
        message="a data file of [2013-01-01",
        expected="an object",
        found="none",
    ),
    "a data file is changed": Damage(
        do=_flip_last_byte,
        check="objects",
        rule="I3",
        where="tables/events/data/",
        message="the data file's size and ETag",
        expected="bytes, ETag",
        found="bytes, ETag",
    ),
    "a data file is cut off": Damage(
        do=lambda s: s.overwrite(live_file(s).key, b"PAR1"),
        check="objects",
        rule="I3",
        where="tables/events/data/",
        message="the data file's size and ETag",
        expected="2234 bytes",
        found="4 bytes",
    ),
    "dead letters are accounted as records": Damage(
        do=_count_dead_letter_as_record,
        check="accounts",
        rule="I7",
        where="[2013-01-01T00:00:00.000Z",
        message="dead letters accounted and in the table",
        expected="1",
        found="2",
    ),
    "a table's metadata is deleted": Damage(
        do=lambda s: _delete(s, _metadata(s)),
        check="objects",
        rule="I3",
        where="tables/events/metadata/00003-",
        message="the table metadata cannot be read",
        expected="a readable table metadata",
        found="which does not exist",
    ),
    "a manifest is deleted": Damage(
        do=lambda s: s.store.delete(k for k in s.keys("tables/events/metadata/") if "-m" in k),
        check="objects",
        rule="I3",
        where="tables/events/metadata/00003-",
        message="the table metadata cannot be read",
        expected="a readable table metadata",
        found=".avro, which does not exist",
    ),
    "a table lists a file twice": Damage(
        do=lambda s: _restage(s, add=[live_file(s)]),
        check="tables",
        rule="I8",
        where="tables/events/data/",
        message="how often table events lists the file",
        expected="once",
        found="more than once",
    ),
    "a table lists a file that no record names": Damage(
        do=_add_unrecorded_file,
        check="tables",
        rule="I5",
        where=f"{'e' * 32}/attempt-1/00000-{'d' * 32}.parquet",
        message="a file that table events lists",
        expected="added by a committed interval's record",
        found="no committed record names it",
    ),
    "a table dropped a committed file": Damage(
        do=lambda s: _restage(s, add=[], drop=frozenset({live_file(s).key})),
        check="tables",
        rule="I8",
        where="tables/events/data/",
        message="a file that [2013-01-01",
        expected="listed",
        found="not listed",
    ),
    "a column id gets another meaning": Damage(
        do=_rename_column,
        check="columns",
        rule="I11",
        where="table events, column id 1",
        message="its meaning (uuid, name, type) since commits/000000000010-",
        expected="'n', 'long'",
        found="'m', 'long'",
    ),
    "a report claims offsets of another interval": Damage(
        do=_stretch_lineage,
        check="lineage",
        rule="I1",
        where="tables/events/data/",
        message=f"offsets of {TOPIC}[0] in a file of [2013-01-01",
        expected="inside [0, 3)",
        found="0..99",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_by_its_check(small: SmallLake, name: str) -> None:
    check_damage(small, DAMAGES[name])


def test_a_check_of_undamaged_objects_finds_nothing(small: SmallLake) -> None:
    _delete(small, live_file(small).key)
    broken = [check.name for check in prove(small).checks if not check.proven]
    assert broken == ["objects"]


def test_many_findings_are_counted_and_the_first_hundred_kept() -> None:
    log = FakeLog()
    log.create(TOPIC, partitions=120)
    for partition in range(120):
        log.append(TOPIC, partition, day(1), n=1)
    small = SmallLake(log=log)
    small.run(days(1, 2))
    small.store.delete(small.data_files("events"))
    objects = next(check for check in prove(small).checks if check.name == "objects")
    assert objects.problems == 120
    assert len(objects.findings) == 100
