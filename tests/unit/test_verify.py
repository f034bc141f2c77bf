"""`verify` passes on good lakes, and finds each way in which a lake can be damaged, in the right check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fakes import FakeLog
from small_lake import TOPIC, SmallLake, day, days, fill, good_lake
from tallystick.errors import Corrupt, InvalidRequest, RootVanished
from tallystick.lake import Lake
from tallystick.protocol import keys
from tallystick.protocol.report import FileReport, parse_report
from tallystick.verify import CHECKS, Demands, Finding, Proof, verify

EVENTS = Demands(every_record=frozenset({"events"}))


@cache
def _good() -> SmallLake:
    return good_lake()


@pytest.fixture
def small() -> SmallLake:
    return _good().copy()


def prove(small: SmallLake, *, deep: bool = False, demands: Demands | None = None) -> Proof:
    return verify(small.lake, deep=deep, demands=demands)


def findings(proof: Proof, check: str) -> tuple[Finding, ...]:
    return next(c for c in proof.checks if c.name == check).findings


# ---------------------------------------------------------------- good lakes


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


def untouched() -> SmallLake:
    small = SmallLake()
    small.lake.open("small")
    return small


def only_granted() -> SmallLake:
    small = SmallLake()
    small.plan(days(1, 2))
    return small


def lost() -> SmallLake:
    small = SmallLake()
    small.run(days(1, 2))
    small.log.expire(TOPIC, 0, before=6)
    small.run(days(2, 4), accept_loss=True)
    return small


def grown() -> SmallLake:
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
        untouched,
        only_granted,
        lost,
        grown,
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
    small.lake = Lake(small.store, small.world, proven=True, page_bytes_max=1500)
    for number in (*range(12, 6, -1), *range(1, 7)):
        small.run(days(number, number + 1))
    assert len(small.root()["pages"]) > 2
    assert prove(small).proven


def test_every_record_is_demanded_and_there(small: SmallLake) -> None:
    proof = prove(small, deep=True, demands=EVENTS)
    assert proof.proven
    told = next(c for c in proof.checks if c.name == "rows").remarks
    assert "events: 15 rows of 15 offsets; 15 decoded records, every one" in told


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


def test_verify_says_how_far_it_is(small: SmallLake) -> None:
    seen: list[tuple[str, int, int]] = []
    verify(small.lake, watch=lambda what, done, total: seen.append((what, done, total)))
    assert ("intervals", 4, 4) in seen
    assert {what for what, _, _ in seen} == {"listing", "pages", "records", "tables", "intervals"}


# ---------------------------------------------------------------- damage


@dataclass(frozen=True)
class Damage:
    """What is done to a good lake, and the counter-example that must be told."""

    do: Callable[[SmallLake], object]
    check: str
    rule: str
    where: str
    happened: str
    expected: str
    found: str


def _live_file(small: SmallLake, table: str = "events", number: int = 0) -> FileReport:
    """A file of day 1, which nobody replaced."""
    (key,) = small.keys(f"attempts/{days(1, 2).part}/")
    stored = small.store.get(key)
    assert stored is not None
    return [f for f in parse_report(stored.body, where=key).files if f.table == table][number]


def _records(small: SmallLake) -> list[str]:
    return small.keys("commits/")


def _delete(small: SmallLake, key: str) -> None:
    small.store.delete([key])


def _flip_last_byte(small: SmallLake) -> None:
    key = _live_file(small).key
    stored = small.store.get(key)
    assert stored is not None
    small.overwrite(key, stored.body[:-1] + b"!")


def _overlap(small: SmallLake) -> None:
    def edit(page: Any) -> None:
        first = page["entries"][0]
        wide = days(1, 3)
        plan = keys.plan(wide.start, wide.end, "f" * 32)
        granted = {"plan": plan, "request": ["small", "x", 0], "generation": 1}
        page["entries"][0] = {
            **first,
            "interval": wide.to_json(),
            "granted": granted,
            "committed": None,
        }

    small.change(small.page(), edit)


def _edit_boundary(small: SmallLake, number: int, offset: int) -> None:
    def edit(page: Any) -> None:
        page["boundaries"][number]["topics"][TOPIC][0][0] = offset

    small.change(small.page(), edit)


def _edit_entry(small: SmallLake, number: int, edit: Callable[[Any], object]) -> None:
    small.change(small.page(), lambda page: edit(page["entries"][number]))


def _edit_totals(small: SmallLake) -> None:
    def edit(entry: Any) -> None:
        entry["committed"]["totals"][0] += 1

    _edit_entry(small, 0, edit)


def _unbalanced_account(small: SmallLake) -> None:
    def edit(record: Any) -> None:
        record["intervals"][0]["accounts"][0]["records"] += 1

    small.change(_records(small)[1], edit)


def _dead_called_records(small: SmallLake) -> None:
    """The account still adds up, in the record, the report and the ledger; only the rows tell."""

    def shift(accounts: Any) -> None:
        accounts[0]["records"] += 1
        accounts[0]["dead"] -= 1

    def edit(record: Any) -> None:
        shift(record["intervals"][0]["accounts"])
        record["intervals"][0]["totals"][:2] = [6, 1]

    small.change(_records(small)[1], edit)
    (report,) = small.keys(f"attempts/{days(1, 2).part}/")
    small.change(report, lambda r: shift(r["accounts"]))
    _edit_entry(small, 0, lambda e: e["committed"]["totals"].__setitem__(slice(0, 2), [6, 1]))


def _record_and_report_disagree(small: SmallLake) -> None:
    (report,) = small.keys(f"attempts/{days(1, 2).part}/")

    def edit(value: Any) -> None:
        account = value["accounts"][0]
        account["records"], account["dead"] = account["records"] - 1, account["dead"] + 1

    small.change(report, edit)


def _restage(
    small: SmallLake, *, add: list[FileReport], drop: frozenset[str] = frozenset()
) -> None:
    """Let the root name metadata that no commit made."""
    state = small.table_state("events")
    metadata = small.tables.stage(state, add=add, drop=drop, properties={}, now=small.world.now())
    record = small.root()["record"]
    for key in (keys.ROOT, record):
        small.change(key, lambda value: value["tables"]["events"].update(metadata=metadata))


def _stranger(small: SmallLake) -> None:
    file = _live_file(small)
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


def _skip_a_commit(small: SmallLake) -> None:
    records = _records(small)
    small.change(records[3], lambda record: record.update(parent=records[1]))


def _rename_column(small: SmallLake) -> None:
    small.change(keys.ROOT, lambda root: root["tables"]["events"]["columns"][0].update(name="m"))


def _stretch_lineage(small: SmallLake) -> None:
    (report,) = small.keys(f"attempts/{days(1, 2).part}/")

    def edit(value: Any) -> None:
        file = next(f for f in value["files"] if f["table"] == "events")
        file["lineage"][0][3] = 99

    small.change(report, edit)


def _forget_entry(small: SmallLake) -> None:
    small.change(small.page(), lambda page: page["entries"].pop(0))


def _metadata(small: SmallLake) -> str:
    return str(small.root()["tables"]["events"]["metadata"])


DAMAGES = {
    "a data file is deleted": Damage(
        do=lambda s: _delete(s, _live_file(s).key),
        check="objects",
        rule="I3",
        where="tables/events/data/",
        happened="a data file of [2013-01-01",
        expected="an object",
        found="none",
    ),
    "a data file is changed": Damage(
        do=_flip_last_byte,
        check="objects",
        rule="I3",
        where="tables/events/data/",
        happened="the data file's size and ETag",
        expected="bytes, ETag",
        found="bytes, ETag",
    ),
    "a data file is cut off": Damage(
        do=lambda s: s.overwrite(_live_file(s).key, b"PAR1"),
        check="objects",
        rule="I3",
        where="tables/events/data/",
        happened="the data file's size and ETag",
        expected="2210 bytes",
        found="4 bytes",
    ),
    "a page is deleted": Damage(
        do=lambda s: _delete(s, s.page()),
        check="objects",
        rule="I3",
        where="ledger/",
        happened="the page cannot be read",
        expected="a readable page",
        found="it is not there",
    ),
    "a page is of a newer format": Damage(
        do=lambda s: s.change(s.page(), lambda page: page.update(format="tallystick.page/2")),
        check="objects",
        rule="I3",
        where="ledger/",
        happened="the page cannot be read",
        expected="a readable page",
        found="written by another version of tallystick",
    ),
    "the newest record is deleted": Damage(
        do=lambda s: _delete(s, _records(s)[-1]),
        check="chain",
        rule="I10",
        where="commits/000000000010-",
        happened="the record is named by root.json",
        expected="a record",
        found="it is not there",
    ),
    "a record in the middle is deleted": Damage(
        do=lambda s: _delete(s, _records(s)[2]),
        check="chain",
        rule="I10",
        where="commits/000000000007-",
        happened="the record is named by commits/000000000008-",
        expected="a record",
        found="it is not there",
    ),
    "a record leaves out its parent": Damage(
        do=_skip_a_commit,
        check="chain",
        rule="I4",
        where="[2013-01-02T00:00:00.000Z",
        happened="what commits/000000000010-",
        expected="nothing",
        found="commits/000000000007-",
    ),
    "the chain ends too early": Damage(
        do=lambda s: s.change(_records(s)[3], lambda record: record.update(parent=None)),
        check="chain",
        rule="I4",
        where="[2013-01-01T00:00:00.000Z",
        happened="the ledger's commit is not in the chain",
        expected="commits/000000000005-",
        found="no record of this interval",
    ),
    "the root names an older record": Damage(
        do=lambda s: s.change(keys.ROOT, lambda root: root.update(record=_records(s)[-2])),
        check="chain",
        rule="I4",
        where="[2013-01-02T00:00:00.000Z",
        happened="the ledger and the newest record of the chain",
        expected="commits/000000000007-",
        found="commits/000000000010-",
    ),
    "the root moves a table back": Damage(
        do=lambda s: s.change(
            keys.ROOT,
            lambda root: root["tables"]["events"].update(
                metadata=next(k for k in s.keys("tables/events/metadata/") if "/00002-" in k)
            ),
        ),
        check="chain",
        rule="I8",
        where="table events",
        happened="the metadata in root.json and in commits/000000000010-",
        expected="/00003-",
        found="/00002-",
    ),
    "a committed entry is forgotten": Damage(
        do=_forget_entry,
        check="chain",
        rule="I4",
        where="[2013-01-01T00:00:00.000Z",
        happened="an acknowledged commit is not in the ledger",
        expected="committed by commits/000000000005-",
        found="no committed entry",
    ),
    "entries overlap": Damage(
        do=_overlap,
        check="tiling",
        rule="I1",
        where="[2013-01-02T00:00:00.000Z",
        happened="two entries overlap",
        expected="2013-01-03T00:00:00.000Z",
        found="2013-01-02T00:00:00.000Z",
    ),
    "a boundary is moved": Damage(
        do=lambda s: _edit_boundary(s, 1, 4),
        check="tiling",
        rule="I2",
        where=f"{TOPIC}[0]",
        happened="the account's range and its boundaries",
        expected="[0, 4)",
        found="[0, 3)",
    ),
    "a boundary goes back": Damage(
        do=lambda s: _edit_boundary(s, 2, 1),
        check="tiling",
        rule="I2",
        where=f"{TOPIC}[0] at 2013-01-03T00:00:00.000Z",
        happened="a boundary goes back",
        expected="at least 3 (the boundary at 2013-01-02",
        found="1",
    ),
    "the index says another time": Damage(
        do=lambda s: s.change(
            keys.ROOT, lambda root: root["pages"][0].__setitem__(1, "2013-01-09T00:00:00.000Z")
        ),
        check="tiling",
        rule="I2",
        where="ledger/",
        happened="the reach of the page",
        expected="2013-01-09",
        found="2013-01-07",
    ),
    "a grant changes its owner": Damage(
        do=lambda s: _edit_entry(s, 4, lambda e: e["granted"].update(request=["small", "else", 0])),
        check="tiling",
        rule="I5",
        where="[2013-01-06T00:00:00.000Z",
        happened="the granted plan (interval, generation, request)",
        expected="run='else'",
        found="run='scheduled__2013-01-06",
    ),
    "an account does not add up": Damage(
        do=_unbalanced_account,
        check="chain",
        rule="I10",
        where="commits/000000000005-",
        happened="the record is named by commits/000000000007-",
        expected="a record",
        found="the account adds up to 4, the range holds 3 offsets",
    ),
    "the ledger's totals are others": Damage(
        do=_edit_totals,
        check="accounts",
        rule="I7",
        where="[2013-01-01T00:00:00.000Z",
        happened="the ledger's totals and the record's",
        expected="records 5, dead 2",
        found="records 6, dead 2",
    ),
    "dead letters are accounted as records": Damage(
        do=_dead_called_records,
        check="accounts",
        rule="I7",
        where="[2013-01-01T00:00:00.000Z",
        happened="dead letters accounted and in the table",
        expected="1",
        found="2",
    ),
    "record and report disagree": Damage(
        do=_record_and_report_disagree,
        check="accounts",
        rule="I7",
        where=f"attempts/{days(1, 2).part}/",
        happened="the accounts of the report and the record",
        expected="records=1",
        found="records=2",
    ),
    "a record forgets its report": Damage(
        do=lambda s: s.change(
            _records(s)[1], lambda record: record["intervals"][0].update(report=None)
        ),
        check="accounts",
        rule="I7",
        where="[2013-01-01T00:00:00.000Z",
        happened="the report of an interval with offsets",
        expected="a report",
        found="none",
    ),
    "a plan is deleted": Damage(
        do=lambda s: _delete(s, s.keys(f"plans/{days(1, 2).part}/")[0]),
        check="objects",
        rule="I3",
        where=f"plans/{days(1, 2).part}/",
        happened="the plan cannot be read",
        expected="a readable plan",
        found="it is not there",
    ),
    "a granted plan is deleted": Damage(
        do=lambda s: _delete(s, s.keys(f"plans/{days(6, 7).part}/")[0]),
        check="objects",
        rule="I3",
        where=f"plans/{days(6, 7).part}/",
        happened="the granted plan cannot be read",
        expected="a readable granted plan",
        found="it is not there",
    ),
    "a plan is changed": Damage(
        do=lambda s: s.change(
            s.keys(f"plans/{days(1, 2).part}/")[0], lambda plan: plan.update(library="another")
        ),
        check="accounts",
        rule="I5",
        where=f"attempts/{days(1, 2).part}/",
        happened="the plan that was staged",
        expected="plans/",
        found="plans/",
    ),
    "a report is deleted": Damage(
        do=lambda s: _delete(s, s.keys(f"attempts/{days(1, 2).part}/")[0]),
        check="objects",
        rule="I3",
        where=f"attempts/{days(1, 2).part}/",
        happened="the report cannot be read",
        expected="a readable report",
        found="it is not there",
    ),
    "a table's metadata is deleted": Damage(
        do=lambda s: _delete(s, _metadata(s)),
        check="objects",
        rule="I3",
        where="tables/events/metadata/00003-",
        happened="the table metadata cannot be read",
        expected="a readable table metadata",
        found="is gone, and table metadata names it",
    ),
    "a manifest is deleted": Damage(
        do=lambda s: s.store.delete(k for k in s.keys("tables/events/metadata/") if "-m" in k),
        check="objects",
        rule="I3",
        where="tables/events/metadata/00003-",
        happened="the table metadata cannot be read",
        expected="a readable table metadata",
        found=".avro is gone",
    ),
    "a table lists a file twice": Damage(
        do=lambda s: _restage(s, add=[_live_file(s)]),
        check="tables",
        rule="I8",
        where="tables/events/data/",
        happened="how often table events lists the file",
        expected="once",
        found="more than once",
    ),
    "a table lists a file that no record names": Damage(
        do=_stranger,
        check="tables",
        rule="I5",
        where=f"{'e' * 32}/attempt-1/00000-{'d' * 32}.parquet",
        happened="a file that table events lists",
        expected="added by a committed interval's record",
        found="no committed record names it",
    ),
    "a table dropped a committed file": Damage(
        do=lambda s: _restage(s, add=[], drop=frozenset({_live_file(s).key})),
        check="tables",
        rule="I8",
        where="tables/events/data/",
        happened="a file that [2013-01-01",
        expected="listed",
        found="not listed",
    ),
    "a column id gets another meaning": Damage(
        do=_rename_column,
        check="columns",
        rule="I11",
        where="table events, column id 1",
        happened="its meaning (uuid, name, type) since commits/000000000010-",
        expected="'n', 'long'",
        found="'m', 'long'",
    ),
    "a report claims offsets of another interval": Damage(
        do=_stretch_lineage,
        check="lineage",
        rule="I1",
        where="tables/events/data/",
        happened=f"offsets of {TOPIC}[0] in a file of [2013-01-01",
        expected="inside [0, 3)",
        found="0..99",
    ),
}


def _told(damage: Damage, finding: Finding) -> bool:
    return finding.rule == damage.rule and all(
        wanted in got
        for wanted, got in (
            (damage.where, finding.where),
            (damage.happened, finding.happened),
            (damage.expected, finding.expected),
            (damage.found, finding.found),
        )
    )


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_by_its_check(small: SmallLake, name: str) -> None:
    damage = DAMAGES[name]
    damage.do(small)
    proof = prove(small)
    told = findings(proof, damage.check)
    assert not proof.proven
    assert any(_told(damage, finding) for finding in told), [str(f) for f in told]


def test_an_honest_check_stays_quiet_beside_a_damaged_one(small: SmallLake) -> None:
    _delete(small, _live_file(small).key)
    broken = [check.name for check in prove(small).checks if not check.proven]
    assert broken == ["objects"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "not canonical JSON"),
        (b"", "not canonical JSON"),
        (b'{"format":"tallystick.root/2"}', "written by another version of tallystick"),
        (b'{"format":"something"}', "format is 'something'"),
    ],
)
def test_a_root_that_cannot_be_read_is_refused_not_judged(
    small: SmallLake, body: bytes, told: str
) -> None:
    small.overwrite(keys.ROOT, body)
    with pytest.raises(Corrupt, match=told):
        prove(small)


def test_a_lake_without_a_root_is_refused(small: SmallLake) -> None:
    _delete(small, keys.ROOT)
    with pytest.raises(RootVanished, match=r"there is no memory://memory/root\.json"):
        prove(small)


def test_many_counter_examples_are_counted_and_the_first_kept() -> None:
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


# ---------------------------------------------------------------- rows


def _rewrite(small: SmallLake, file: FileReport, edit: Callable[[pa.Table], pa.Table]) -> None:
    """Change a file's rows; its size and ETag change with them, which the objects check says."""
    stored = small.store.get(file.key)
    assert stored is not None
    rows = edit(pq.read_table(pa.BufferReader(stored.body)))
    into = BytesIO()
    pq.write_table(rows, into)
    small.overwrite(file.key, into.getvalue())


