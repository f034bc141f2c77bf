"""Lakes on an S3 server, the catalog that serves them over HTTP, and real clients of it."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import boto3
import duckdb
import pytest
from pyiceberg.catalog.rest import RestCatalog

from support.duckdb_extensions import UNCHECKED
from support.flights_lake import FlightsLake
from tallystick.catalog.app import build
from tallystick.catalog.lakes import ServedLake
from tallystick.catalog.results import client_settings
from tallystick.catalog.server import TlsFiles, bound, server
from tallystick.catalog.tokens import TokenFile
from tallystick.store.open import open_store
from tallystick.store.s3 import S3Settings, S3Store
from tallystick.tables.sql import EXTENSIONS, _extension_file
from tallystick_devstack.testing.servers import aws_environment, ministack

BUCKET = "lake"
DEADLINE_S = 60.0
ANSWER_S = 20.0
_numbers = itertools.count()


@pytest.fixture(scope="package")
def s3() -> Iterator[str]:
    """Yield the address of an S3 server with a bucket."""
    with ministack() as url:
        boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id="test",
            aws_secret_access_key="test-secret",
            region_name="us-east-1",
        ).create_bucket(Bucket=BUCKET)
        yield url


@pytest.fixture(autouse=True)
def _only_this_server(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "TALLYSTICK_"))]:
        monkeypatch.delenv(name)
    for name, value in aws_environment(s3).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def uri() -> str:
    """Return the URI of a lake that no other test uses."""
    return f"s3://{BUCKET}/test-{next(_numbers)}/flights"


@pytest.fixture
def flights(uri: str) -> FlightsLake:
    return FlightsLake(open_store(uri))


def lake_through(name: str, uri: str, endpoint: str, *, answer_s: float = ANSWER_S) -> ServedLake:
    """Return a lake that the catalog reads at an endpoint."""
    settings = S3Settings(endpoint_url=endpoint).answering_within(answer_s)
    return ServedLake(name, S3Store(uri, settings=settings), answer_s=answer_s, fresh_s=0)


@contextmanager
def serving(
    lakes: Mapping[str, ServedLake],
    s3: str,
    *,
    tokens: TokenFile | None = None,
    tls: TlsFiles | None = None,
) -> Iterator[str]:
    """Serve lakes on a free port, and yield the address."""
    settings = {name: client_settings(s3, "us-east-1") for name in lakes}
    with bound("127.0.0.1", 0) as listening:
        running = server(build(lakes, tokens=tokens, settings=settings), tls=tls)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            until(lambda: running.started)
            scheme = "http" if tls is None else "https"
            yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def until(condition: object) -> None:
    """Wait until a condition is true, or fail after a deadline."""
    ends_s = time.monotonic() + DEADLINE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < ends_s
        time.sleep(0.02)


@pytest.fixture
def catalog(flights: FlightsLake, uri: str, s3: str) -> Iterator[str]:
    """Yield the address of a catalog of the lake of flights."""
    with serving({"flights": lake_through("flights", uri, s3)}, s3) as url:
        yield url


def session(catalog: str, warehouse: str = "", **properties: str) -> RestCatalog:
    """Return a new session of PyIceberg."""
    return RestCatalog("lakes", uri=catalog, warehouse=warehouse, **properties)


@contextmanager
def duckdb_session(
    catalog: str, s3: str, warehouse: str = "", login: str = "AUTHORIZATION_TYPE 'none'"
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a DuckDB with the catalog attached as `lakes`."""
    with duckdb.connect(
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            **UNCHECKED,
        }
    ) as connection:
        for extension in EXTENSIONS:
            connection.execute(f"LOAD '{_extension_file(extension)}'")
        connection.execute(
            "CREATE SECRET (TYPE s3, KEY_ID 'test', SECRET 'test-secret', REGION 'us-east-1', "
            f"ENDPOINT '{s3.removeprefix('http://')}', USE_SSL false, URL_STYLE 'path')"
        )
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            f"ATTACH '{warehouse}' AS lakes (TYPE iceberg, ENDPOINT '{catalog}', {login})"
        )
        yield connection
