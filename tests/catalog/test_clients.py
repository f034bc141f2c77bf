"""PyIceberg, DuckDB and polars on a catalog: they list, load and read by name exactly the rows of one version."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    UnauthorizedError,
)

from catalog.conftest import duckdb_session, lake_through, serving, session
from support.certificates import self_signed
from support.duckdb_extensions import signatures_unchecked
from support.flights_lake import AS_OF, FlightsLake
from support.flights_lake import flights as columns_of_flights
from tallystick.catalog.server import TlsFiles
from tallystick.catalog.tokens import TokenFile, token_line
from tallystick.lake import Lake
from tallystick.operations.gc import collect
from tallystick.operations.read_snapshot import read_snapshot
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick.tables.reach import IcebergReach
from tallystick.tables.sql import duckdb_connection

Row = dict[str, Any]
TABLES = ["dead_letters", "departures_hourly", "flights"]


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["_kafka_partition"], row["_offset"]))


def arrow(found: duckdb.DuckDBPyConnection) -> list[Row]:
    table: pa.Table = found.to_arrow_table()
    return table.to_pylist()


def by_pyiceberg(catalog: str, _: str, warehouse: str) -> list[Row]:
    rows: pa.Table = session(catalog, warehouse).load_table("flights.flights").scan().to_arrow()
    return rows.to_pylist()


def by_polars(catalog: str, _: str, warehouse: str) -> list[Row]:
    table = session(catalog, warehouse).load_table("flights.flights")
    return pl.scan_iceberg(table).collect().to_dicts()


def by_duckdb(catalog: str, s3: str, warehouse: str) -> list[Row]:
    with duckdb_session(catalog, s3, warehouse) as connection:
        return arrow(connection.execute("from lakes.flights.flights"))


def by_tally_sql(uri: str, *, as_of: int | None = None) -> list[Row]:
    """Return the rows as `tally sql` reads them, from the metadata files."""
    metadata = read_snapshot(uri, as_of=as_of).metadata
    with signatures_unchecked(), duckdb_connection(metadata, environ=os.environ) as connection:
        return arrow(connection.execute("from flights"))


READERS: Mapping[str, Callable[[str, str, str], list[Row]]] = {
    "pyiceberg": by_pyiceberg,
    "polars": by_polars,
    "duckdb": by_duckdb,
}


@pytest.mark.parametrize("reader", READERS)
def test_every_client_reads_the_committed_rows_by_name(
    catalog: str, s3: str, uri: str, flights: FlightsLake, reader: str
) -> None:
    found = in_order(READERS[reader](catalog, s3, ""))
    assert found == in_order(by_tally_sql(uri))
    assert found == in_order(columns_of_flights(flights.committed()))


@pytest.mark.parametrize("reader", READERS)
def test_every_client_reads_an_older_version(
    catalog: str, s3: str, uri: str, flights: FlightsLake, reader: str
) -> None:
    found = in_order(READERS[reader](catalog, s3, f"flights@{AS_OF}"))
    assert found == in_order(by_tally_sql(uri, as_of=AS_OF))
    assert found == in_order(columns_of_flights(flights.committed_as_of()))


@pytest.mark.parametrize("reader", READERS)
def test_a_catalog_that_follows_shows_each_new_session_the_newest_rows(
    catalog: str, s3: str, uri: str, flights: FlightsLake, reader: str
) -> None:
    before = READERS[reader](catalog, s3, "latest")
    flights.commit_day_4()
    after = READERS[reader](catalog, s3, "latest")
    assert in_order(after) == in_order(by_tally_sql(uri))
    assert len(after) > len(before)


def test_names_are_listed_and_unknown_ones_are_not_there(
    catalog: str, s3: str, flights: FlightsLake
) -> None:
    found = session(catalog)
    assert found.list_namespaces() == [("flights",)]
    assert found.list_namespaces("flights") == []
    assert sorted(found.list_tables("flights")) == [("flights", name) for name in TABLES]
    assert found.load_namespace_properties("flights")["tallystick.version"] == "9"
    assert [found.table_exists(f"flights.{name}") for name in ("flights", "x")] == [True, False]
    assert [found.namespace_exists(name) for name in ("flights", "x")] == [True, False]
    with pytest.raises(NoSuchTableError):
        found.load_table("flights.x")
    with pytest.raises(NoSuchTableError):
        found.load_table("x.flights")
    with pytest.raises(NoSuchNamespaceError):
        found.list_tables("x")
    with duckdb_session(catalog, s3) as connection:
        shown = connection.execute("show all tables").fetchall()
        assert sorted(row[2] for row in shown if row[0] == "lakes") == TABLES


def test_snapshots_are_loaded_by_branch_if_the_client_requests_it(catalog: str) -> None:
    few = session(catalog, **{"snapshot-loading-mode": "refs"}).load_table("flights.flights")
    every = session(catalog).load_table("flights.flights")
    assert len(every.metadata.snapshots) > len(few.metadata.snapshots) == 1
    assert few.scan().to_arrow().num_rows == every.scan().to_arrow().num_rows


def test_an_older_snapshot_of_a_table_is_read_by_its_id(catalog: str, uri: str) -> None:
    table = session(catalog).load_table("flights.flights")
    first = table.metadata.snapshots[0].snapshot_id
    rows: pa.Table = table.scan(snapshot_id=first).to_arrow()
    assert 0 < rows.num_rows < table.scan().to_arrow().num_rows


def departed(session: RestCatalog) -> tuple[dict[str, int], dict[str, int]]:
    """Return the departures by airport, of the hourly table and of the flights."""
    hourly: pa.Table = session.load_table("flights.departures_hourly").scan().to_arrow()
    one_by_one: pa.Table = session.load_table("flights.flights").scan().to_arrow()
    counted: Counter[str] = Counter()
    for row in hourly.to_pylist():
        counted[row["origin"]] += row["departures"]
    return dict(counted), dict(Counter(one_by_one.column("origin").to_pylist()))


def test_all_tables_of_a_session_are_of_one_version(catalog: str, flights: FlightsLake) -> None:
    """A commit between the loads of two tables shows in neither of them; a new session has both."""
    begun, begun_too = session(catalog), session(catalog)
    before = departed(begun)
    assert before[0] == before[1]
    first = begun_too.load_table("flights.departures_hourly")
    flights.commit_day_4()
    assert departed(begun) == before
    second = begun_too.load_table("flights.flights")
    assert first.metadata_location != second.metadata_location
    assert sum(before[1].values()) == second.scan().to_arrow().num_rows
    after = departed(session(catalog))
    assert after[0] == after[1]
    assert sum(after[0].values()) > sum(before[0].values())


def test_duckdb_joins_tables_of_one_version_while_commits_land(
    catalog: str, s3: str, flights: FlightsLake
) -> None:
    query = (
        "select (select sum(departures) from lakes.flights.departures_hourly), "
        "(select count(*) from lakes.flights.flights)"
    )
    with duckdb_session(catalog, s3) as connection:
        connection.execute("select count(*) from lakes.flights.flights").fetchall()
        flights.commit_day_4()
        ((hourly, rows),) = connection.execute(query).fetchall()
        assert hourly == rows
    with duckdb_session(catalog, s3) as connection:
        ((hourly_now, rows_now),) = connection.execute(query).fetchall()
        assert hourly_now == rows_now > rows


def test_two_lakes_are_two_namespaces_of_one_session(s3: str, uri: str) -> None:
    first = FlightsLake(open_store(uri))
    other = FlightsLake(open_store(f"{uri}-too"))
    lakes = {
        "flights": lake_through("flights", uri, s3),
        "others": lake_through("others", f"{uri}-too", s3),
    }
    with serving(lakes, s3) as url:
        begun = session(url)
        assert begun.list_namespaces() == [("flights",), ("others",)]
        first.commit_day_4()
        rows = {
            name: begun.load_table(f"{name}.flights").scan().to_arrow().num_rows for name in lakes
        }
        assert rows == dict.fromkeys(lakes, len(other.committed()))
        assert session(url, "others").list_namespaces() == [("others",)]


# ---------------------------------------------------------------- writes, tokens, TLS


def test_clients_are_refused_when_they_write(catalog: str, s3: str, uri: str) -> None:
    found = session(catalog)
    # The client itself refuses what the session does not list.
    for write in (
        lambda: found.create_namespace("x"),
        lambda: found.drop_table("flights.flights"),
        lambda: found.rename_table("flights.flights", "flights.x"),
    ):
        with pytest.raises(NotImplementedError, match="does not support endpoint"):
            write()
    # And the server refuses it, too.
    for member in ("POST", "DELETE"):
        prefix = found.properties["prefix"]
        url = f"{catalog}/v1/{prefix}/namespaces/flights/tables/flights"
        assert found._session.request(member, url, json={}).status_code == 403
    root = open_store(uri).get("root.json")
    with duckdb_session(catalog, s3) as connection:
        for sql in (
            "create schema lakes.x",
            "create table lakes.flights.x as select 1 as a",
            "drop table lakes.flights.flights",
            # DuckDB has uploaded the rows by then; only the commit is refused.
            "insert into lakes.flights.departures_hourly from lakes.flights.departures_hourly",
        ):
            with pytest.raises(duckdb.Error, match=r"Forbidden|403|read-only|not supported"):
                connection.execute(sql)
    assert open_store(uri).get("root.json") == root
    store = open_store(uri)
    found = collect(Lake(store, system_runtime(), proven=True), IcebergReach(store))
    assert found.foreign != ()


def test_a_token_is_needed_and_shows_its_lakes_only(
    s3: str, uri: str, flights: FlightsLake, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{token_line('good', ['flights'])}\n{token_line('foreign', ['others'])}\n")
    lakes = {"flights": lake_through("flights", uri, s3)}
    with serving(lakes, s3, tokens=TokenFile(file)) as url:
        with pytest.raises(UnauthorizedError):
            session(url)
        with pytest.raises(UnauthorizedError):
            session(url, token="bad")
        with pytest.raises(RESTError, match="NoSuchWarehouseException"):
            session(url, token="foreign")
        with pytest.raises(
            RESTError, match="NoSuchWarehouseException: Lake does not exist: flights"
        ):
            session(url, "flights", token="foreign")
        found = session(url, token="good").load_table("flights.flights")
        assert found.scan().to_arrow().num_rows == len(flights.committed())
        with duckdb_session(url, s3, login="TOKEN 'good'") as connection:
            ((rows,),) = connection.execute("select count(*) from lakes.flights.flights").fetchall()
            assert rows == len(flights.committed())
        with (
            pytest.raises(duckdb.Error, match=r"401|Unauthorized|NotAuthorized"),
            duckdb_session(url, s3, login="TOKEN 'bad'") as connection,
        ):
            connection.execute("from lakes.flights.flights")


def test_a_catalog_with_a_certificate_speaks_only_tls(
    s3: str, uri: str, flights: FlightsLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)  # requests prefers them to the client's own setting
    pem = self_signed(tmp_path / "server.pem")
    lakes = {"flights": lake_through("flights", uri, s3)}
    with serving(lakes, s3, tls=TlsFiles(certificate=pem, key=pem)) as url:
        found = RestCatalog("lakes", uri=url, ssl={"cabundle": str(pem)})  # type: ignore[arg-type]
        assert found.list_namespaces() == [("flights",)]
        found._session.close()
        with pytest.raises(Exception, match="certificate verify failed"):
            session(url)
        with pytest.raises(Exception, match=r"Connection|RemoteDisconnected|aborted"):
            session(url.replace("https:", "http:"))
