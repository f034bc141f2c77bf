"""Bytes on S3 are an API: every stored value round-trips, matches its golden file, and refuses unknown fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.codec import StoredObject, StoredValue
from tallystick.format.columns import TableColumn
from tallystick.format.interval import Interval, Request
from tallystick.format.offsets import Position
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import Boundary, Committed, Entry, Granted, Page, PageRef, Totals
from tallystick.format.plan import Plan, PlannedRange, PlannedTopic
from tallystick.format.registrations import Registration
from tallystick.format.report import ColumnStatistics, Lineage, RangeAccount, account_totals
from tallystick.format.root import RootTable, RootTopic, first_root
from tallystick.format.upkeep import Upkeep
from unit.format import samples
from unit.format.samples import (
    COLUMNS,
    FILE_KEY,
    SAMPLE_ADOPTED,
    SAMPLE_CALL,
    SAMPLE_CALLS,
    SAMPLE_CLAIM,
    SAMPLE_COMPACTION,
    SAMPLE_FILE,
    SAMPLE_OUTCOME,
    SAMPLE_OUTCOME_ERROR,
    SAMPLE_PAGE,
    SAMPLE_PAGE_PENDING,
    SAMPLE_PLAN,
    SAMPLE_PLAN_ACCEPTING,
    SAMPLE_PLAN_PARQUET_2,
    SAMPLE_RECORD,
    SAMPLE_RECORD_COMPACTING,
    SAMPLE_REPORT,
    SAMPLE_REPORT_LOOKBACK,
    SAMPLE_ROOT,
    SAMPLE_WITH_OUTPUTS,
    at,
    committed,
    entry,
    granted,
    interval,
    plan_key,
    request,
    uuid,
)

GOLDEN = Path(__file__).parent / "golden"
STORED: dict[str, StoredObject] = {
    "root": SAMPLE_ROOT,
    "adopted root": SAMPLE_ADOPTED,
    "root with outputs": SAMPLE_WITH_OUTPUTS,
    "page with outputs": SAMPLE_PAGE_PENDING,
    "page": SAMPLE_PAGE,
    "plan": SAMPLE_PLAN,
    "plan that accepts dead letters": SAMPLE_PLAN_ACCEPTING,
    "plan of files of Parquet 2": SAMPLE_PLAN_PARQUET_2,
    "report": SAMPLE_REPORT,
    "report with a lookback": SAMPLE_REPORT_LOOKBACK,
    "record": SAMPLE_RECORD,
    "record of compactions": SAMPLE_RECORD_COMPACTING,
    "compaction": SAMPLE_COMPACTION,
    "calls": SAMPLE_CALLS,
    "call": SAMPLE_CALL,
    "claim": SAMPLE_CLAIM,
    "outcome": SAMPLE_OUTCOME,
    "outcome with an error": SAMPLE_OUTCOME_ERROR,
}
# One file per format: the fullest sample of each kind of object.
FILES = {
    "root with outputs": "root-1.json",
    "page with outputs": "page-1.json",
    "plan that accepts dead letters": "plan-1.json",
    "report with a lookback": "report-1.json",
    "record": "record-1.json",
    "compaction": "compaction-1.json",
    "calls": "calls-1.json",
    "call": "call-1.json",
    "claim": "claim-1.json",
    "outcome": "outcome-1.json",
}
SHARED = SAMPLE_COMPACTION.files[0]
assert SHARED.order is not None
ORDER = SHARED.order
OTHER_ORDER = keys.row_order("flights", uuid(21), "0", uuid(23))
SAMPLE_GRANT = SAMPLE_WITH_OUTPUTS.compacting[0]
stored = pytest.mark.parametrize("name", sorted(STORED))


@pytest.mark.parametrize("name", sorted(FILES))
def test_golden_bytes_are_what_this_version_writes_and_reads(name: str) -> None:
    value, golden = STORED[name], (GOLDEN / FILES[name]).read_bytes()
    assert value.encode() == golden, (
        "the stored format changed: raise its version, and keep reading the old one"
    )
    assert type(value).decode(golden, where=name) == value


def test_every_format_has_one_golden_file() -> None:
    kinds = {
        kind
        for kind in StoredObject.__subclasses__()
        if kind.__module__.startswith("tallystick.format")
    }
    formats = {kind.FORMAT.removeprefix("tallystick.").replace("/", "-") for kind in kinds}
    assert {path.stem for path in GOLDEN.iterdir()} == formats
    assert {STORED[name].FORMAT for name in FILES} == {kind.FORMAT for kind in kinds}


@stored
def test_stored_objects_round_trip(name: str) -> None:
    value = STORED[name]
    assert type(value).decode(value.encode(), where=name) == value


@pytest.mark.parametrize(
    ("sample", "path"),
    [
        (SAMPLE_ROOT, ("topics", "flights", "closed")),
        (SAMPLE_ROOT, ("outputs",)),
        (SAMPLE_ROOT, ("pending",)),
        (SAMPLE_PLAN, ("accept_dead_letters",)),
        (SAMPLE_REPORT, ("lookback",)),
        (SAMPLE_PAGE, ("entries", 0, "outputs")),
        (SAMPLE_PAGE, ("entries", 0, "committed", "lookback")),
    ],
)
def test_a_field_is_written_even_if_it_has_its_default(
    sample: StoredObject, path: tuple[Any, ...]
) -> None:
    """One format per object: an absent value is written as empty, false or null, and never left out."""
    assert not _at(json.loads(sample.encode()), path)
    cut = json.loads(sample.encode())
    del _at(cut, path[:-1])[path[-1]]
    assert f"missing field {path[-1]!r}" in refused(type(sample), cut, "here")


def test_a_plan_that_replaces_nothing_round_trips() -> None:
    plan = replace(SAMPLE_PLAN, replaces=None)
    assert Plan.decode(plan.encode(), where="plan") == plan


def refused(kind: type[StoredObject], value: Any, name: str) -> str:
    """Return why `value`, in canonical spelling, is refused. The spelling itself is never the reason."""
    body = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    with pytest.raises(Corrupt) as caught:
        kind.decode(body, where=name)
    assert "another encoding" not in caught.value.message
    return caught.value.message


@stored
def test_every_field_is_required_and_unknown_fields_are_refused(name: str) -> None:
    value = STORED[name]
    whole = json.loads(value.encode())
    for path in list(_paths(whole)):
        if _may_be_left_out(path):
            continue
        cut = json.loads(value.encode())
        _at(cut, path[:-1]).pop(path[-1])
        refused(type(value), cut, name)
    for path in [(), *(p for p in _paths(whole) if isinstance(_at(whole, p), dict))]:
        if path and path[0] == "spec":
            continue  # the pipeline's own format: tallystick.pipeline reads it
        if _is_map(path):
            continue
        more = json.loads(value.encode())
        _at(more, path)["surprise"] = 1
        refused(type(value), more, name)


@pytest.mark.parametrize("name", ["root with outputs", "record", "plan that accepts dead letters"])
def test_a_later_field_is_left_out_if_and_only_if_it_has_its_default(name: str) -> None:
    """Objects of before the field keep their bytes, and each value has one stored form."""
    value = STORED[name]
    whole = json.loads(value.encode())
    found = [path for path in _paths(whole) if _may_be_left_out(path)]
    assert found
    for path in found:
        cut = json.loads(value.encode())
        stored = _at(cut, path[:-1]).pop(path[-1])
        body = json.dumps(cut, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        without = type(value).decode(body, where=name)
        assert without.encode() == body
        default = Upkeep().to_json()
        defaults = {**default, "upkeep": default, "reader_grace": None, "parquet_version": 1}
        cut = json.loads(value.encode())
        _at(cut, path[:-1])[path[-1]] = defaults[path[-1]]
        assert stored != _at(cut, path)
        assert "expected no field with its default" in refused(type(value), cut, name)


def _may_be_left_out(path: tuple[Any, ...]) -> bool:
    if path[-1] in ("upkeep", "reader_grace"):
        return True
    omitted = ("file_size_bytes", "compression", "parquet_version")
    return len(path) == 3 and path[0] == "tables" and path[-1] in omitted


def _is_map(path: tuple[Any, ...]) -> bool:
    # Of the root and of an entry, `outputs` is a map of names too, and so is `compactions` of a commit.
    return bool(path) and path[-1] in (
        "tables",
        "topics",
        "added",
        "dropped",
        "outputs",
        "compactions",
        "positions",
        "registrations",
    )


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Yield the paths of all fields of objects with fixed fields; the keys of maps vary."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not _is_map(path) and not (path and path[0] == "spec"):
                yield (*path, key)
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _paths(inner, (*path, i))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


@stored
def test_every_field_has_one_type(name: str) -> None:
    value = STORED[name]
    whole = json.loads(value.encode())
    for path in list(_paths(whole)):
        wrong = json.loads(value.encode())
        _at(wrong, path[:-1])[path[-1]] = (
            {"odd": [True]} if not isinstance(_at(whole, path), dict) else 7
        )
        refused(type(value), wrong, name)


@stored
@pytest.mark.parametrize("version", ["4", "0", "1.1"])
def test_another_version_is_refused_by_name(name: str, version: str) -> None:
    value = STORED[name]
    body = re.sub(rb'("tallystick\.[a-z]+)/[123]"', rb'\1/%b"' % version.encode(), value.encode())
    assert body != value.encode()
    with pytest.raises(Corrupt, match="another version of tallystick"):
        type(value).decode(body, where=name)


@given(samples.pages())
def test_pages_round_trip(page: Page) -> None:
    assert Page.decode(page.encode(), where="page") == page


@given(samples.accounts())
def test_accounts_round_trip_and_add_up(account: RangeAccount) -> None:
    assert RangeAccount.from_json(account.to_json(), "a") == account
    assert sum(account_totals((account, account)).values()) == 2 * (account.end - account.start)


@given(samples.requests)
def test_requests_round_trip(value: Request) -> None:
    assert Request.from_json(value.to_json(), "r") == value


@given(samples.totals)
def test_totals_round_trip(value: Totals) -> None:
    assert Totals.from_json(value.to_json(), "t") == value
    assert value.offsets == sum(value.to_json())
    assert Totals.sum_of([value, Totals(), value]).to_json() == [2 * n for n in value.to_json()]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Interval, ["2013-01-01T00:00:00.000Z"]),
        (Interval, "x"),
        (Interval, ["2013-01-02T00:00:00.000Z", "2013-01-01T00:00:00.000Z"]),
        (Interval, ["2013-01-01", "2013-01-02"]),
        (Request, ["d", "r"]),
        (Request, ["", "r", 0]),
        (Request, ["d", "r", -1]),
        (Request, ["d", "r\n", 0]),
        (ColumnStatistics, [1, 2, 3]),
        (ColumnStatistics, {}),
        (ColumnStatistics, [1, 2, 3, 4, "zz", None]),
        (ColumnStatistics, [1, 2, 3, -4, None, None]),
        (Lineage, ["t", 1, 2]),
        (Lineage, 3),
        (Lineage, ["t", 0, 5, 4]),
        (Lineage, ["t", -1, 4, 5]),
        (PageRef, ["2013-01-01T00:00:00.000Z", "x"]),
        (PageRef, 1),
        (
            PageRef,
            ["2013-01-01T00:00:00.000Z", "2013-01-01T00:00:00.000Z", "ledger/x.json"],
        ),
        (Totals, [1, 2]),
        (Totals, [1, 2, 3, 4, 5, -6]),
    ],
)
def test_small_values_refuse_other_shapes(kind: type[StoredValue], value: Any) -> None:
    with pytest.raises(Corrupt, match=r"^here"):
        kind.from_json(value, "here")


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("page", ["boundaries", 0, "positions", "t"], 5),
        ("page", ["boundaries", 0, "positions", "t"], [[1]]),
        ("record", ["intervals", 0, "added", "flights"], "x"),
        ("report", ["files", 0, "partition"], [1.5]),
        ("report", ["files", 0, "partition"], [True]),
        ("root", ["pages", 0], ["x"]),
        ("root", ["topics", "flights", "origins"], [-1]),
        ("root with outputs", ["outputs", "feed"], ""),
        ("root with outputs", ["outputs", "feed"], "a\n"),
        ("root with outputs", ["outputs", "feed"], "x" * 1001),
        ("root with outputs", ["pending"], ["ledger/x.json"]),
        ("page with outputs", ["entries", 0, "outputs", "feed", "wanted"], "x"),
        ("page with outputs", ["entries", 0, "outputs", "invoices", "published"], samples.uuid(1)),
        ("root", ["tables", "flights", "metadata"], "tables/other/metadata/x.json"),
        ("plan", ["topics", 0, "ranges", 0], [1, 0, 0, 0, 0]),
    ],
)
def test_a_nested_value_is_refused_with_the_name_of_its_object(
    name: str, path: list[Any], value: Any
) -> None:
    sample = STORED[name]
    whole = json.loads(sample.encode())
    _at(whole, tuple(path[:-1]))[path[-1]] = value
    assert name in refused(type(sample), whole, name)


def _twice(value: Any) -> tuple[Any, Any]:
    return (value, value)


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: Interval(start=at(1), end=at(1)), "expected an interval"),
        (lambda: Totals(records=-1), "negative"),
        (
            lambda: RangeAccount(topic="t", partition=0, start=0, end=2, records=1),
            "expected an account of 2 offsets, found 1",
        ),
        (lambda: RangeAccount(topic="t", partition=-1, start=0, end=0), "negative"),
        (
            lambda: RangeAccount(
                topic="t", partition=0, start=0, end=0, records=1, dead_letters=-1
            ),
            "negative",
        ),
        (
            lambda: ColumnStatistics(id=1, size_bytes=1, values=1, nulls=1, lower="zz"),
            "hexadecimal|non-hex",
        ),
        (lambda: Lineage(topic="t", partition=0, first=2, last=1), "lineage"),
        (lambda: replace(SAMPLE_FILE, rows=0), "bytes, rows"),
        (lambda: replace(SAMPLE_FILE, etag=""), "bytes, rows"),
        (
            lambda: replace(SAMPLE_FILE, columns=_twice(SAMPLE_FILE.columns[0])),
            "one statistic per column id",
        ),
        (lambda: replace(SAMPLE_REPORT, files=_twice(SAMPLE_FILE)), "found a file twice"),
        (
            lambda: PlannedRange(start=0, end=5, start_epoch=0, end_epoch=0, readable_from=6),
            "readable_from",
        ),
        (
            lambda: PlannedTopic(name="t", topic_id="", cluster_id="c", compacted=False, ranges=()),
            "topic id",
        ),
        (lambda: replace(SAMPLE_PLAN, key=plan_key(1, 2)), "expected a key of"),
        (lambda: replace(SAMPLE_PLAN, generation=0), "expected a generation"),
        (lambda: replace(SAMPLE_PLAN, replaces="x"), "expected the key of a plan"),
        (
            lambda: replace(SAMPLE_PLAN, topics=_twice(SAMPLE_PLAN.topics[0])),
            "found a topic twice",
        ),
        (
            lambda: replace(SAMPLE_PLAN, tables=_twice(SAMPLE_PLAN.tables[0])),
            "found a table twice",
        ),
        (
            lambda: Granted(plan=plan_key(0, 1), request=request(), generation=0),
            "expected a generation",
        ),
        (lambda: replace(committed(0, 1), generation=0), "expected a generation"),
        (
            lambda: Entry(interval=interval(0, 1), generation=1, granted=None, committed=None),
            "granted, committed",
        ),
        (lambda: entry(0, 1, grant=granted(1, 2)), "expected a plan of this interval"),
        (
            lambda: replace(entry(0, 1, commit=committed(0, 1)), generation=0),
            "expected at most generation 0, found 1",
        ),
        (lambda: entry(0, 1, grant=granted(0, 1), served=(request(),) * 9), "expected at most 8"),
        (
            lambda: entry(0, 1, grant=granted(0, 1), outputs={"feed": OutputSlot(wanted=uuid(1))}),
            "the interval is not committed",
        ),
        (lambda: Page(boundaries=()), "at least one boundary"),
        (lambda: replace(SAMPLE_PAGE, entries=SAMPLE_PAGE.entries[::-1]), "sorted"),
        (
            lambda: replace(SAMPLE_PAGE, boundaries=SAMPLE_PAGE.boundaries[1:]),
            "each entry beginning at one",
        ),
        (lambda: RootTopic(topic_id="t", cluster_id="c", origins=(-1,)), "found a negative origin"),
        (
            lambda: RootTable(
                uuid=uuid(1),
                metadata=None,
                columns=COLUMNS,
                partition_by=(),
                dropped=COLUMNS[:1],
            ),
            "expected unique column ids, also of dropped columns",
        ),
        (
            lambda: RootTable(
                uuid=uuid(1),
                metadata=None,
                columns=COLUMNS,
                partition_by=(),
                upkeep=Upkeep(sort_by=["origin", "gone"]),
            ),
            "expected sort_by to name columns, found 'gone'",
        ),
        (
            lambda: replace(SAMPLE_PLAN.tables[0], compression="lz4"),
            "one of zstd, snappy, gzip, uncompressed, found 134217728 and 'lz4'",
        ),
        (
            lambda: replace(SAMPLE_PLAN.tables[0], parquet_version=3),
            "expected Parquet version 1 or 2, found 3",
        ),
        (
            lambda: RootTable(uuid="x", metadata=None, columns=(), partition_by=()),
            "expected a uuid",
        ),
        (
            lambda: RootTable(
                uuid=uuid(1), metadata=None, columns=_twice(COLUMNS[0]), partition_by=()
            ),
            "expected unique column",
        ),
        (lambda: replace(SAMPLE_ROOT, version=0), "expected a version"),
        (lambda: replace(SAMPLE_ROOT, record=keys.record(9, uuid(1))), "or earlier, found"),
        (lambda: replace(SAMPLE_ROOT, pages=_twice(SAMPLE_ROOT.pages[0])), "sorted by time"),
        (
            lambda: replace(SAMPLE_WITH_OUTPUTS, pending=(keys.page(uuid(98)),)),
            "pages of the index",
        ),
        (lambda: replace(SAMPLE_WITH_OUTPUTS, outputs={}), "without an output"),
        (lambda: replace(SAMPLE_RECORD, version=9), "expected the key of a record of version 9"),
        (lambda: replace(SAMPLE_RECORD, parent=SAMPLE_RECORD.key), "expected a parent before"),
        (lambda: replace(SAMPLE_RECORD, intervals=()), "commits intervals or publishes"),
        (
            lambda: replace(SAMPLE_RECORD, compactions=(SAMPLE_COMPACTION.key,)),
            "commits intervals or publishes",
        ),
        (
            lambda: replace(SAMPLE_RECORD, compacted=keys.record(2, uuid(10))),
            "an earlier record with compactions",
        ),
        (
            lambda: replace(SAMPLE_RECORD_COMPACTING, compacted=SAMPLE_RECORD.key),
            "an earlier record with compactions",
        ),
        (
            lambda: replace(SAMPLE_WITH_OUTPUTS, compacting=_twice(SAMPLE_GRANT)),
            "each granted compaction once",
        ),
        (
            lambda: replace(
                SAMPLE_WITH_OUTPUTS, outputs={**SAMPLE_WITH_OUTPUTS.outputs, "old": "x"}
            ),
            "'old' as an output or a registration, found both",
        ),
        (lambda: replace(SAMPLE_WITH_OUTPUTS, record=None), "expected None or an earlier record"),
        (
            lambda: replace(SAMPLE_WITH_OUTPUTS, record=keys.record(2, uuid(25))),
            "or an earlier record, found commits/000000000003",
        ),
        (lambda: Registration(target=""), "printable characters"),
        (lambda: Registration(target="x", registered="x"), "the key of a commit record"),
        (lambda: replace(SAMPLE_COMPACTION, files=()), "with a shared file"),
        (lambda: replace(SAMPLE_COMPACTION, files=_twice(SHARED)), "found a file twice"),
        (
            lambda: replace(SAMPLE_COMPACTION, key=keys.compaction("delays", uuid(20))),
            "a shared file of compaction",
        ),
        (
            lambda: replace(SHARED, runs=SHARED.runs[:1]),
            "expected the 8 rows of its runs, found 11",
        ),
        (
            lambda: replace(
                SAMPLE_COMPACTION,
                files=(replace(SHARED, order=replace(ORDER, key=OTHER_ORDER)),),
            ),
            "a row order of compaction",
        ),
        (lambda: replace(ORDER, sorted_by=()), "columns to sort by"),
        (lambda: replace(ORDER, etag=""), "an ETag"),
        (lambda: replace(ORDER, key="x"), "the key of a row order"),
        (lambda: replace(SHARED.runs[0], rows=0), "at least one row"),
        (lambda: replace(SHARED.runs[0], key="x"), "the key of a data file"),
    ],
)
def test_an_inconsistent_value_is_refused(build: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        build()


def test_the_runs_of_a_shared_file_have_their_positions_plans_and_intervals() -> None:
    placed = list(SHARED.placed())
    assert [(p.first, p.end) for p in placed] == [(0, 8), (8, 11)]
    assert [p.run.plan for p in placed] == [plan_key(0, 1), plan_key(1, 2)]
    assert SAMPLE_COMPACTION.intervals == {interval(0, 1), interval(1, 2)}
    assert SAMPLE_COMPACTION.runs == SHARED.runs
    assert (SAMPLE_COMPACTION.table, SAMPLE_COMPACTION.id) == ("flights", uuid(20))


def test_derived_properties_of_values() -> None:
    assert interval(0, 2).overlaps(interval(1, 3))
    assert not interval(0, 1).overlaps(interval(1, 2))
    assert interval(0, 3).covers(interval(1, 2))
    assert str(interval(0, 1)) == "[2013-01-01T00:00:00.000Z, 2013-01-01T01:00:00.000Z)"
    assert str(request()) == "d / r1"
    assert str(request(clear=2)) == "d / r1 (clear 2)"
    assert request("r1", 0).same_run(request("r1", 5))
    assert not request("r1").same_run(request("r2"))
    assert SAMPLE_REPORT.rows("flights") == 8
    assert SAMPLE_REPORT.rows("other") == 0
    assert SAMPLE_PLAN.table("flights") == SAMPLE_PLAN.tables[0]
    assert SAMPLE_PLAN.table("other") is None
    assert not SAMPLE_PLAN.empty
    assert SAMPLE_PLAN.topics[0].ranges[0].lost == 2
    assert SAMPLE_PLAN.topics[0].ranges[0].readable.length == 8
    assert SAMPLE_PAGE.since == at(0)
    assert SAMPLE_PAGE.until == at(3)
    assert SAMPLE_ROOT.origins == {"flights": (0, 0)}
    assert first_root("flights", uuid(1)).version == 1
    assert first_root("flights", uuid(1)).first_name == "flights"
    assert SAMPLE_ROOT.first_name == "old-flights"
    assert Boundary(at=at(0), positions={}).position("t", 1, {"t": (3, 4)}) == Position(offset=4)
    assert (
        PageRef(since=at(0), until=at(1), key=keys.page(uuid(1))).to_json()[2]
        == f"ledger/{uuid(1)}.json"
    )
    assert isinstance(committed(0, 1), Committed)
    assert FILE_KEY.endswith(".parquet")
    assert (
        TableColumn(id=1, name="a", type="decimal(9,2)", required=False).to_json()["type"]
        == "decimal(9,2)"
    )
