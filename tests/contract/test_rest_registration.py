"""Tables in a catalog with Iceberg's REST API: right after each lost answer, never overwritten, read by PyIceberg."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyiceberg.catalog.rest import RestCatalog

from support.catalogs import register_all, registered_lake, wanted_pointers
from support.glue import at_call
from support.iceberg_server import iceberg_server
from support.rest_catalog import RestCatalogServer, running
from support.small_lake import days
from tallystick.connections.http import HttpSettings
from tallystick.errors import (
    InvalidPipeline,
    OutputBusy,
    OutputRefused,
    OutputUnavailable,
    SettingsError,
    TallystickError,
)
from tallystick.outputs.registrations import RestRegistration
from tallystick.outputs.registrations.port import Pointer
from tallystick.outputs.registrations.rest import RestRegistrar
from tallystick.store.s3 import S3Settings, S3Store

DECLARED = RestRegistration(name="company", namespace="small", warehouse="main")
TABLES = ("events", "per_kind")
SECRET = "secret-of-the-catalog"


@pytest.fixture
def catalog() -> Iterator[RestCatalogServer]:
    """Run a catalog with an empty namespace."""
    with running(RestCatalogServer()) as server:
        yield server


def registrar_of(
    catalog: RestCatalogServer, declared: RestRegistration = DECLARED, **how: Any
) -> RestRegistrar:
    """Return a registrar of the catalog."""
    settings = HttpSettings(
        **{"base_url": catalog.url, "bearer_token": SECRET, "timeout_s": 20, **how}
    )
    return RestRegistrar(declared, lambda: settings)


def pointers(number: int) -> list[Pointer]:
    """Return the pointers of the version whose metadata files have this number."""
    return [
        Pointer(
            table=name,
            uri=f"s3://lakes/small/tables/{name}/metadata/{number:05d}-a{number}.metadata.json",
            columns=(),
        )
        for name in TABLES
    ]


def uris(number: int) -> dict[str, str]:
    """Return the pointers of a version by table."""
    return {one.table: one.uri for one in pointers(number)}


def test_pyiceberg_reads_every_table_of_the_last_commit(
    lake_uri: str, moto_url: str, session: boto3.session.Session
) -> None:
    store = S3Store(lake_uri, settings=S3Settings(endpoint_url=moto_url), session=session)
    small = registered_lake(DECLARED, store=store)
    small.run(days(1, 2))

    def metadata(uri: str) -> bytes:
        found = store.get(uri.removeprefix(f"{lake_uri}/"))
        assert found is not None
        return found.body

    with running(RestCatalogServer(metadata)) as server:
        for first in (2, 3):
            small.run(days(first, first + 1))
            done, failed = register_all(small, registrar_of(server))
            assert (len(done), failed) == (1, ())
            assert server.pointers == wanted_pointers(small)
            reader = RestCatalog(
                "company",
                uri=server.url,
                warehouse="main",
                **{
                    "s3.endpoint": moto_url,
                    "s3.access-key-id": "test",
                    "s3.secret-access-key": "test-secret",
                    "s3.region": "us-east-1",
                },
            )
            rows = reader.load_table("small.events").scan().to_arrow().num_rows
            reader.close()
    assert rows == 3 * 5


def test_on_icebergs_own_server_a_first_registration_is_read_and_a_second_needs_overwrite(
    ministack_url: str, session: boto3.session.Session, tmp_path: Path
) -> None:
    """Its JdbcCatalog refuses `overwrite`: the error states the reason, and the pointers stay."""
    uri = "s3://contract/registered-by-rest"
    store = S3Store(uri, settings=S3Settings(endpoint_url=ministack_url), session=session)
    declared = RestRegistration(name="company", namespace="small.lake")
    small = registered_lake(declared, store=store)
    small.run(days(1, 2))
    with iceberg_server(tmp_path / "server.log", s3_url=ministack_url) as url:
        reader = RestCatalog("company", uri=url)
        reader.create_namespace("small.lake")
        registrar = RestRegistrar(declared, lambda: HttpSettings(base_url=url))
        done, failed = register_all(small, registrar)
        assert (len(done), failed) == (1, ())
        first = wanted_pointers(small)
        for name, pointer in first.items():
            assert reader.load_table(f"small.lake.{name}").metadata_location == pointer
        assert registrar.register([]) == {}
        small.run(days(2, 3))
        _, (refused,) = register_all(small, registrar)
        assert isinstance(refused.error, OutputRefused)
        assert "does not support overwrite" in refused.error.hint
        for name, pointer in first.items():
            assert reader.load_table(f"small.lake.{name}").metadata_location == pointer
        reader.close()


STEPS = [
    f"{when} {call} {table}"
    for call in ("GET", "register")
    for table in TABLES
    for when in ("before", "after")
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("first", [True, False])
def test_the_pointers_are_right_after_the_retry_of_a_publisher_that_lost_any_answer(
    catalog: RestCatalogServer, step: str, first: bool
) -> None:
    if not first:
        registrar_of(catalog).register(pointers(1))

    def lose() -> None:
        raise ConnectionError

    catalog.step = at_call(step, lose)
    with pytest.raises(
        OutputUnavailable, match=r"registration company: namespace small of the REST"
    ):
        registrar_of(catalog).register(pointers(2))
    assert registrar_of(catalog).register(pointers(2)) == {}
    assert catalog.pointers == uris(2)


def test_a_pointer_that_is_right_is_not_written_again(catalog: RestCatalogServer) -> None:
    registrar_of(catalog).register(pointers(1))
    catalog.asked.clear()
    registrar_of(catalog).register(pointers(1))
    assert catalog.asked == ["GET config", "GET events", "GET per_kind"]


def test_each_request_has_the_credentials_of_the_connection(catalog: RestCatalogServer) -> None:
    registrar_of(catalog).register(pointers(1))
    assert {one["Authorization"] for one in catalog.headers} == {f"Bearer {SECRET}"}


def test_a_table_that_another_process_creates_meanwhile_is_not_overwritten(
    catalog: RestCatalogServer,
) -> None:
    other = "s3://finance/metadata/00000-x.metadata.json"
    catalog.step = at_call(
        "before register per_kind", lambda: catalog.pointers.update(per_kind=other)
    )
    with pytest.raises(OutputBusy, match="409"):
        registrar_of(catalog).register(pointers(1))
    assert catalog.pointers["per_kind"] == other
    with pytest.raises(OutputRefused, match=other):
        registrar_of(catalog).register(pointers(1))


def test_a_foreign_table_is_refused_and_nothing_is_changed(catalog: RestCatalogServer) -> None:
    catalog.pointers["per_kind"] = "s3://finance/tables/per_kind/metadata/00000-x.metadata.json"
    before = dict(catalog.pointers)
    with pytest.raises(OutputRefused, match="s3://finance"):
        registrar_of(catalog).register(pointers(1))
    assert catalog.pointers == before


def test_a_pointer_that_is_later_stays_and_no_other_is_changed(catalog: RestCatalogServer) -> None:
    registrar_of(catalog).register(pointers(1))
    catalog.pointers["events"] = uris(4)["events"]
    assert registrar_of(catalog).register(pointers(2)) == {"events": uris(4)["events"]}
    assert catalog.pointers == {"events": uris(4)["events"], "per_kind": uris(1)["per_kind"]}


def test_a_catalog_without_overwrite_is_refused_with_the_reason(catalog: RestCatalogServer) -> None:
    registrar_of(catalog).register(pointers(1))
    catalog.overwrites = False
    with pytest.raises(OutputRefused, match="406") as caught:
        registrar_of(catalog).register(pointers(2))
    assert "does not support overwrite" in caught.value.hint


def test_a_catalog_that_writes_metadata_of_its_own_is_refused(catalog: RestCatalogServer) -> None:
    catalog.answers["register events"] = (200, '{"metadata-location": "s3://lakes/small/own.json"}')
    with pytest.raises(OutputRefused, match=r"found s3://lakes/small/own\.json") as caught:
        registrar_of(catalog).register(pointers(1))
    assert "metadata of its own" in caught.value.hint


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (401, SettingsError, "credentials"),
        (403, SettingsError, "credentials"),
        (404, SettingsError, "read the lake's bucket"),
        (400, OutputRefused, "correct it in the catalog"),
        (409, OutputBusy, "wait for the next try"),
        (429, OutputUnavailable, "wait for the next try"),
        (503, OutputUnavailable, "wait for the next try"),
    ],
)
def test_each_refusal_becomes_the_error_with_what_to_do_next(
    catalog: RestCatalogServer, status: int, kind: type[TallystickError], hint: str
) -> None:
    catalog.answers["register events"] = (status, f'{{"error": {{"message": "stated {SECRET}"}}}}')
    with pytest.raises(kind, match=rf"registration company: .*{status} .*stated \*\*\*") as caught:
        registrar_of(catalog).register(pointers(1))
    assert hint in caught.value.hint
    assert SECRET not in str(caught.value)


def test_a_missing_namespace_is_an_error_of_the_settings(catalog: RestCatalogServer) -> None:
    catalog.namespaces.clear()
    with pytest.raises(SettingsError, match="NoSuchNamespace") as caught:
        registrar_of(catalog).register(pointers(1))
    assert "create the namespace" in caught.value.hint
    assert catalog.pointers == {}


def test_a_connection_without_an_address_is_an_error_of_the_settings() -> None:
    with pytest.raises(SettingsError, match="has no base_url"):
        RestRegistrar(DECLARED, HttpSettings).register(pointers(1))


def test_the_levels_of_a_namespace_are_separated_as_the_catalog_states(
    catalog: RestCatalogServer,
) -> None:
    catalog.namespaces = {"sales.small"}
    declared = RestRegistration(name="company", namespace="sales.small", warehouse="main")
    assert registrar_of(catalog, declared).register(pointers(1)) == {}
    assert catalog.pointers == uris(1)


@pytest.mark.parametrize(
    "how", [{"namespace": ""}, {"namespace": "a..b"}, {"namespace": "a/b"}, {"warehouse": "a b"}]
)
def test_a_declaration_that_no_catalog_accepts_is_refused_at_once(how: dict[str, str]) -> None:
    with pytest.raises(InvalidPipeline, match=f"registration company: {next(iter(how))}"):
        RestRegistration(**{"name": "company", "namespace": "small", **how})


def test_an_answer_that_is_no_json_is_an_error(catalog: RestCatalogServer) -> None:
    registrar: Callable[..., Any] = registrar_of(catalog).register
    catalog.answers["GET events"] = (200, "<html>")
    with pytest.raises(OutputRefused, match="found "):
        registrar(pointers(1))
