"""Readers that share no code with the writer read the committed rows: PyIceberg with Arrow's own S3, and DuckDB."""

from __future__ import annotations

import io
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from support.duckdb_extensions import signatures_unchecked
from tallystick.errors import (
    Corrupt,
    InvalidRequest,
    SettingsError,
    StoreUnavailable,
    TallystickError,
)
from tallystick.format import keys
from tallystick.format.columns import FormerName, TableColumn
from tallystick.format.report import FileReport
from tallystick.format.upkeep import Upkeep, is_sortable
from tallystick.runtime import system_runtime
from tallystick.store import Applied, Store
from tallystick.store.open import open_store
from tallystick.tables.partitioning import split_by_partition
from tallystick.tables.reading import live_files, metadata_uri, static_table
from tallystick.tables.schema import arrow_schema
from tallystick.tables.sql import duckdb_connection, reading_only
from tallystick.tables.staging import IcebergTables
from tallystick.tables.state import TableState
from tallystick.tables.statistics import column_statistics, split_offsets

NOW = datetime(2020, 1, 1, tzinfo=UTC)
KINDS = {
    "seen": "timestamptz",
    "place": "string",
    "yes": "boolean",
    "small": "int",
    "large": "long",
    "single": "float",
    "double_": "double",
    "day": "date",
    "wall": "timestamp",
    "raw": "binary",
    "price": "decimal(9,2)",
    "huge": "decimal(38,10)",
}
SORTED = [name for name, kind in KINDS.items() if is_sortable(kind)]
COLUMNS = tuple(
    TableColumn(id=3 * i + 2, name=name, type=kind, required=name == "seen")
    for i, (name, kind) in enumerate(KINDS.items())
)
FULL = {
    "seen": datetime(2013, 1, 1, 5, 15, 0, 123_456, tzinfo=UTC),
    "place": "Zürich 🛫",
    "yes": True,
    "small": -(2**31),
    "large": 2**63 - 1,
    "single": 0.5,
    "double_": 0.1,
    "day": date(1969, 12, 31),
    "wall": datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001  a timestamp without a zone is intended
    "raw": b"\x00\xff\xfe",
    "price": Decimal("-1234567.89"),
    "huge": Decimal("9999999999999999999999999999.0123456789"),
}
NULLS = {**dict.fromkeys(KINDS), "seen": datetime(1969, 12, 31, 23, 30, tzinfo=UTC)}


def fresh_uuid() -> str:
    return uuid.uuid4().hex


class LakeTable:
    """One table on S3, updated as a root's swaps would update it."""

    def __init__(
        self, store: Store, *, name: str = "flights", partition_by: tuple[str, ...] = ("day(seen)",)
    ) -> None:
        self.store = store
        self.state = TableState(
            name=name, uuid=fresh_uuid(), metadata=None, columns=COLUMNS, partition_by=partition_by
        )

    def files(self, rows: Sequence[Mapping[str, Any]]) -> list[FileReport]:
        plan = keys.plan(
            datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC), fresh_uuid()
        )
        columns = self.state.columns
        table = pa.Table.from_pylist([dict(r) for r in rows], schema=arrow_schema(columns))
        return [
            self._upload(
                keys.data_file(self.state.name, plan, "a1", "t0", fresh_uuid()), partition, part
            )
            for partition, part in split_by_partition(table, self.state.partition_by, columns)
        ]

    def _upload(
        self, key: str, partition: tuple[int | str | None, ...], rows: pa.Table
    ) -> FileReport:
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="zstd")
        footer = pq.read_metadata(io.BytesIO(sink.getvalue()))
        outcome = self.store.create(key, sink.getvalue())
        assert isinstance(outcome, Applied)
        return FileReport(
            table=self.state.name,
            key=key,
            etag=outcome.etag,
            size_bytes=len(sink.getvalue()),
            rows=rows.num_rows,
            partition=partition,
            columns=column_statistics(footer, self.state.columns, where=key),
            split_offsets=split_offsets(footer),
        )

    def commit(self, add: Sequence[FileReport] = (), drop: Sequence[FileReport] = ()) -> str:
        tables = IcebergTables(self.store, system_runtime())
        key = tables.stage(self.state, add=add, drop={f.key for f in drop}, properties={}, now=NOW)
        self.state = replace(self.state, metadata=key)
        return key

    @property
    def uri(self) -> str:
        return metadata_uri(self.store, self.state.metadata or "")


