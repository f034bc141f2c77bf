"""A declaration changes while a lake has rows: readers see all rows, verify proves them, old plans are refused."""

from __future__ import annotations

import logging
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from support.fake_output import Declared, FakeOutput, Wire
from support.fakes import stage
from support.small_lake import TOPIC, SmallLake, day, days, pipeline
from tallystick.errors import IdentityChanged, InvalidPipeline, SchemaChanged
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.lake import Lake
from tallystick.operations.commit import commit
from tallystick.operations.gc import collect
from tallystick.operations.lookback import read_lookback
from tallystick.operations.publish import publish
from tallystick.operations.verify import Demands, verify
from tallystick.pipeline import Column, Lookback, Pipeline, Table
from tallystick.store.memory import MemoryStore
from tallystick.tables.reach import IcebergReach
from tallystick.tables.reading import live_files, static_table
from tallystick.tables.rows import StoredRows

EVERY_EVENT = Demands(every_record=frozenset({"events"}))
BEFORE = (Column("n", "int"), Column("kind", "string", required=False))


def events(small: SmallLake, *columns: Column, **table: Any) -> None:
    """Deploy a pipeline whose table of events has these columns."""

    def declared(warehouse: str) -> Pipeline:
        first = pipeline(warehouse)
        changed = Table("events", columns=list(columns), **table)
        return replace(first, tables=[changed, *first.tables[1:]])

    small.declared = declared


@pytest.fixture
def small() -> SmallLake:
    """Return a lake with day 1, whose number is an int."""
    lake = SmallLake()
    events(lake, *BEFORE)
    lake.run(days(1, 2))
    return lake