def _first_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def _moved(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("_offset")
    return rows.set_column(at, rows.schema.field(at), pc.add(rows.column("_offset"), 1000))


def _unknown_offset(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("_offset")
    return rows.set_column(
        at, "_offset", pa.array([None, *rows.column("_offset").to_pylist()[1:]], pa.int64())
    )


def _dead_ones_too(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("_offset")
    dead = pa.array([2], pa.int64())  # the dead letter of day 1 in partition 0
    return pa.concat_tables([rows, rows.slice(0, 1).set_column(at, rows.schema.field(at), dead)])


@pytest.mark.parametrize(
    ("edit", "happened", "expected", "found"),
    [
        (_first_twice, f"1 offsets of {TOPIC}[0] have several rows", "offset 0 once", "2 times"),
        (_first_twice, "rows in the file and in its report", "2", "3"),
        (_moved, f"2 rows of {TOPIC}[0]", "offsets inside [0, 3)", "1000"),
        (_moved, "lineage in the file and in its report", "0, 1)", "1000, 1001)"),
        (_dead_ones_too, f"1 offsets of {TOPIC}[0]", "a row or a dead letter", "offset 2 is both"),
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
    small: SmallLake, edit: Callable[[pa.Table], pa.Table], happened: str, expected: str, found: str
) -> None:
    _rewrite(small, _live_file(small), edit)
    told = findings(prove(small, deep=True, demands=EVENTS), "rows")
    assert any(
        happened in f.happened and expected in f.expected and found in f.found for f in told
    ), [str(f) for f in told]


def test_dead_letters_are_counted_by_their_rows(small: SmallLake) -> None:
    _rewrite(small, _live_file(small, "dead_letters"), _moved)
    told = findings(prove(small, deep=True), "rows")
    assert any(f.happened == f"dead letters of {TOPIC}[0]" or "rows of" in f.happened for f in told)


def test_a_file_that_is_no_parquet_is_found(small: SmallLake) -> None:
    small.overwrite(_live_file(small).key, b"not Parquet at all")
    told = findings(prove(small, deep=True), "rows")
    assert told[0].happened == "the data file's content"


def test_several_rows_of_one_record_are_fine_where_that_is_said(small: SmallLake) -> None:
    _rewrite(small, _live_file(small), _first_twice)
    told = findings(prove(small, deep=True, demands=Demands(repeats=frozenset({"events"}))), "rows")
    assert not any("several rows" in f.happened for f in told)


def test_fewer_rows_than_records_are_fine_unless_every_record_is_demanded() -> None:
    small = SmallLake()
    small.run(days(1, 2), keep=lambda record: record.value.get("n") != 1)
    proof = prove(small, deep=True)
    assert proof.proven
    remarks = next(c for c in proof.checks if c.name == "rows").remarks
    assert "events: 3 rows of 3 offsets; 5 decoded records, not every one" in remarks
    told = findings(prove(small, deep=True, demands=EVENTS), "rows")
    assert [(f.expected, f.found) for f in told] == [("2", "1"), ("3", "2")]


def test_a_demand_about_an_unknown_table_is_refused(small: SmallLake) -> None:
    with pytest.raises(InvalidRequest, match="no table 'flights'"):
        prove(small, deep=True, demands=Demands(every_record=frozenset({"flights"})))


def test_intervals_of_any_length_are_proven() -> None:
    small = SmallLake()
    small.run(days(1, 2), **{"from": "2013-01-01T00:00:00", "to": "2013-01-01T01:30:00"})
    small.run(days(1, 2), run="scheduled__rest")
    assert [
        e.interval.end - e.interval.start for e in small.lake.require().whole_ledger().entries
    ] == [
        timedelta(minutes=90),
        timedelta(minutes=1350),
    ]
    assert prove(small, deep=True, demands=EVENTS).proven