@pytest.fixture
def table(on_ministack: str, lake_uri: str) -> LakeTable:
    return LakeTable(open_store(lake_uri))


def by_pyiceberg(uri: str, **scan: Any) -> pa.Table:
    """Read as a user does, by the metadata's path, with Arrow's S3 and not with tallystick's FileIO."""
    settings = {
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    return StaticTable.from_metadata(uri, settings).scan(**scan).to_arrow()


def by_duckdb(sql: str, **uris: str) -> pa.Table:
    with signatures_unchecked(), duckdb_connection(uris, environ=os.environ) as connection:
        return connection.execute(reading_only(connection, sql)).to_arrow_table()


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: str(row["seen"]))


def test_values_and_types_are_read_exactly(table: LakeTable) -> None:
    table.commit(table.files([FULL, NULLS]))
    for found in (
        by_pyiceberg(table.uri),
        by_duckdb("from flights", flights=table.uri),
        static_table(table.store, table.state.metadata or "").scan().to_arrow(),
    ):
        assert in_order(found) == [NULLS, FULL]
        types = {f.name: str(f.type).removeprefix("large_") for f in found.schema}
        assert types == {f.name: str(f.type) for f in arrow_schema(COLUMNS)}


def test_nan_and_infinities_are_read(table: LakeTable) -> None:
    special = [{**NULLS, "double_": value} for value in (math.nan, math.inf, -math.inf)]
    table.commit(table.files(special))
    for found in (by_pyiceberg(table.uri), by_duckdb("from flights", flights=table.uri)):
        assert sorted(map(str, found.column("double_").to_pylist())) == ["-inf", "inf", "nan"]
        assert found.column("single").null_count == 3
    assert (
        by_duckdb("select 1 from flights where double_ > 1e300", flights=table.uri).num_rows == 2
    ), "inf and nan"


def test_a_replacement_a_drop_and_a_new_column_are_read(table: LakeTable) -> None:
    first = table.files([FULL, NULLS])
    table.commit(first)
    before = table.uri
    table.commit(table.files([{**FULL, "place": "JFK"}]), first[:1])
    replaced = table.uri
    table.state = replace(
        table.state,
        columns=(*COLUMNS, TableColumn(id=99, name="tail", type="string", required=False)),
    )
    table.commit(table.files([{**FULL, "seen": datetime(2014, 1, 1, tzinfo=UTC), "tail": "N1"}]))
    evolved = table.uri
    no_files = table.files([])
    table.commit(no_files, [f for f in first[1:]])
    for read in (by_pyiceberg, lambda uri: by_duckdb("from flights", flights=uri)):
        assert in_order(read(before)) == [NULLS, FULL]
        assert in_order(read(replaced)) == [NULLS, {**FULL, "place": "JFK"}]
        assert [r["tail"] for r in in_order(read(evolved))] == [None, None, "N1"]
        assert [r["place"] for r in in_order(read(table.uri))] == ["JFK", FULL["place"]]


def test_an_empty_table_is_read_as_no_rows(table: LakeTable) -> None:
    table.commit()
    unwritten = table.uri
    files = table.files([FULL])
    table.commit(files)
    table.commit(drop=files)
    for uri in (unwritten, table.uri):
        assert by_pyiceberg(uri).num_rows == 0
        found = by_duckdb("from flights", flights=uri)
        assert (found.num_rows, found.column_names) == (0, list(KINDS))


