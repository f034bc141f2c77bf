"""On a server that checks credentials: the catalog sends none, and clients read with their own as the page describes."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import duckdb
import pytest
from pyiceberg.catalog.rest import RestCatalog

from catalog.conftest import BUCKET, lake_through, serving, session
from support.flights_lake import FlightsLake
from tallystick.store.open import open_store
from tallystick.tables.sql import EXTENSIONS, _extension_file
from tallystick_devstack.testing.servers import aws_environment
from tallystick_devstack.testing.versitygw import go, versitygw

COUNT = "select count(*) from lakes.flights.flights"
WITHOUT_LOGIN = "AUTHORIZATION_TYPE 'none'"


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    """Yield the address of a server that checks the signature of each request."""
    if go() is None:
        pytest.skip("versitygw: expected Go to build it, found none")
    with versitygw() as url:
        yield url


@pytest.fixture
def served(
    strict: str, monkeypatch: pytest.MonkeyPatch, _only_this_server: None
) -> Iterator[tuple[str, str, int]]:
    """Yield the catalog, its S3 server, and the rows of its lake; the environment then has no credentials."""
    for name, value in aws_environment(strict).items():
        monkeypatch.setenv(name, value)
    bucket = boto3.resource("s3").Bucket(BUCKET)
    bucket.create()
    uri = f"s3://{BUCKET}/flights"
    lake = FlightsLake(open_store(uri))
    with (
        serving({"flights": lake_through("flights", uri, strict)}, strict) as url,
        monkeypatch.context() as without,
    ):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_S3"):
            without.delenv(name)
        yield url, strict, len(lake.committed())
    bucket.objects.all().delete()
    bucket.delete()


def attached(catalog: str, *statements: str, options: str = "") -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"autoload_known_extensions": False})
    for extension in EXTENSIONS:
        connection.execute(f"LOAD '{_extension_file(extension)}'")
    for statement in statements:
        connection.execute(statement)
    connection.execute(
        f"ATTACH '' AS lakes (TYPE iceberg, ENDPOINT '{catalog}', {WITHOUT_LOGIN}{options})"
    )
    return connection


def test_the_catalog_gives_no_right_to_read_the_rows(served: tuple[str, str, int]) -> None:
    catalog, _, _ = served
    table = session(catalog).load_table("flights.flights")
    assert not {name for name in table.io.properties if "key" in name or "secret" in name}
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        table.scan().to_arrow()
    with attached(catalog) as connection, pytest.raises(duckdb.Error, match="403"):
        connection.execute(COUNT)


def test_clients_read_with_credentials_of_the_environment(
    served: tuple[str, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, _, rows = served
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    assert session(catalog).load_table("flights.flights").scan().to_arrow().num_rows == rows
    with attached(catalog) as connection:
        assert connection.execute(COUNT).fetchall() == [(rows,)]


def test_clients_read_with_credentials_of_their_own(served: tuple[str, str, int]) -> None:
    catalog, s3, rows = served
    keys = {"s3.access-key-id": "test", "s3.secret-access-key": "test-secret"}
    found = RestCatalog("lakes", uri=catalog, **keys).load_table("flights.flights")
    assert found.scan().to_arrow().num_rows == rows
    secret = (
        "CREATE SECRET (TYPE s3, KEY_ID 'test', SECRET 'test-secret', REGION 'us-east-1', "
        f"ENDPOINT '{s3.removeprefix('http://')}', USE_SSL false, URL_STYLE 'path')"
    )
    with attached(catalog, secret, options=", ACCESS_DELEGATION_MODE 'none'") as connection:
        assert connection.execute(COUNT).fetchall() == [(rows,)]
    # The page describes that DuckDB leaves the secret out otherwise; if this fails, DuckDB has learnt better.
    with attached(catalog, secret) as connection, pytest.raises(duckdb.Error, match="403"):
        connection.execute(COUNT)
