"""Tables in AWS Glue (moto): right after each kill and lost answer, never set back, read by PyIceberg's GlueCatalog.

moto does not check the version of a table in UpdateTable, as Glue does: `support.glue` adds the check. Nothing here was
run against AWS itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog.glue import GlueCatalog

from support.catalogs import register_all, registered_lake, wanted_pointers
from support.fake_output import Killed
from support.glue import CheckedGlue, at_call, die, lose
from support.small_lake import days
from tallystick.errors import (
    InvalidPipeline,
    OutputBusy,
    OutputRefused,
    OutputUnavailable,
    SettingsError,
)
from tallystick.format.columns import TableColumn
from tallystick.outputs.registrations import GlueRegistration
from tallystick.outputs.registrations.glue import GlueRegistrar, glue_type
from tallystick.outputs.registrations.port import Pointer
from tallystick.store.s3 import S3Settings, S3Store

TABLES = ("events", "per_kind")
_numbers = itertools.count()


@pytest.fixture
def database(glue: Any) -> str:
    """Create a database that no other test uses."""
    name = f"small_{next(_numbers)}"
    glue.create_database(DatabaseInput={"Name": name})
    return name


@pytest.fixture(scope="module")
def glue(moto_url: str, session: boto3.session.Session) -> Iterator[Any]:
    """Return a boto3 client of Glue on moto."""
    client: Any = session.client("glue", endpoint_url=moto_url)
    yield client
    client.close()


def registrar_of(
    glue: Any, database: str, step: Callable[[str], None] = lambda _: None
) -> GlueRegistrar:
    """Return a registrar of a database."""
    declared = GlueRegistration(name="company", database=database)
    return GlueRegistrar(declared, lambda: CheckedGlue(glue, step))


def pointers(number: int) -> list[Pointer]:
    """Return the pointers of the version whose metadata files have this number."""
    return [
        Pointer(
            table=name,
            uri=f"s3://lakes/small/tables/{name}/metadata/{number:05d}-a{number}.metadata.json",
            columns=(TableColumn(id=1, name="n", type="long", required=True),),
        )
        for name in TABLES
    ]


def uris(number: int) -> dict[str, str]:
    """Return the pointers of a version by table."""
    return {one.table: one.uri for one in pointers(number)}


def stored(glue: Any, database: str) -> dict[str, str]:
    """Return the pointers in Glue by table."""
    tables = glue.get_tables(DatabaseName=database)["TableList"]
    return {one["Name"]: one["Parameters"]["metadata_location"] for one in tables}


# ---------------------------------------------------------------- a whole lake, read by PyIceberg


def test_pyiceberg_reads_every_table_of_the_last_commit(
    glue: Any, database: str, lake_uri: str, moto_url: str, session: boto3.session.Session
) -> None:
    declared = GlueRegistration(name="company", database=database)
    store = S3Store(lake_uri, settings=S3Settings(endpoint_url=moto_url), session=session)
    small = registered_lake(declared, store=store)
    small.run(days(1, 2))
    catalog = GlueCatalog(
        "company",
        client=glue,
        **{
            "s3.endpoint": moto_url,
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test-secret",
            "s3.region": "us-east-1",
        },
    )
    for first in (2, 3):
        small.run(days(first, first + 1))
        done, failed = register_all(small, registrar_of(glue, database))
        assert (len(done), failed) == (1, ())
        assert stored(glue, database) == wanted_pointers(small)
        names = [name for _, name in catalog.list_tables(database)]
        assert sorted(names) == sorted(wanted_pointers(small))
        rows = catalog.load_table(f"{database}.events").scan().to_arrow().num_rows
    assert rows == 3 * 5
    (kind,) = [
        one
        for one in glue.get_table(DatabaseName=database, Name="events")["Table"][
            "StorageDescriptor"
        ]["Columns"]
        if one["Name"] == "kind"
    ]
    assert (kind["Type"], kind["Parameters"]["iceberg.field.optional"]) == ("string", "true")


# ---------------------------------------------------------------- crashes


STEPS = [
    f"{when} {call} {table}"
    for call in ("get_table", "{write}")
    for table in TABLES
    for when in ("before", "after")
]


@pytest.mark.parametrize("happens", [die, lose])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("write", ["create_table", "update_table"])
def test_the_pointers_are_right_after_the_retry_of_a_publisher_that_ended_at_any_call(
    glue: Any, database: str, step: str, write: str, happens: Callable[[], None]
) -> None:
    if write == "update_table":
        registrar_of(glue, database).register(pointers(1))
    at = at_call(step.format(write=write), happens)
    with pytest.raises((Killed, OutputUnavailable)):
        registrar_of(glue, database, at).register(pointers(2))
    before = stored(glue, database)
    assert set(before.values()) <= {*uris(1).values(), *uris(2).values()}
    assert registrar_of(glue, database).register(pointers(2)) == {}
    assert stored(glue, database) == uris(2)


def test_a_pointer_that_is_right_is_not_written_again(glue: Any, database: str) -> None:
    registrar_of(glue, database).register(pointers(1))
    client = CheckedGlue(glue)
    declared = GlueRegistration(name="company", database=database)
    GlueRegistrar(declared, lambda: client).register(pointers(1))
    assert client.made == ["get_table events", "get_table per_kind"]


# ---------------------------------------------------------------- two publishers


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("write", ["create_table", "update_table"])
def test_a_publisher_that_is_late_sets_no_pointer_back(
    glue: Any, database: str, step: str, write: str
) -> None:
    if write == "update_table":
        registrar_of(glue, database).register(pointers(1))

    def other() -> None:
        # It may find that this one has created a table since it has read it.
        for _ in range(2):
            registrar_of(glue, database).register(pointers(3))

    late = registrar_of(glue, database, at_call(step.format(write=write), other))
    with suppress(OutputBusy):
        late.register(pointers(2))
    # No table has the earlier version once the later one was registered.
    assert stored(glue, database) == uris(3)
    assert registrar_of(glue, database).register(pointers(3)) == {}
    assert registrar_of(glue, database).register(pointers(2)) == uris(3)
    assert stored(glue, database) == uris(3)


def test_an_update_without_the_version_is_detected(glue: Any, database: str) -> None:
    registrar_of(glue, database).register(pointers(1))
    real = CheckedGlue.update_table

    def unchecked(client: CheckedGlue, **how: Any) -> Any:
        return real(client, **{name: value for name, value in how.items() if name != "VersionId"})

    other = at_call(
        "before update_table events",
        lambda: registrar_of(glue, database).register(pointers(3)) and None,
    )
    with patch.object(CheckedGlue, "update_table", unchecked):
        registrar_of(glue, database, other).register(pointers(2))
    assert stored(glue, database)["events"] == uris(2)["events"]  # what the version prevents


# ---------------------------------------------------------------- refusals and errors


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        (
            {
                "table_type": "ICEBERG",
                "metadata_location": "s3://finance/metadata/00000-x.metadata.json",
            },
            "s3://finance",
        ),
        ({"table_type": "DELTA"}, "found DELTA"),
        ({"classification": "parquet"}, "found EXTERNAL_TABLE"),
    ],
)
def test_a_foreign_table_is_refused_and_nothing_is_changed(
    glue: Any, database: str, parameters: dict[str, str], why: str
) -> None:
    glue.create_table(
        DatabaseName=database,
        TableInput={"Name": "per_kind", "TableType": "EXTERNAL_TABLE", "Parameters": parameters},
    )
    with pytest.raises(OutputRefused, match=why):
        registrar_of(glue, database).register(pointers(1))
    (only,) = glue.get_tables(DatabaseName=database)["TableList"]
    assert (only["Name"], only["Parameters"]) == ("per_kind", parameters)


def test_a_pointer_that_is_later_stays_and_no_other_is_changed(glue: Any, database: str) -> None:
    registrar_of(glue, database).register(pointers(1))
    registrar_of(glue, database).register(pointers(4)[:1])
    assert registrar_of(glue, database).register(pointers(2)) == {"events": uris(4)["events"]}
    assert stored(glue, database) == {"events": uris(4)["events"], "per_kind": uris(1)["per_kind"]}


def test_what_others_have_added_to_a_table_is_kept(glue: Any, database: str) -> None:
    registrar_of(glue, database).register(pointers(1))
    found = glue.get_table(DatabaseName=database, Name="events")["Table"]
    glue.update_table(
        DatabaseName=database,
        TableInput={
            "Name": "events",
            "Description": "all events",
            "Owner": "sales",
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {**found["Parameters"], "team": "sales"},
        },
    )
    registrar_of(glue, database).register(pointers(2))
    now = glue.get_table(DatabaseName=database, Name="events")["Table"]
    assert (now["Description"], now["Owner"], now["Parameters"]["team"]) == (
        "all events",
        "sales",
        "sales",
    )
    assert now["Parameters"]["previous_metadata_location"] == uris(1)["events"]
    assert now["StorageDescriptor"]["Location"] == "s3://lakes/small/tables/events"


def test_a_missing_database_is_an_error_of_the_settings(glue: Any) -> None:
    with pytest.raises(SettingsError, match="EntityNotFoundException") as caught:
        registrar_of(glue, "missing").register(pointers(1))
    assert "create the database" in caught.value.hint


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AccessDeniedException", SettingsError),
        ("InvalidInputException", OutputRefused),
        ("ThrottlingException", OutputUnavailable),
        ("ConcurrentModificationException", OutputBusy),
    ],
)
def test_each_refusal_of_glue_becomes_the_error_with_what_to_do_next(
    glue: Any, database: str, code: str, kind: type[Exception]
) -> None:
    def refuse() -> None:
        raise ClientError({"Error": {"Code": code, "Message": "stated Glue."}}, "CreateTable")

    registrar = registrar_of(glue, database, at_call("before create_table events", refuse))
    with pytest.raises(
        kind, match=rf"registration company: database small_\d+ of AWS Glue: {code}: stated Glue\."
    ):
        registrar.register(pointers(1))


def test_the_client_uses_the_region_of_the_declaration_and_the_endpoint_of_the_environment(
    moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("AWS_ENDPOINT_URL_GLUE", moto_url),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test-secret"),
    ):
        monkeypatch.setenv(name, value)
    declared = GlueRegistration(name="company", database="sales", region="eu-west-1")
    registrar = GlueRegistrar(declared)
    client: Any = boto3.session.Session().client("glue", region_name="eu-west-1")
    client.create_database(DatabaseInput={"Name": "sales"})
    assert registrar.register(pointers(1)) == {}
    assert stored(client, "sales") == uris(1)
    registrar.close()
    client.close()


def test_a_profile_that_does_not_exist_is_an_error_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "missing")
    declared = GlueRegistration(name="company", database="sales", region="eu-west-1")
    with pytest.raises(SettingsError, match=r"ProfileNotFound: .*missing"):
        GlueRegistrar(declared).register(pointers(1))


def test_types_are_written_as_glue_writes_them() -> None:
    leaf = {"required": False}
    columns = {
        "bigint": TableColumn(id=1, name="a", type="long", **leaf),
        "binary": TableColumn(id=1, name="a", type="fixed[3]", **leaf),
        "decimal(9,2)": TableColumn(id=1, name="a", type="decimal(9,2)", **leaf),
        "timestamp": TableColumn(id=1, name="a", type="timestamptz", **leaf),
        "array<struct<to:string>>": TableColumn(
            id=1,
            name="legs",
            type="list",
            required=False,
            fields=(
                TableColumn(
                    id=2,
                    name="element",
                    type="struct",
                    required=True,
                    fields=(TableColumn(id=3, name="to", type="string", **leaf),),
                ),
            ),
        ),
        "map<string,bigint>": TableColumn(
            id=1,
            name="m",
            type="map",
            required=False,
            fields=(
                TableColumn(id=2, name="key", type="string", required=True),
                TableColumn(id=3, name="value", type="long", required=True),
            ),
        ),
    }
    assert [glue_type(column) for column in columns.values()] == list(columns)


@pytest.mark.parametrize(
    "how", [{"database": "Sales"}, {"region": "Europe"}, {"account": "12"}, {"database": ""}]
)
def test_a_declaration_that_glue_would_refuse_is_refused_at_once(how: dict[str, str]) -> None:
    with pytest.raises(InvalidPipeline, match=f"registration company: {next(iter(how))}"):
        GlueRegistration(**{"name": "company", "database": "sales", **how})