def test_a_table_with_sort_orders_is_read_also_after_a_sorted_column_was_dropped(
    table: LakeTable,
) -> None:
    table.state = replace(
        table.state,
        upkeep=Upkeep(snapshots_kept=2, compression="gzip", sort_by=SORTED),
    )
    table.commit(table.files([NULLS]))
    table.commit(table.files([FULL]))
    table.state = replace(
        table.state,
        columns=tuple(c for c in COLUMNS if c.name != "place"),
        dropped=tuple(c for c in COLUMNS if c.name == "place"),
        upkeep=Upkeep(snapshots_kept=1, sort_by=["day"]),
    )
    table.commit()
    expected = [{n: v for n, v in row.items() if n != "place"} for row in (NULLS, FULL)]
    assert in_order(by_pyiceberg(table.uri)) == expected
    assert in_order(by_duckdb("from flights", flights=table.uri)) == expected
    metadata = static_table(table.store, table.state.metadata or "").metadata
    assert [len(order.fields) for order in metadata.sort_orders] == [len(SORTED), 1]
    assert len(metadata.snapshots) == 1


def test_files_of_two_partition_rules_are_read_together(table: LakeTable) -> None:
    table.commit(table.files([FULL]))
    table.state = replace(table.state, partition_by=("place", "hour(seen)"))
    table.commit(table.files([NULLS]))
    assert in_order(by_pyiceberg(table.uri)) == [NULLS, FULL]
    assert in_order(by_duckdb("from flights", flights=table.uri)) == [NULLS, FULL]
    only = by_duckdb("from flights where seen < '1970-01-01T00:00:00Z'", flights=table.uri)
    assert in_order(only) == [NULLS]


def test_readers_open_only_the_partitions_that_they_need(table: LakeTable) -> None:
    """The other partition's file is deleted: a reader that opened it would fail."""
    days = [{**FULL, "seen": datetime(2013, 1, day, tzinfo=UTC)} for day in (1, 2)]
    files = table.files(days)
    table.commit(files)
    table.store.delete([files[0].key])
    condition = "seen >= '2013-01-02T00:00:00+00:00'"
    assert in_order(by_pyiceberg(table.uri, row_filter=condition)) == days[1:]
    assert in_order(by_duckdb(f"from flights where {condition}", flights=table.uri)) == days[1:]
    with pytest.raises(duckdb.HTTPException, match="404"):
        by_duckdb("select sum(small) from flights", flights=table.uri)


SIZED = {
    # A rule, values of two partitions, and a condition that only the second partition can fulfil.
    "bucket(16, large)": ({"large": 34}, {"large": 1}, "large = 1"),
    "bucket(16, small)": ({"small": 34}, {"small": 1}, "small = 1"),
    "bucket(16, place)": ({"place": "iceberg"}, {"place": "JFK"}, "place = 'JFK'"),
    "bucket(16, price)": ({"price": Decimal("14.20")}, {"price": Decimal("2.00")}, "price = 2.00"),
    "bucket(16, day)": (
        {"day": date(2017, 11, 16)},
        {"day": date(2017, 11, 17)},
        "day = '2017-11-17'",
    ),
    "truncate(10, large)": ({"large": -1}, {"large": 3}, "large >= 0"),
    "truncate(10, small)": ({"small": -1}, {"small": 3}, "small = 3"),
    "truncate(2, place)": ({"place": "ZÜrich"}, {"place": "JFK"}, "place = 'JFK'"),
    "truncate(50, price)": ({"price": Decimal("10.65")}, {"price": Decimal("1.00")}, "price < 2"),
    "truncate(1, raw)": ({"raw": b"\x01\x02"}, {"raw": b"\x03"}, None),
}


