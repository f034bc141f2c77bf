"""The data source of landed records, in one process: its topics, columns, partitions and rows."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tallystick.engine.input_splits import split_plan
from tallystick.engine.landing import land_split, landed_of
from tallystick.engine.task import Attempt, Work
from tallystick.errors import Corrupt, InvalidRequest
from tallystick.pipeline import Column, Json, Topic
from tallystick.spark.source import LandedRef, LandedSource, parse_landed_ref
from tallystick.store.open import open_store

MakeWork = Callable[..., Work]


@pytest.fixture
def ref(make_work: MakeWork, kit: SimpleNamespace) -> LandedRef:
    """Return the reference of landed files of the topic `clicks`. The topic `views` has no records."""
    store = open_store(f"memory://source-{uuid.uuid4().hex}")
    topics = [
        Topic("clicks", decode=Json([Column("n", "long"), Column("at", "timestamp")])),
        Topic("views", decode=Json([Column("page", "string", required=False)])),
    ]
    pipeline = kit.small_pipeline(topics=topics)
    plan = kit.plan_of(pipeline, ("clicks", [kit.planned(0, 4)]), ("views", [kit.planned(0, 0)]))
    work = Attempt(
        plan=plan,
        pipeline=pipeline,
        attempt="try-1",
        store=store,
        runtime=make_work().runtime,
    )
    landed = []
    for split in split_plan(plan, records_per_task=2):
        offsets = range(split.span.start, split.span.end)
        values = [b'{"n": %d, "at": "2013-01-01T00:00:00"}' % n for n in offsets]
        reading = kit.FakeReading([kit.raw_batch(split.span.start, values)])
        landed.append(land_split(work, split, reading))
    found = landed_of(work, landed)
    store.create(found.key, found.encode())
    digest = hashlib.sha256(found.encode()).hexdigest()
    return LandedRef(lake_uri=store.uri, key=found.key, sha256=digest)


def test_each_landed_file_is_a_partition_of_its_topic(ref: LandedRef) -> None:
    assert parse_landed_ref(str(ref)) == ref
    source = LandedSource({"path": str(ref), "topic": "clicks"})
    schema = source.schema()
    lineage = ["_topic", "_kafka_partition", "_offset", "_timestamp", "_key"]
    assert schema.fieldNames() == ["n", "at", *lineage]
    assert [f.dataType.simpleString() for f in schema][:2] == ["bigint", "timestamp_ntz"]
    assert [f.nullable for f in schema] == [False] * 6 + [True]
    reader = source.reader(schema)
    batches = [[*reader.read(part)] for part in reader.partitions()]
    rows = [pa.Table.from_batches(part).to_pylist() for part in batches]
    assert [[r["n"] for r in part] for part in rows] == [[0, 1], [2, 3]]


def test_a_topic_without_records_has_columns_and_no_rows(ref: LandedRef) -> None:
    source = LandedSource({"path": str(ref), "topic": "views"})
    assert source.schema().fieldNames()[:2] == ["page", "_topic"]
    assert source.reader(source.schema()).partitions() == []


def test_another_topic_path_or_digest_is_refused(ref: LandedRef) -> None:
    for options in ({}, {"topic": "orders"}):
        with pytest.raises(InvalidRequest, match="expected one of clicks, views"):
            LandedSource({"path": str(ref), **options}).schema()
    changed = str(ref)[:-64] + "0" * 64
    with pytest.raises(Corrupt, match="expected digest"):
        LandedSource({"path": changed, "topic": "clicks"}).schema()
    for path in ("", "s3://b/x", str(ref).replace("try-1", ".."), str(ref)[:-1]):
        with pytest.raises(InvalidRequest, match="expected a path of landed records"):
            LandedSource({"path": path, "topic": "clicks"}).schema()


def test_nested_records_have_the_types_and_values_that_spark_has(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    """Spark's tasks check that batches have exactly the schema; a UUID is a text in Spark, and a time has nanoseconds."""
    columns = [
        Column("device", "struct<os: string, ids: list<optional uuid>>", required=False),
        Column("places", "map<string, struct<x: optional double>>"),
        Column("number", "uuid"),
        Column("clock", "time"),
        Column("digest", "fixed[2]"),
    ]
    pipeline = kit.small_pipeline(topics=[Topic("clicks", decode=Json(columns))])
    plan = kit.plan_of(pipeline, ("clicks", [kit.planned(0, 2)]))
    store = open_store(f"memory://source-{uuid.uuid4().hex}")
    work = Attempt(
        plan=plan, pipeline=pipeline, attempt="try-1", store=store, runtime=make_work().runtime
    )
    number = "00112233-4455-6677-8899-aabbccddeeff"
    rest = f'"places":{{"a":{{"x":1}}}},"number":"{number}","clock":"05:15:00","digest":"aGk="'
    values = [
        f'{{"device":{{"os":"x","ids":["{number}",null]}},{rest}}}'.encode(),
        f"{{{rest}}}".encode(),
    ]
    (split,) = split_plan(plan, records_per_task=2)
    landed = land_split(work, split, kit.FakeReading([kit.raw_batch(0, values)]))
    found = landed_of(work, [landed])
    store.create(found.key, found.encode())
    digest = hashlib.sha256(found.encode()).hexdigest()
    source = LandedSource(
        {"path": str(LandedRef(lake_uri=store.uri, key=found.key, sha256=digest))}
    )
    schema = source.schema()
    assert [f.dataType.simpleString() for f in schema][:5] == [
        "struct<os:string,ids:array<string>>",
        "map<string,struct<x:double>>",
        "string",
        "time(6)",
        "binary",
    ]
    reader = source.reader(schema)
    (part,) = reader.partitions()
    rows = pa.Table.from_batches([*reader.read(part)])
    assert rows.schema == to_arrow_schema(schema, timezone="UTC")
    assert rows.column("device").to_pylist() == [{"os": "x", "ids": [number, None]}, None]
    assert rows.column("number").to_pylist() == [number] * 2
    assert [str(value) for value in rows.column("clock").to_pylist()] == ["05:15:00"] * 2