def rows(small: SmallLake, table: str = "events", *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of a table's rows, as PyIceberg reads them."""
    found = small.lake.load_existing().root.tables[table]
    read = static_table(small.store, found.metadata or "").scan().to_arrow()
    return sorted(zip(*(read.column(name).to_pylist() for name in columns), strict=True), key=repr)


def columns(small: SmallLake) -> dict[str, tuple[int, str, bool]]:
    """Return the columns of the table of events, as its Iceberg metadata has them."""
    found = small.lake.load_existing().root.tables["events"]
    schema = static_table(small.store, found.metadata or "").metadata.schema()
    return {f.name: (f.field_id, str(f.field_type), f.required) for f in schema.fields}


def proven(small: SmallLake) -> None:
    proof = verify(small.lake, deep=True, demands=EVERY_EVENT)
    assert proof.proven, [str(f) for c in proof.checks for f in c.findings]


def staged_plan(small: SmallLake, interval: Interval) -> tuple[keys.PlanKey, keys.ReportKey]:
    """Plan and stage an interval, and do not commit it."""
    (planned,) = small.plan(interval).intervals
    return planned.plan, keys.check_report(stage(small.lake, small.log, planned.plan))


DAY_1 = [(hour,) for partition in range(2) for hour in range(2 + partition)]


# ---------------------------------------------------------------- columns


def test_a_wider_type_keeps_the_rows_and_replaces_them_in_its_own_type(small: SmallLake) -> None:
    first = small.data_files("events")
    events(small, Column("n", "long"), BEFORE[1])
    large = 2**40
    small.log.append(TOPIC, 0, day(7), n=large, kind="large")
    small.run(days(7, 8))
    assert columns(small)["n"] == (1, "long", True)
    assert rows(small, "events", "n") == sorted([*DAY_1, (large,)], key=repr)
    assert set(first) < set(small.data_files("events"))
    proven(small)
    small.run(days(1, 2), clear=1)  # the declaration has changed, so a clear replaces the rows
    assert rows(small, "events", "n") == sorted([*DAY_1, (large,)], key=repr)
    live = {f.key for f in live_files(small.store, small.root()["tables"]["events"]["metadata"])}
    assert not live & set(first)
    proven(small)


def test_a_required_column_becomes_optional(small: SmallLake) -> None:
    events(small, Column("n", "int", required=False), BEFORE[1])
    small.log.append(TOPIC, 0, day(7), kind="no number")
    small.run(days(7, 8))
    assert columns(small)["n"] == (1, "int", False)
    assert rows(small, "events", "n") == sorted([*DAY_1, (None,)], key=repr)
    proven(small)


def test_a_renamed_column_is_read_under_its_new_name(small: SmallLake) -> None:
    renamed = Column("number", "int", renamed_from="n", source="n")
    events(small, renamed, BEFORE[1])
    small.run(days(2, 3))
    assert columns(small)["number"] == (1, "int", True)
    assert "n" not in columns(small)
    assert rows(small, "events", "number") == sorted(DAY_1 * 2, key=repr)
    proven(small)
    events(small, replace(renamed, renamed_from=None), BEFORE[1])
    small.run(days(3, 4))
    assert rows(small, "events", "number") == sorted(DAY_1 * 3, key=repr)
    proven(small)
    events(small, *BEFORE)
    with pytest.raises(SchemaChanged, match="'n' was renamed to 'number' in the lake"):
        small.run(days(4, 5))


def test_a_dropped_column_leaves_and_comes_back_as_another(small: SmallLake) -> None:
    then = small.root()["tables"]["events"]["metadata"]
    events(small, BEFORE[0], dropped=["kind"])
    small.run(days(2, 3))
    assert set(columns(small)) == {"n", "_topic", "_kafka_partition", "_offset", "_timestamp"}
    proven(small)
    events(small, *BEFORE)
    small.run(days(3, 4))
    assert columns(small)["kind"] == (7, "string", False)
    kinds = {kind for (kind,) in rows(small, "events", "kind")}
    assert kinds == {None, "kind 0", "kind 1"}
    proven(small)
    old = static_table(small.store, then).scan().to_arrow().column("kind").to_pylist()
    assert set(old) == {"kind 0", "kind 1"}


def test_a_column_that_is_only_left_out_stays_and_is_logged(
    small: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    events(small, BEFORE[0])
    with caplog.at_level(logging.INFO, "tallystick.operations.plan.tables"):
        small.run(days(2, 3))
    (warning,) = [r.getMessage() for r in caplog.records]
    assert "column 'kind' is in the lake and not declared" in warning
    assert "dropped=['kind'] removes it" in warning
    assert columns(small)["kind"] == (2, "string", False)
    proven(small)


def test_each_change_is_logged_once(small: SmallLake, caplog: pytest.LogCaptureFixture) -> None:
    events(
        small,
        Column("number", "long", renamed_from="n", source="n"),
        BEFORE[1],
        partition_by=["kind"],
    )
    with caplog.at_level(logging.INFO, "tallystick.operations.plan.tables"):
        small.run(days(2, 3))
        small.run(days(3, 4))
    assert [r.getMessage() for r in caplog.records] == [
        "table events: column 'n' is renamed to 'number'",
        "table events: column 'number' is widened from int to long",
        "table events: new files are partitioned by kind",
    ]


@pytest.mark.parametrize(
    ("changed", "table", "message"),
    [
        ([Column("n", "long"), BEFORE[1]], {}, "expected n int .* found n long in the lake"),
        (
            [Column("m", "int", renamed_from="n", source="n"), BEFORE[1]],
            {},
            "expected n int .* found m int in the lake",
        ),
        (
            [BEFORE[0]],
            {"dropped": ["kind"]},
            "expected kind string .* found no column with that id",
        ),
        (BEFORE, {"partition_by": ["kind"]}, "expected partitioning by none .* found kind in"),
    ],
)
def test_a_plan_from_before_a_change_is_refused_and_planned_again(
    small: SmallLake, changed: list[Column], table: dict[str, Any], message: str
) -> None:
    plan_key, report = staged_plan(small, days(2, 3))
    events(small, *changed, **table)
    small.run(days(3, 4))
    with pytest.raises(SchemaChanged, match=message) as refused:
        commit(small.lake, small.tables, plan_key=plan_key, report_key=report)
    assert "clear this run's plan task to replan with the current" in refused.value.hint
    small.run(days(2, 3), clear=1)
    proven(small)


def test_columns_and_rules_of_all_types_widen(small: SmallLake) -> None:
    wide = SmallLake()
    before = [
        Column("n", "int"),
        Column("f", "float", required=False),
        Column("d", "decimal(4,2)", required=False),
    ]
    events(wide, *before, partition_by=["bucket(4, n)", "truncate(10, d)"])
    wide.log.append(TOPIC, 0, day(7), n=-7, f=0.5, d=Decimal("-12.34"))
    wide.run(days(7, 8))
    after = [
        Column("n", "long"),
        Column("f", "double", required=False),
        Column("d", "decimal(20,2)", required=False),
    ]
    events(wide, *after, partition_by=["bucket(4, n)", "truncate(10, d)"])
    wide.log.append(TOPIC, 0, day(8), n=2**40, f=0.1, d=Decimal("123456789012345678.90"))
    wide.run(days(8, 9))
    assert rows(wide, "events", "n", "f", "d") == [
        (-7, 0.5, Decimal("-12.34")),
        (2**40, 0.1, Decimal("123456789012345678.90")),
    ]
    table = static_table(wide.store, wide.root()["tables"]["events"]["metadata"])
    assert len(table.metadata.partition_specs) == 1
    for condition, number in (("n = -7", -7), ("d < 0", -7), ("f > 0.4", -7), ("n > 5", 2**40)):
        assert table.scan(condition).to_arrow().column("n").to_pylist() == [number]
    proven(wide)
    wide.run(days(7, 8), clear=1)
    assert len(rows(wide, "events", "n")) == 2
    proven(wide)


def test_sums_widen(small: SmallLake) -> None:
    """The rows of a table with `combine` are replaced and read across the change of their type."""
    first = small.declared

    def deploy(kind: str) -> None:
        def declared(warehouse: str) -> Pipeline:
            found = first(warehouse)
            sums = Table(
                "sums",
                columns=[Column("kind", "string", required=False), Column("n", kind)],
                keys=["kind"],
                combine={"n": "sum"},
            )
            return replace(found, tables=[*found.tables, sums])

        small.declared = declared

    deploy("int")
    small.run(days(2, 3))
    deploy("long")
    small.run(days(3, 4))
    assert rows(small, "sums", "kind", "n") == [
        ("kind 0", 2),
        ("kind 0", 2),
        ("kind 1", 2),
        ("kind 1", 2),
    ]
    proven(small)


def test_a_lookback_reads_the_rows_from_before_a_rename(small: SmallLake) -> None:
    events(small, Column("m", "long", renamed_from="n", source="n"), BEFORE[1])
    declared = small.declared
    back = Lookback(tables=["events"], back=None, uncommitted="stale")
    small.declared = lambda warehouse: replace(declared(warehouse), lookback=back)
    (planned,) = small.plan(days(2, 3)).intervals
    plan = small.lake.plan(planned.plan)
    assert plan is not None
    found = read_lookback(small.lake, plan, back)
    assert [p.interval for p in found.parts] == [days(1, 2)], "usable: the ids are the same"


# ---------------------------------------------------------------- partitioning


def test_new_files_have_the_new_partitioning_and_old_ones_keep_theirs(small: SmallLake) -> None:
    events(small, *BEFORE, partition_by=["truncate(4, kind)"])
    small.run(days(2, 3))
    events(small, *BEFORE, partition_by=["bucket(4, kind)", "hour(_timestamp)"])
    small.run(days(3, 4))
    table = static_table(small.store, small.root()["tables"]["events"]["metadata"])
    assert [[str(f.transform) for f in s.fields] for s in table.metadata.partition_specs] == [
        [],
        ["truncate[4]"],
        ["bucket[4]", "hour"],
    ]
    assert {
        len(f.partition)
        for f in live_files(small.store, small.root()["tables"]["events"]["metadata"])
    } == {0, 1, 2}
    assert table.scan("kind = 'kind 1'").to_arrow().num_rows == 6
    proven(small)
    small.run(days(1, 2), clear=1)
    lengths = [
        len(f.partition)
        for f in live_files(small.store, small.root()["tables"]["events"]["metadata"])
    ]
    assert set(lengths) == {1, 2}, "a replacement has the partitioning of its own plan"
    assert len(rows(small, "events", "n")) == 15
    proven(small)
    events(small, *BEFORE)
    small.run(days(6, 7))
    metadata = static_table(small.store, small.root()["tables"]["events"]["metadata"]).metadata
    assert (len(metadata.partition_specs), metadata.default_spec_id) == (3, 0)
    collect(small.lake, IcebergReach(small.store), delete=True)
    proven(small)


def test_a_partition_field_keeps_its_name_when_its_column_is_renamed(small: SmallLake) -> None:
    events(small, *BEFORE, partition_by=["truncate(4, kind)"])
    small.run(days(2, 3))
    sort = Column("sort", "string", required=False, renamed_from="kind", source="kind")
    events(small, BEFORE[0], sort, partition_by=["truncate(4, sort)"])
    small.run(days(3, 4))
    table = static_table(small.store, small.root()["tables"]["events"]["metadata"])
    assert [[f.name for f in s.fields] for s in table.metadata.partition_specs] == [
        [],
        ["kind_trunc_4"],
    ]
    assert table.scan("sort = 'kind 1'").to_arrow().num_rows == 6
    proven(small)


# ---------------------------------------------------------------- the pipeline's name


def named(small: SmallLake, name: str, renamed_from: str | None = None) -> None:
    declared = small.declared
    small.declared = lambda w: replace(declared(w), name=name, renamed_from=renamed_from)


@pytest.mark.parametrize("new_work", [False, True])
def test_a_renamed_pipeline_has_its_lake_with_the_next_plan(
    small: SmallLake, new_work: bool
) -> None:
    plan_key, report = staged_plan(small, days(2, 3))
    named(small, "other")
    with pytest.raises(InvalidPipeline, match="expected the lake of pipeline 'other'") as refused:
        small.plan(days(3, 4))
    assert "declare renamed_from='small'" in refused.value.hint
    named(small, "other", "small")
    interval = days(3, 4) if new_work else days(1, 2)
    small.run(interval)
    assert (small.root()["pipeline"], small.root()["former_names"]) == ("other", ["small"])
    named(small, "other")
    small.run(days(6, 7))
    named(small, "small")
    with pytest.raises(InvalidPipeline, match="found that of 'other'") as late:
        small.plan(days(4, 5))
    assert "to which the pipeline was renamed" in late.value.hint
    done = commit(small.lake, small.tables, plan_key=plan_key, report_key=report)
    assert not done.already, "what was granted under the old name is committed"
    proven(small)
    named(small, "small", "other")
    small.plan(days(4, 5))
    assert small.root()["former_names"] == ["small", "other"]
    proven(small)


def test_outputs_know_the_pipeline_by_its_first_name(small: SmallLake) -> None:
    """Otherwise an output would take the lake for another one, and send its rows again."""
    output = FakeOutput(Wire())
    scopes: list[str] = []
    begin = output.begin

    def noted(scope: Any) -> None:
        scopes.append(scope.pipeline)
        begin(scope)

    output.begin = noted  # type: ignore[method-assign]
    declared = small.declared
    small.declared = lambda w: replace(declared(w), outputs=[Declared()])
    small.run(days(2, 3))
    publish(small.lake, {"feed": lambda: output}, rows_of=StoredRows)
    named(small, "other", "small")
    small.run(days(3, 4))
    publish(small.lake, {"feed": lambda: output}, rows_of=StoredRows)
    assert scopes == ["small", "small"]


# ---------------------------------------------------------------- a copy


def test_a_copy_under_another_uri_is_refused_by_every_reader_and_writer(small: SmallLake) -> None:
    assert isinstance(small.store, MemoryStore)
    copied = MemoryStore("elsewhere")
    copied._objects = dict(small.store._objects)
    copy = SmallLake(store=copied, log=small.log, runtime=small.runtime, declared=small.declared)
    message = "expected the root of memory://elsewhere, found a copy of the root of memory://"
    for use in (
        lambda: copy.plan(days(2, 3)),
        lambda: verify(Lake(copied, small.runtime, proven=True)),
        lambda: collect(copy.lake, IcebergReach(copied), delete=True),
    ):
        with pytest.raises(IdentityChanged, match=message) as refused:
            use()
        assert "docs/how-to/move-a-lake.md" in refused.value.hint
    assert copied._objects == small.store._objects