@pytest.mark.parametrize("rule", SIZED)
def test_buckets_and_prefixes_are_read_and_prune(
    on_ministack: str, lake_uri: str, rule: str
) -> None:
    """The other partition's file is deleted: a reader that opened it would fail."""
    table = LakeTable(open_store(lake_uri), partition_by=(rule,))
    first, second, condition = SIZED[rule]
    rows = [
        {**FULL, **first, "seen": datetime(2013, 1, 1, tzinfo=UTC)},
        {**FULL, **second, "seen": datetime(2013, 1, 2, tzinfo=UTC)},
        NULLS,
    ]
    files = table.files(rows)
    assert len(files) == 3
    table.commit(files)
    for found in (by_pyiceberg(table.uri), by_duckdb("from flights", flights=table.uri)):
        assert in_order(found) == [NULLS, *rows[:2]]
    if condition is None:
        return  # no reader here has a literal of bytes
    column = condition.split()[0]
    nulls = by_duckdb(f"from flights where {column} is null", flights=table.uri)
    assert in_order(nulls) == [NULLS]
    assert in_order(by_pyiceberg(table.uri, row_filter=f"{column} is null")) == [NULLS]
    # Statistics alone would let a reader skip the file, too: without them, only the partition can.
    blank = [replace(f, columns=()) for f in table.files(rows)]
    table.commit(blank, files)
    table.store.delete([blank[0].key])
    assert in_order(by_pyiceberg(table.uri, row_filter=condition)) == [rows[1]]
    assert in_order(by_duckdb(f"from flights where {condition}", flights=table.uri)) == [rows[1]]


NARROW = (
    TableColumn(id=1, name="seen", type="timestamptz", required=True),
    TableColumn(id=2, name="number", type="int", required=False),
    TableColumn(id=3, name="ratio", type="float", required=False),
    TableColumn(id=4, name="price", type="decimal(4,2)", required=False),
    TableColumn(id=5, name="place", type="string", required=True),
    TableColumn(id=6, name="gone", type="string", required=False),
)
WIDE = (
    NARROW[0],
    replace(NARROW[1], type="long"),
    replace(NARROW[2], type="double"),
    replace(NARROW[3], type="decimal(30,2)"),
    replace(NARROW[4], name="town", required=False),
    TableColumn(id=7, name="gone", type="long", required=False),
)
RULES = ("bucket(4, number)", "truncate(100, price)")


