"""Bad input of planning and damaged objects of the lake: a clear error with both values and a hint, nothing lost."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.small_lake import DAY, NOW, TOPIC, SmallLake, day, days, pipeline
from tallystick.errors import (
    Corrupt,
    IdentityChanged,
    InvalidPipeline,
    InvalidRequest,
    LogDamaged,
    NotYet,
    OutsideRetention,
    RootVanished,
    SchemaChanged,
    Superseded,
    TallystickError,
)
from tallystick.format import keys
from tallystick.format.canonical import dumps
from tallystick.format.interval import Interval, Request
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.pipeline import Column, Json, Pipeline, Table
from tallystick.store import Stored


def refused(
    kind: type[TallystickError], small: SmallLake, *parts: str, run: Any
) -> TallystickError:
    """Call `run`, which must be refused: the error contains `parts` and a hint, and the root is unchanged."""
    before = small.store.get(keys.ROOT)
    with pytest.raises(kind) as caught:
        run()
    text = str(caught.value)
    for part in parts:
        assert part in text, text
    assert caught.value.hint.strip()
    assert small.store.get(keys.ROOT) == before
    return caught.value


def plan_declared(small: SmallLake, declared: Pipeline, **params: Any) -> PlanResult:
    return plan(
        small.lake,
        small.log,
        PlanRequest(
            pipeline=declared,
            job_source=b"job",
            request=Request(dag="small", run=f"manual__{params}", clear=0),
            params=parse_params({k.rstrip("_"): v for k, v in params.items()}),
            dates=RunDates(data_interval=None, run_after=day(30)),
            first=DAY,
        ),
    )


@pytest.fixture
def small() -> SmallLake:
    lake = SmallLake()
    lake.run(days(1, 2))
    return lake


# ---------------------------------------------------------------- the log


def test_retention_that_passed_the_plan_names_partition_and_offsets(small: SmallLake) -> None:
    small.log.expire(TOPIC, 1, before=6)
    refused(
        OutsideRetention,
        small,
        "events[1]: expected offsets [4, 10), found a log that begins at 6: 2 offsets are gone",
        "accept_loss=true",
        run=lambda: small.plan(days(2, 3)),
    )


def test_an_accepted_loss_is_recorded_in_the_ledger(small: SmallLake) -> None:
    small.log.expire(TOPIC, 1, before=6)
    (done,) = small.run(days(2, 3), accept_loss=True)
    assert done.totals.lost == 2


def test_a_first_boundary_at_a_log_start_is_refused_unless_begin_is_declared() -> None:
    small = SmallLake()
    small.log.expire(TOPIC, 0, before=2)
    with pytest.raises(OutsideRetention, match=r"events\[0\] begins at offset 2") as caught:
        small.plan(days(1, 2))
    assert "Pipeline(begin=...)" in caught.value.hint
    declared = replace(pipeline(small.store.uri), begin=DAY)
    planned = plan_declared(small, declared, from_="2013-01-01", to="2013-01-02")
    assert len(planned.intervals) == 1


def test_a_recreated_topic_is_refused_with_both_ids(small: SmallLake) -> None:
    small.log.create(TOPIC, partitions=2)
    refused(
        IdentityChanged,
        small,
        "topic-id-2",
        "topic-id-1",
        "created anew",
        run=lambda: small.plan(days(2, 3)),
    )


def test_another_cluster_is_refused(small: SmallLake) -> None:
    small.log.topics[TOPIC].cluster_id = "elsewhere"
    refused(IdentityChanged, small, "elsewhere", "fake-cluster", run=lambda: small.plan(days(2, 3)))


def test_partitions_that_vanished_are_refused(small: SmallLake) -> None:
    small.log.topics[TOPIC].partitions.pop()
    refused(
        IdentityChanged,
        small,
        "expected at least 2 partitions as in the ledger, found 1",
        run=lambda: small.plan(days(2, 3)),
    )


def test_a_new_partition_begins_at_its_origin(small: SmallLake) -> None:
    small.log.grow(TOPIC, partitions=3)
    small.log.append(TOPIC, 2, day(2), n=1, kind="new")
    (done,) = small.run(days(2, 3))
    assert done.totals.records == 6
    assert small.lake.load_existing().root.topics[TOPIC].origins == (0, 0, 0)


def test_a_partition_added_during_planning_is_read_by_the_next_plan(small: SmallLake) -> None:
    described = small.log.describe([TOPIC])[TOPIC]
    before = replace(described, partitions=list(described.partitions))
    small.log.grow(TOPIC, partitions=3)
    small.log.describe = lambda topics: {TOPIC: before}  # type: ignore[method-assign]
    (planned_day,) = small.plan(days(2, 3)).intervals
    stored_plan = small.lake.plan(planned_day.plan)
    assert stored_plan is not None
    assert len(stored_plan.topics[0].ranges) == 2


def test_a_new_partition_that_lost_records_is_a_loss(small: SmallLake) -> None:
    small.log.grow(TOPIC, partitions=3)
    for _ in range(3):
        small.log.append(TOPIC, 2, day(2), n=1, kind="new")
    small.log.expire(TOPIC, 2, before=2)
    refused(
        OutsideRetention,
        small,
        "events[2]",
        "2 offsets are gone",
        run=lambda: small.plan(days(2, 3)),
    )


def test_a_log_that_was_truncated_and_rewritten_is_refused(small: SmallLake) -> None:
    small.log.rewrite(TOPIC, 0, start=1)
    refused(
        LogDamaged, small, "events", "2013-01-02", "truncated", run=lambda: small.plan(days(2, 3))
    )


def test_an_open_transaction_before_the_boundary_raises_not_yet(small: SmallLake) -> None:
    small.log.hold(TOPIC, 0, stable=4)
    refused(NotYet, small, "last stable offset 4", run=lambda: small.plan(days(2, 3)))
    small.log.hold(TOPIC, 0, stable=None)
    assert len(small.plan(days(2, 3)).intervals) == 1


def test_a_missing_topic_leaves_the_lake_unchanged(small: SmallLake) -> None:
    del small.log.topics[TOPIC]
    refused(IdentityChanged, small, "'events' does not", run=lambda: small.plan(days(2, 3)))


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("params", "part"),
    [
        ({"form": "2013-01-01"}, "'form' is not allowed"),
        ({"mode": "overwrite"}, "mode='overwrite'"),
        ({"force": "yes"}, "force='yes'"),
        ({"from": "2013-01-01"}, "'from' is set without 'to'"),
        ({"to": "2013-01-01"}, "'to' is set without 'from'"),
        ({"from": "2013-01-02", "to": "2013-01-02"}, "is not before"),
        ({"from": "yesterday", "to": "2013-01-02"}, "from='yesterday' is not a date"),
        ({"from": 7, "to": "2013-01-02"}, "from=7 is not a date"),
        ({"from": "0001-01-01", "to": "2013-01-02"}, "before 1970"),
        ({"from": "1969-12-31T23:59:59Z", "to": "2013-01-02"}, "before 1970"),
        ({"from": "2013-01-01", "to": "9999-12-31T23:59:59-05:00"}, "is not a date"),
        ({"from": "2013-01-01T00:00:00.000001", "to": "2013-01-02"}, "finer than a millisecond"),
    ],
)
def test_invalid_parameters_are_refused_with_the_allowed_values(
    params: dict[str, Any], part: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_params(params)
    assert part in str(caught.value)
    assert caught.value.hint


def test_parameters_are_read_with_their_zone() -> None:
    read = parse_params(
        {"mode": "replace", "from": "2013-01-01T01:00:00+01:00", "to": "2013-01-02", "force": True}
    )
    assert (read.start, read.end) == (day(1), day(2))
    assert read.mode == "replace"
    assert read.force
    assert parse_params({"from": "", "to": None}).start is None


def test_the_future_cannot_be_replayed(small: SmallLake) -> None:
    declared = pipeline(small.store.uri)
    refused(
        InvalidRequest,
        small,
        "2030-01-01",
        "2024-05-01",
        run=lambda: plan_declared(small, declared, from_="2013-01-01", to="2030-01-01"),
    )


def test_a_scheduled_interval_waits_for_its_lateness(small: SmallLake) -> None:
    declared = replace(pipeline(small.store.uri), lateness=timedelta(days=30))
    yesterday = Interval(start=NOW - timedelta(days=2), end=NOW - timedelta(days=1))
    plan_request = PlanRequest(
        pipeline=declared,
        job_source=b"job",
        request=Request(dag="small", run="scheduled", clear=0),
        params=parse_params({}),
        dates=RunDates(data_interval=yesterday, run_after=yesterday.end),
        first=DAY,
    )
    refused(
        NotYet,
        small,
        "may still get records",
        run=lambda: plan(small.lake, small.log, plan_request),
    )


def test_replace_without_dates_is_refused(small: SmallLake) -> None:
    refused(
        InvalidRequest,
        small,
        "mode=replace is set without dates",
        run=lambda: plan_declared(small, pipeline(small.store.uri), mode="replace"),
    )


def test_a_cut_through_a_committed_interval_names_both_boundaries(small: SmallLake) -> None:
    refused(
        InvalidRequest,
        small,
        "splits the committed interval",
        "2013-01-01T00:00:00.000Z",
        "2013-01-02T00:00:00.000Z",
        run=lambda: plan_declared(
            small,
            pipeline(small.store.uri),
            mode="replace",
            from_="2013-01-01T12:00:00",
            to="2013-01-03",
        ),
    )


def test_a_refused_cut_withdraws_the_runs_earlier_grants(small: SmallLake) -> None:
    first = {"mode": "replace", "from": "2013-01-01T12:00:00", "to": "2013-01-03"}
    fresh = SmallLake(log=small.log)
    fresh.plan(days(1, 2))  # granted to another run, so it is left out
    fresh.plan(days(2, 3), run="manual", **first)
    fresh.run(days(1, 2), clear=1)
    with pytest.raises(InvalidRequest, match="splits the committed"):
        fresh.plan(days(2, 3), run="manual", clear=1, **first)
    assert [e.granted for e in fresh.lake.load_existing().whole_ledger().entries] == [None]


def test_a_request_with_a_lower_clear_number_is_superseded(small: SmallLake) -> None:
    small.run(days(2, 3), clear=3)
    refused(Superseded, small, "clear 3", run=lambda: small.plan(days(2, 4), clear=1))


# ---------------------------------------------------------------- the declaration


def changed(small: SmallLake, **table: Any) -> Pipeline:
    declared = pipeline(small.store.uri)
    first = replace(declared.tables[0], **table)
    return replace(declared, tables=[first, *declared.tables[1:]])


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        (
            {"columns": [Column("n", "int"), Column("kind", "string", required=False)]},
            ("expected n long as in the lake", "found n int", "A type can only widen"),
        ),
        (
            {
                "columns": [
                    Column("n", "long"),
                    Column("what", "string", required=False, renamed_from="sort", source="kind"),
                ]
            },
            (
                "'what': expected renamed_from a column of the lake, found 'sort'",
                "use one of n, kind",
            ),
        ),
        ({"columns": [Column("kind", "string", required=False)]}, ("'n' is required in the lake",)),
        (
            {
                "columns": [
                    Column("n", "long"),
                    Column("kind", "string", required=False),
                    Column("x", "int"),
                ]
            },
            ("'x' is new in a table with rows", "required=False"),
        ),
    ],
)
def test_a_declaration_that_does_not_fit_the_lake_is_refused(
    small: SmallLake, table: dict[str, Any], parts: tuple[str, ...]
) -> None:
    declared = changed(small, **table)
    refused(
        SchemaChanged,
        small,
        "table events",
        *parts,
        run=lambda: plan_declared(small, declared, from_="2013-01-02", to="2013-01-03"),
    )


def test_a_topic_that_is_no_longer_declared_is_refused(small: SmallLake) -> None:
    small.log.create("other")
    declared = replace(pipeline(small.store.uri), topics=["other"])
    refused(
        InvalidPipeline,
        small,
        "topic 'events' is in the ledger",
        run=lambda: plan_declared(small, declared, from_="2013-01-02", to="2013-01-03"),
    )


def test_a_new_topic_begins_at_its_origin(small: SmallLake) -> None:
    small.log.create("other")
    small.log.append("other", 0, day(1), n=1, kind="a")
    declared = replace(pipeline(small.store.uri), topics=[TOPIC, "other"])
    planned = plan_declared(small, declared, from_="2013-01-02", to="2013-01-03")
    (planned_day,) = planned.intervals
    stored_plan = small.lake.plan(planned_day.plan)
    assert stored_plan is not None
    assert [(t.name, t.ranges[0].start, t.ranges[0].end) for t in stored_plan.topics] == [
        ("events", 3, 8),
        ("other", 0, 1),
    ]


@pytest.mark.parametrize(
    ("build", "part"),
    [
        (lambda: Table("Bad/Name", columns=[Column("a", "int")]), "'Bad/Name'"),
        (lambda: Table("dead_letters", columns=[Column("a", "int")]), "dead_letters"),
        (lambda: Table("t", columns=[]), "expected at least one column"),
        (lambda: Table("t", columns=[Column("a", "int"), Column("A", "int")]), "found 'a' twice"),
        (lambda: Table("t", columns=[Column("_a", "int")]), "leading underscore"),
        (
            lambda: Table("t", columns=[Column("a", "int")], partition_by=["day(a)"]),
            "does not apply to a int column",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], partition_by=["b"]),
            "expected partition_by a column",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], partition_by=["zorder(3, a)"]),
            "partition_by: expected a column, or year(c), month(c), day(c), hour(c), bucket(n, c), truncate(n, c), "
            "found 'zorder(3, a)'",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], partition_by=["bucket(a, 3)"]),
            "found 'bucket(a, 3)'",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], partition_by=["truncate(0, a)"]),
            "expected a number from 1 to 2147483647, found 'truncate(0, a)'",
        ),
        (
            lambda: Table(
                "t", columns=[Column("a", "int")], partition_by=["bucket(2147483648, a)"]
            ),
            "expected a number from 1 to 2147483647",
        ),
        (
            lambda: Table("t", columns=[Column("a", "double")], partition_by=["bucket(3, a)"]),
            "'bucket(3, a)' does not apply to a double column",
        ),
        (
            lambda: Table("t", columns=[Column("a", "date")], partition_by=["truncate(3, a)"]),
            "'truncate(3, a)' does not apply to a date column",
        ),
        (
            lambda: Table(
                "t", columns=[Column("a", "int")], partition_by=["bucket(3,a)", "bucket(4, a)"]
            ),
            "expected each partition rule once for a column, found bucket(3, a), bucket(4, a)",
        ),
        (
            lambda: Table(
                "t",
                columns=[Column("a", "int"), Column("a_bucket_3", "int")],
                partition_by=["bucket(3, a)"],
            ),
            "the partition field 'a_bucket_3'",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], partition_by=["a", "a"]),
            "expected each partition rule once",
        ),
        (
            lambda: Table(
                "t", columns=[Column("x", "date"), Column("x_day", "int")], partition_by=["day(x)"]
            ),
            "the partition field 'x_day'",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int", renamed_from="a")]),
            "'a': expected renamed_from another name, found its own",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int"), Column("b", "int", renamed_from="A")]),
            "expected one column of the names 'a' and renamed_from='a', found two",
        ),
        (
            lambda: Table(
                "t",
                columns=[
                    Column("b", "int", renamed_from="a"),
                    Column("c", "int", renamed_from="a"),
                ],
            ),
            "expected one column of the names 'a'",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], dropped=["A"]),
            "expected dropped columns that are not declared, found 'A'",
        ),
        (
            lambda: Table("t", columns=[Column("b", "int", renamed_from="a")], dropped=["a"]),
            "expected dropped columns that are not declared, found 'a'",
        ),
        (
            lambda: Table("t", columns=[Column("d", "struct<os: int>")], dropped=["D.os"]),
            "expected dropped columns that are not declared, found 'D.os'",
        ),
        (
            lambda: Column(
                "d",
                "list<struct>",
                fields=[Column("a", "int"), Column("b", "int", renamed_from="A")],
            ),
            "expected one column of the names 'a' and renamed_from='a', found two",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], dropped="b"),
            "dropped: expected a list, found the string 'b'",
        ),
        (
            lambda: Json([Column("b", "int", renamed_from="a")]),
            "'b' is renamed from 'a': expected source= the field of the records, found none",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], keys=["b"]),
            "expected keys to be columns, found 'b'",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], keys=["a", "a"]),
            "expected each key once",
        ),
        (
            lambda: Table("t", columns=[Column("a", "int")], combine={"a": "sum"}),
            "of the columns (a) once",
        ),
        (
            lambda: Table(
                "t",
                columns=[Column("k", "int"), Column("s", "string")],
                keys=["k"],
                combine={"s": "sum"},
            ),
            "expected a number for sum",
        ),
        (
            lambda: Table(
                "t",
                columns=[Column("k", "int"), Column("s", "long")],
                keys=["k", "k"],
                combine={"s": "sum"},
            ),
            "expected each key once, found k, k",
        ),
        (
            lambda: Table("t", columns=[Column("kind", "int")], keys="kind"),
            "table t: keys: expected a list, found the string 'kind'",
        ),
        (
            lambda: Table("t", columns=[Column("at", "date")], partition_by="day(at)"),
            "partition_by: expected a list, found the string 'day(at)'",
        ),
        (lambda: Table(None, columns=[Column("a", "int")]), "table name None is not allowed"),  # type: ignore[arg-type]
        (lambda: Column("a", "varchar"), "'varchar'"),
        (lambda: Column("a b", "int"), "'a b'"),
        (lambda: Column("a", "int", parse="%Y"), "parse rule"),
        (
            lambda: Column("a", "timestamptz", parse="epoch"),
            "'a' of type timestamptz: the parse rule 'epoch'",
        ),
    ],
)
def test_an_invalid_declaration_is_refused_at_once(build: Any, part: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        build()
    assert part in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"name": "../x"}, "'../x'"),
        ({"topics": ["a b"]}, "'a b'"),
        ({"topics": "flights"}, "topics: expected a list, found the string 'flights'"),
        (
            {"begin": day(1).replace(tzinfo=None)},
            "begin: expected an instant in UTC, found 2013-01-01T00:00:00",
        ),
        ({"topics": ["a", "a"]}, "expected each topic once"),
        ({"topics": []}, "at least one topic and one table"),
        ({"warehouse": "/lake"}, "'/lake'"),
        ({"job": "/etc/passwd"}, "path inside the project"),
        ({"job": "../x.py"}, "path inside the project"),
        ({"lateness": timedelta(seconds=-1)}, "out of range"),
        ({"lateness": timedelta(days=31, seconds=1)}, "from 0 to 31 days"),
        ({"kafka": "A B"}, "connection name"),
        ({"begin": day(1).replace(microsecond=1)}, "millisecond"),
        ({"begin": day(1).replace(year=1969)}, "expected 1970 or later"),
    ],
)
def test_an_invalid_pipeline_is_refused_at_once(more: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        replace(pipeline("memory://lake"), **more)
    assert part in str(caught.value)


# ---------------------------------------------------------------- the lake's own objects


def test_another_pipelines_lake_is_refused(small: SmallLake) -> None:
    declared = replace(pipeline(small.store.uri), name="other")
    refused(
        InvalidPipeline,
        small,
        "'small'",
        "'other'",
        run=lambda: plan_declared(small, declared, from_="2013-01-02", to="2013-01-03"),
    )


def test_a_root_that_vanished_is_never_created_again(small: SmallLake) -> None:
    small.store.delete([keys.ROOT])
    refused(
        RootVanished,
        small,
        "root.json does not exist, but",
        "restore",
        run=lambda: small.plan(days(2, 3)),
    )


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (lambda root: root.update(format="tallystick.root/9"), "another version of tallystick"),
        (lambda root: root.update(surprise=1), "unknown field 'surprise'"),
        (lambda root: root.pop("pages"), "missing field 'pages'"),
        (lambda root: root.update(version="7"), "version: expected an integer, found a string"),
    ],
)
def test_a_root_of_unknown_form_is_refused_and_left_unchanged(
    small: SmallLake, edit: Any, part: str
) -> None:
    found = small.store.get(keys.ROOT)
    assert isinstance(found, Stored)
    root = json.loads(found.body)
    edit(root)
    small.overwrite(keys.ROOT, dumps(root))
    refused(
        Corrupt, small, "root.json", part, "nothing was changed", run=lambda: small.plan(days(2, 3))
    )


def test_a_root_that_is_not_json_is_refused_and_left_unchanged(small: SmallLake) -> None:
    small.overwrite(keys.ROOT, b"<html>")
    refused(Corrupt, small, "expected canonical JSON", run=lambda: small.plan(days(2, 3)))


def test_a_missing_page_is_named(small: SmallLake) -> None:
    small.store.delete([small.page()])
    fresh = SmallLake(store=small.store, log=small.log, runtime=small.runtime)
    refused(
        Corrupt, fresh, small.page(), "which does not exist", run=lambda: fresh.plan(days(2, 3))
    )
