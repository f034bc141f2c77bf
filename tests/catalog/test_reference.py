"""Iceberg's own REST server, with the same metadata files registered, answers each request that reads like this catalog.

Not compared: what only one of them adds (settings for clients, properties of a namespace, the stack of an error), and the
text of the next page's token.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from catalog.conftest import BUCKET, lake_through, serving
from support.flights_lake import FlightsLake
from support.iceberg_server import iceberg_server
from tallystick.operations.read_snapshot import read_snapshot
from tallystick.store.open import open_store
from tallystick_devstack.testing.servers import aws_environment

TABLES = ("dead_letters", "departures_hourly", "flights")
READS = [
    "GET namespaces",
    "GET namespaces?pageToken=",
    "GET namespaces?parent=flights",
    "GET namespaces?parent=flights&pageToken=",
    "GET namespaces?parent=nothing",
    "GET namespaces/flights",
    "GET namespaces/nothing",
    "HEAD namespaces/flights",
    "HEAD namespaces/nothing",
    "GET namespaces/flights/tables",
    "GET namespaces/flights/tables?pageToken=&pageSize=2",
    "GET namespaces/flights/tables?pageToken=&pageSize=3",
    "GET namespaces/nothing/tables",
    "GET namespaces/flights/tables/nothing",
    "GET namespaces/nothing/tables/flights",
    "HEAD namespaces/flights/tables/nothing",
    "HEAD namespaces/nothing/tables/flights",
    *(f"HEAD namespaces/flights/tables/{name}" for name in TABLES),
    *(
        f"GET namespaces/flights/tables/{name}{query}"
        for name in TABLES
        for query in ("", "?snapshots=all", "?snapshots=refs")
    ),
]


@pytest.fixture(scope="module")
def servers(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Yield the address of this catalog with its prefix, and that of Iceberg's server, for one lake."""
    uri = f"s3://{BUCKET}/reference/flights"
    log = tmp_path_factory.mktemp("reference") / "server.log"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in aws_environment(s3).items():
            patch.setenv(name, value)
        FlightsLake(open_store(uri))
        with (
            serving({"flights": lake_through("flights", uri, s3)}, s3) as ours,
            iceberg_server(log, s3_url=s3) as theirs,
            RestCatalog("reference", uri=theirs) as registering,
        ):
            registering.create_namespace("flights")
            for name, location in read_snapshot(uri).metadata.items():
                registering.register_table(f"flights.{name}", location)
            yield f"{ours}/v1/latest", f"{theirs}/v1"


@pytest.mark.parametrize("read", READS)
def test_icebergs_own_server_answers_a_read_alike(servers: tuple[str, str], read: str) -> None:
    method, _, path = read.partition(" ")
    ours, theirs = (seen(method, f"{address}/{path}") for address in servers)
    assert ours == theirs


def seen(method: str, url: str) -> tuple[int, Any]:
    """Return the status and the form of an answer, without what only one of the servers adds."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as got:
            status, body = got.status, got.read()
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, error.read()
    if not body:
        return status, None
    form = json.loads(body)
    if "error" in form:
        form["error"].pop("stack", None)
    form.pop("config", None)
    form.pop("properties", None)
    if form.get("next-page-token") is not None:
        form["next-page-token"] = "a token"
    for schema in form.get("metadata", {}).get("schemas", ()):
        # PyIceberg writes the empty list, Iceberg's server leaves it out.
        if schema.get("identifier-field-ids") == []:
            del schema["identifier-field-ids"]
    return status, form