@pytest.mark.parametrize("partition_by", [(), RULES, ("number",)])
def test_columns_that_changed_are_read_as_one(
    on_ministack: str, lake_uri: str, partition_by: tuple[str, ...]
) -> None:
    """Wider types, a rename, a drop, and a new column of the dropped name, over files with the old columns."""
    table = LakeTable(open_store(lake_uri), partition_by=partition_by)
    table.state = replace(table.state, columns=NARROW)
    days = [datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
    old = [
        {
            "seen": days[0],
            "number": -7,
            "ratio": 0.5,
            "price": Decimal("-12.34"),
            "place": "JFK",
            "gone": "x",
        },
        {
            "seen": days[1],
            "number": None,
            "ratio": None,
            "price": None,
            "place": "LGA",
            "gone": None,
        },
        {
            "seen": days[2],
            "number": 2**31 - 1,
            "ratio": -1.5,
            "price": Decimal("99.99"),
            "place": "EWR",
            "gone": "y",
        },
    ]
    table.commit(table.files(old))
    before = table.uri
    table.state = replace(
        table.state,
        columns=WIDE,
        dropped=NARROW[5:],
        former_names=(FormerName(id=5, name="place"),),
    )
    new = {
        "seen": days[3],
        "number": 2**40,
        "ratio": 0.1,
        "price": Decimal("123456789012.30"),
        "town": None,
        "gone": 9,
    }
    table.commit(table.files([new]))
    now = [{**row, "town": row["place"], "gone": None} for row in old]
    for row in now:
        del row["place"]
    expected = [*now, new]
    for found in (by_pyiceberg(table.uri), by_duckdb("from flights", flights=table.uri)):
        assert in_order(found) == expected
        types = {f.name: str(f.type).removeprefix("large_") for f in found.schema}
        assert types == {f.name: str(f.type) for f in arrow_schema(WIDE)}
    # Bounds in the old manifests have the bytes of the narrow types.
    for condition, rows in {
        "number = -7": [now[0]],
        "number > 2147483646": [now[2], new],
        "number = 2147483647": [now[2]],
        "number < 2147483647": [now[0]],
        "ratio < 0": [now[2]],
        "ratio = 0.5": [now[0]],
        "price = 99.99": [now[2]],
        "price > 100": [new],
        "price < 0": [now[0]],
        "town = 'JFK'": [now[0]],
        "gone = 9": [new],
        "number is null": [now[1]],
    }.items():
        assert in_order(by_pyiceberg(table.uri, row_filter=condition)) == rows, condition
        assert in_order(by_duckdb(f"from flights where {condition}", flights=table.uri)) == rows, (
            condition
        )
    for found in (by_pyiceberg(before), by_duckdb("from flights", flights=before)):
        assert in_order(found) == old
    # A literal that the narrow type cannot hold: PyIceberg 0.12 takes `<` for true in the old files, also for a null. The
    # page docs/how-to/change-columns.md has that; when this fails, PyIceberg has learnt better.
    beyond = "number < 3000000000"
    assert in_order(by_duckdb(f"from flights where {beyond}", flights=table.uri)) == [
        now[0],
        now[2],
    ]
    assert in_order(by_pyiceberg(table.uri, row_filter=beyond)) == (
        now if not partition_by else [now[0], now[2]]
    )


@pytest.mark.parametrize("rule", ["{}", "truncate(2, {})", "bucket(16, {})"])
def test_partitions_of_a_renamed_column_still_prune(
    on_ministack: str, lake_uri: str, rule: str
) -> None:
    """The other partitions' files are deleted: a reader that opened one would fail."""
    table = LakeTable(open_store(lake_uri), partition_by=(rule.format("place"),))
    rows = [
        {**FULL, "seen": datetime(2013, 1, day, tzinfo=UTC), "place": place}
        for day, place in ((1, "JFK"), (2, "LGA"))
    ]
    old = [replace(f, columns=()) for f in table.files(rows)]
    table.commit(old)
    columns = tuple(replace(c, name="town") if c.name == "place" else c for c in COLUMNS)
    (renamed,) = [c.id for c in columns if c.name == "town"]
    table.state = replace(
        table.state,
        columns=columns,
        former_names=(FormerName(id=renamed, name="place"),),
        partition_by=(rule.format("town"),),
    )
    new = {**FULL, "seen": datetime(2013, 1, 3, tzinfo=UTC), "town": "EWR"}
    del new["place"]
    more = [replace(f, columns=()) for f in table.files([new])]
    table.commit(more)
    table.store.delete([old[1].key])
    for town, day in (("JFK", 1), ("EWR", 3)):
        condition = f"town = '{town}'"
        for found in (
            by_pyiceberg(table.uri, row_filter=condition),
            by_duckdb(f"from flights where {condition}", flights=table.uri),
        ):
            assert [(r["town"], r["seen"].day) for r in found.to_pylist()] == [(town, day)]


def test_live_files_on_s3_are_the_reported_ones(table: LakeTable) -> None:
    files = table.files([FULL, NULLS])
    table.commit(files)
    found = live_files(table.store, table.state.metadata or "")
    assert {(f.key, f.size_bytes, f.rows, f.partition) for f in found} == {
        (f.key, f.size_bytes, f.rows, f.partition) for f in files
    }


def test_one_connection_reads_one_snapshot_of_all_tables(table: LakeTable) -> None:
    other = LakeTable(table.store, name="per-hour", partition_by=())
    table.commit(table.files([FULL]))
    other.commit(other.files([NULLS, FULL]))
    with duckdb_connection(
        {"flights": table.uri, "per-hour": other.uri}, environ=os.environ
    ) as connection:
        table.commit(table.files([FULL]))
        sql = 'select (select count(*) from flights), (select count(*) from "per-hour")'
        assert connection.execute(sql).fetchall() == [(1, 2)]


class TestRestrictedConnection:
    @pytest.fixture
    def connection(self, table: LakeTable) -> Any:
        table.commit(table.files([FULL]))
        table.store.create("root.json", b'{"a": 1}')
        with duckdb_connection({"flights": table.uri}, environ=os.environ) as connection:
            yield connection

    def test_only_the_tables_can_be_read(self, connection: Any, table: LakeTable) -> None:
        for sql in (
            "from read_csv('/etc/hostname')",
            f"from read_text('{table.store.uri}/root.json')",
            f"from glob('{table.store.uri}/*')",
            f"from read_text('{os.environ['AWS_ENDPOINT_URL_S3']}/contract/x')",
            "set enable_external_access = true",
            "set allowed_directories = ['/']",
            "load '/tmp/x.duckdb_extension'",
            "install json",
            "attach '/tmp/x.db'",
            "copy flights to '/tmp/x.parquet'",
            "from duckdb_secrets(redact := false)",
        ):
            with pytest.raises(duckdb.Error, match=r"disabled|locked|Cannot change|Cannot access"):
                connection.execute(sql).fetchall()

    def test_the_secret_is_not_shown(self, connection: Any) -> None:
        assert "test-secret" not in str(connection.execute("from duckdb_secrets()").fetchall())


class TestReadingOnly:
    @pytest.mark.parametrize(
        "sql",
        [
            "copy flights to 's3://contract/tables/flights/data/evil.parquet'",
            "explain analyze copy flights to 's3://contract/tables/flights/data/evil.parquet'",
            "drop secret lake",
            "create table x as select 1",
            "select 1; drop view flights",
            "set threads = 1",
            "",
        ],
    )
    def test_statements_that_do_more_than_read_are_refused(self, sql: str) -> None:
        with (
            duckdb.connect() as connection,
            pytest.raises(InvalidRequest, match="expected one SELECT, found"),
        ):
            reading_only(connection, sql)

    def test_text_that_is_not_sql_is_refused(self) -> None:
        with duckdb.connect() as connection, pytest.raises(InvalidRequest, match="selct"):
            reading_only(connection, "selct 1")

    @pytest.mark.parametrize(
        "sql",
        [
            "select 1",
            "from flights",
            "with a as (from flights) from a",
            "describe flights",
            "summarize flights",
        ],
    )
    def test_statements_that_read_are_run(self, sql: str) -> None:
        with duckdb.connect() as connection:
            connection.execute("create view flights as select 1 as a")
            assert connection.execute(reading_only(connection, sql)).fetchall()


class TestErrors:
    ENVIRON: Mapping[str, str] = {
        "AWS_ACCESS_KEY_ID": "key-id",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_REGION": "x",
    }
    URI = "s3://lake/a/tables/t/metadata/00000-x.metadata.json"

    def message(self, kind: type[TallystickError], uri: str, **environ: str) -> str:
        with pytest.raises(kind) as caught:
            duckdb_connection({"t": uri}, environ={**self.ENVIRON, **environ})
        assert "hush" not in repr(caught.value)
        return str(caught.value)

    def test_an_endpoint_that_does_not_answer_is_named_with_its_setting(self) -> None:
        message = self.message(StoreUnavailable, self.URI, AWS_ENDPOINT_URL_S3="http://127.0.0.1:9")
        assert "127.0.0.1:9" in message
        assert "AWS_ENDPOINT_URL_S3" in message

    def test_an_endpoint_that_is_not_a_url_is_refused(self) -> None:
        assert "AWS_ENDPOINT_URL_S3: expected an http or https URL" in self.message(
            SettingsError, self.URI, AWS_ENDPOINT_URL_S3="hush.example:9000"
        )

    def test_a_table_that_is_not_on_s3_is_refused(self) -> None:
        assert "memory://lake" in self.message(
            SettingsError, "memory://lake/tables/t/metadata/x.metadata.json"
        )

    def test_missing_metadata_is_corrupt(self, table: LakeTable) -> None:
        gone = f"{table.store.uri}/tables/t/metadata/00000-x.metadata.json"
        assert gone in self.message(
            Corrupt, gone, AWS_ENDPOINT_URL_S3=os.environ["AWS_ENDPOINT_URL_S3"]
        )

    @pytest.mark.usefixtures("on_ministack")
    def test_missing_credentials_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(SettingsError, match="no AWS credentials were found"):
            duckdb_connection({"t": self.URI}, environ={})

    def test_names_are_quoted(self, table: LakeTable) -> None:
        table.commit(table.files([FULL]))
        with duckdb_connection({"se\"le'ct": table.uri}, environ=os.environ) as connection:
            assert connection.execute('select count(*) from "se""le\'ct"').fetchall() == [(1,)]
