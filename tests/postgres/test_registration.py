"""Tables in an Iceberg SQL catalog: all of a commit at once, right after each kill, never set back, read by PyIceberg."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import psycopg
import pytest
from psycopg import sql
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from support import sql_catalog
from support.catalogs import register_all, registered_lake, wanted_pointers
from support.iceberg_server import iceberg_server
from support.killed import killed
from support.postgres_proxy import Proxy
from support.postgres_tables import Database
from support.small_lake import SmallLake, days
from support.sql_catalog import (
    DECLARED,
    FIRST,
    NEXT,
    at_statement,
    pointers,
    registrar_of,
    stored,
    uris,
)
from tallystick.errors import OutputBusy, OutputRefused, OutputUnavailable, SettingsError
from tallystick.outputs.registrations import SqlRegistration
from tallystick.outputs.registrations import sql as sql_module
from tallystick.outputs.registrations.sql import SqlRegistrar
from tallystick.store.s3 import S3Settings, S3Store
from tallystick_devstack.testing.servers import ministack

V0 = """
    CREATE TABLE iceberg_tables (catalog_name varchar(255) NOT NULL, table_namespace varchar(255) NOT NULL,
        table_name varchar(255) NOT NULL, metadata_location varchar(1000), previous_metadata_location varchar(1000),
        PRIMARY KEY (catalog_name, table_namespace, table_name))
"""


def registered(database: Database, number: int) -> dict[str, str]:
    """Register a version with a new registrar; return the pointers that are ahead."""
    registrar = registrar_of(database)
    try:
        return dict(registrar.register(pointers(number)))
    finally:
        registrar.close()


# ---------------------------------------------------------------- the statements


def test_the_steps_are_all_statements_of_a_registration(database: Database) -> None:
    for number, steps in ((1, FIRST), (2, NEXT)):
        registrar = registrar_of(database)
        ran = at_statement(registrar, "none", lambda: None)
        assert registrar.register(pointers(number)) == {}
        registrar.close()
        assert tuple(ran) == steps
        assert stored(database) == uris(number)


def test_a_pointer_that_is_right_is_not_written_again(database: Database) -> None:
    registered(database, 1)
    before = database.run("SELECT xmin::text FROM iceberg_tables")
    registered(database, 1)
    assert database.run("SELECT xmin::text FROM iceberg_tables") == before


def test_the_row_keeps_the_previous_pointer_and_has_the_type_of_a_table(database: Database) -> None:
    registered(database, 1)
    registered(database, 2)
    assert database.run(
        "SELECT metadata_location, previous_metadata_location, iceberg_type FROM iceberg_tables"
        " WHERE table_name = 'events'"
    ) == [(uris(2)["events"], uris(1)["events"], "TABLE")]
    assert database.run("SELECT * FROM iceberg_namespace_properties") == [
        ("company", "small", "exists", "true")
    ]


def test_a_catalog_of_the_first_version_of_the_schema_is_used_as_it_is(database: Database) -> None:
    database.run(V0)
    registered(database, 1)
    registered(database, 2)
    assert stored(database) == uris(2)
    assert not database.run(
        "SELECT 1 FROM information_schema.columns WHERE table_name = 'iceberg_tables' AND column_name = 'iceberg_type'"
    )


# ---------------------------------------------------------------- crashes


@pytest.mark.parametrize("after", range(1, len(FIRST) + 1))
def test_a_publisher_that_is_killed_registers_all_tables_or_none(
    database: Database, after: int
) -> None:
    killed(sql_catalog.main, str(database.server.socket_dir), database.name, 1, after)
    assert stored(database) == (uris(1) if after == len(FIRST) else {})
    assert registered(database, 1) == {}
    assert stored(database) == uris(1)


@pytest.mark.parametrize("after", range(1, len(NEXT) + 1))
def test_a_publisher_that_is_killed_advances_all_tables_or_none(
    database: Database, after: int
) -> None:
    registered(database, 1)
    killed(sql_catalog.main, str(database.server.socket_dir), database.name, 2, after)
    assert stored(database) == uris(2 if after == len(NEXT) else 1)
    assert registered(database, 2) == {}
    assert stored(database) == uris(2)


@pytest.mark.parametrize("arrives", [True, False])
def test_after_a_lost_answer_to_commit_the_next_try_reads_the_outcome(
    database: Database, arrives: bool
) -> None:
    registered(database, 1)
    with Proxy(database.server, lose="COMMIT\0", arrives=arrives) as proxy:
        registrar = registrar_of(database, host="127.0.0.1", port=proxy.port, sslmode="disable")
        registrar._connected()
        proxy.armed.set()
        with pytest.raises(OutputUnavailable, match="registration company: namespace small"):
            registrar.register(pointers(2))
        assert proxy.lost.is_set()
        assert stored(database) == uris(2 if arrives else 1)
        assert registrar.register(pointers(2)) == {}
        registrar.close()
    assert stored(database) == uris(2)


# ---------------------------------------------------------------- two publishers


@pytest.mark.parametrize("step", [*dict.fromkeys(FIRST)])
def test_of_two_first_publishers_at_once_the_later_version_stays(
    database: Database, step: str
) -> None:
    both(database, step, first=False)


@pytest.mark.parametrize("step", [*dict.fromkeys(NEXT)])
def test_of_two_publishers_at_once_the_later_version_stays(database: Database, step: str) -> None:
    both(database, step, first=True)


def both(database: Database, step: str, *, first: bool) -> None:
    """Let a publisher of version 3 run while one of version 2 is at a statement."""
    if first:
        registered(database, 1)
    late = registrar_of(database)
    failed: list[Exception] = []
    others: list[threading.Thread] = []

    def other() -> None:
        try:
            registered(database, 3)
        except OutputBusy as error:
            failed.append(error)

    def run() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        others.append(thread)
        # The other one ends, or waits for a lock of this one.
        deadline_passes_or(lambda: not thread.is_alive() or waits(database))

    at_statement(late, step, run)
    try:
        late.register(pointers(2))
    except OutputBusy as error:
        failed.append(error)
    finally:
        late.close()
    others[0].join(60)
    assert not others[0].is_alive()
    assert len(failed) <= 1
    # The one that was busy reads again, as `operations.register` does.
    later = registered(database, 2)
    registered(database, 3)
    assert later in ({}, uris(3))
    assert stored(database) == uris(3)
    assert registered(database, 2) == uris(3)
    assert stored(database) == uris(3)


def waits(database: Database) -> bool:
    """Return True if a session waits for a lock in this database."""
    return bool(
        database.run(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    )


def deadline_passes_or(done: Any) -> None:
    """Poll until it is done; fail after a minute."""
    tries = threading.Event()
    for _ in range(6000):
        if done():
            return
        tries.wait(0.01)
    raise AssertionError("neither ended nor waits")


# ---------------------------------------------------------------- refusals


def test_a_foreign_table_is_refused_and_nothing_is_changed(database: Database) -> None:
    registered(database, 1)
    other = "s3://finance/tables/events/metadata/00000-x.metadata.json"
    database.run(
        "UPDATE iceberg_tables SET metadata_location = %s WHERE table_name = 'events'", other
    )
    before = stored(database)
    with pytest.raises(OutputRefused) as caught:
        registered(database, 2)
    assert other in caught.value.message
    assert "s3://lakes/small/tables/events/metadata/" in caught.value.message
    assert stored(database) == before


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [("iceberg_type", "VIEW", "a view"), ("metadata_location", None, "without metadata")],
)
def test_a_row_that_is_no_table_is_refused(
    database: Database, column: str, value: str | None, why: str
) -> None:
    registered(database, 1)
    database.run(f"UPDATE iceberg_tables SET {column} = %s WHERE table_name = 'events'", value)
    with pytest.raises(OutputRefused, match=why):
        registered(database, 2)
    assert stored(database)["per_kind"] == uris(1)["per_kind"]


def test_a_pointer_that_is_later_stays_and_no_other_is_changed(database: Database) -> None:
    registered(database, 1)
    later = uris(5)["events"]
    database.run(
        "UPDATE iceberg_tables SET metadata_location = %s WHERE table_name = 'events'", later
    )
    assert registered(database, 2) == {"events": later}
    assert stored(database) == {"events": later, "per_kind": uris(1)["per_kind"]}


def test_tables_of_other_catalogs_and_namespaces_are_left_alone(database: Database) -> None:
    registered(database, 1)
    for catalog, namespace in (("company", "other"), ("old", "small")):
        database.run(
            "INSERT INTO iceberg_tables VALUES (%s, %s, 'events', 's3://x/1', NULL, 'TABLE')",
            catalog,
            namespace,
        )
    registered(database, 2)
    rows = database.run(
        "SELECT metadata_location FROM iceberg_tables WHERE metadata_location = 's3://x/1'"
    )
    assert len(rows) == 2


def test_a_user_without_rights_gets_an_error_that_names_them(database: Database) -> None:
    registered(database, 1)
    database.run("DROP ROLE IF EXISTS reader")
    database.run("CREATE ROLE reader LOGIN")
    registrar = registrar_of(database, user="reader")
    with pytest.raises(SettingsError, match="permission denied") as caught:
        registrar.register(pointers(2))
    registrar.close()
    assert "right" in caught.value.hint
    database.run("DROP ROLE reader")


# ---------------------------------------------------------------- a whole lake, read by PyIceberg


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    """Run an S3 server with a bucket."""
    with ministack() as url:
        boto3.session.Session(
            aws_access_key_id="test", aws_secret_access_key="test-secret", region_name="us-east-1"
        ).client("s3", endpoint_url=url).create_bucket(Bucket="registered")
        yield url


@pytest.fixture
def small(s3_url: str, database: Database) -> SmallLake:
    """Return a lake on S3 whose pipeline is registered in the database's catalog."""
    session = boto3.session.Session(
        aws_access_key_id="test", aws_secret_access_key="test-secret", region_name="us-east-1"
    )
    store = S3Store(
        f"s3://registered/{database.name}",
        settings=S3Settings(endpoint_url=s3_url),
        session=session,
    )
    return registered_lake(DECLARED, store=store)


def pyiceberg_catalog(database: Database, s3_url: str) -> SqlCatalog:
    """Open the catalog as a reader does."""
    return SqlCatalog(
        "company",
        uri=f"postgresql+psycopg://postgres@/{database.name}?host={database.server.socket_dir}",
        init_catalog_tables="false",
        **reading(s3_url),
    )


def reading(s3_url: str) -> dict[str, str]:
    """Return PyIceberg's properties that read from this S3 server."""
    return {
        "s3.endpoint": s3_url,
        "s3.access-key-id": "test",
        "s3.secret-access-key": "test-secret",
        "s3.region": "us-east-1",
    }


@contextmanager
def opened(database: Database, s3_url: str) -> Iterator[SqlCatalog]:
    """Open the catalog, and close its connections at the end."""
    catalog = pyiceberg_catalog(database, s3_url)
    try:
        yield catalog
    finally:
        catalog.engine.dispose()


def test_pyiceberg_reads_every_table_of_the_last_commit(
    small: SmallLake, database: Database, s3_url: str
) -> None:
    small.run(days(1, 2))
    for first in (2, 3):
        small.run(days(first, first + 1))
        done, failed = register_all(small, registrar_of(database))
        assert (len(done), failed) == (1, ())
        with opened(database, s3_url) as catalog:
            assert catalog.list_namespaces() == [("small",)]
            names = [name for _, name in catalog.list_tables("small")]
            assert sorted(names) == sorted(wanted_pointers(small))
            for name, uri in wanted_pointers(small).items():
                assert catalog.load_table(("small", name)).metadata_location == uri
            rows = catalog.load_table("small.events").scan().to_arrow().num_rows
    assert rows == 3 * 5


@pytest.mark.parametrize("version", ["V0", "V1"])
def test_icebergs_own_jdbc_catalog_reads_every_table_of_the_last_commit(
    small: SmallLake, database: Database, s3_url: str, tmp_path: Path, version: str
) -> None:
    """The Java that Spark and Trino use, in both versions of the catalog's schema, behind Iceberg's REST server."""
    if version == "V0":
        database.run(V0)
    small.run(days(1, 2))
    register_all(small, registrar_of(database))
    with (
        Proxy(database.server, lose="nothing is lost", arrives=True) as proxy,
        iceberg_server(
            tmp_path / "server.log",
            s3_url=s3_url,
            uri=f"jdbc:postgresql://127.0.0.1:{proxy.port}/{database.name}?sslmode=disable",
            jdbc_user="postgres",
            catalog_name="company",
            jdbc_schema__version=version,
        ) as url,
    ):
        reader = RestCatalog("company", uri=url, **reading(s3_url))
        assert reader.list_namespaces() == [("small",)]
        for first in (2, 3):
            names = [name for _, name in reader.list_tables("small")]
            assert sorted(names) == sorted(wanted_pointers(small))
            for name, uri in wanted_pointers(small).items():
                assert reader.load_table(f"small.{name}").metadata_location == uri
            small.run(days(first, first + 1))
            assert not register_all(small, registrar_of(database))[1]
        assert reader.load_table("small.events").scan().to_arrow().num_rows == 3 * 5
        reader.close()


def test_a_reader_sees_all_tables_at_one_version_while_commits_go_on(
    small: SmallLake, database: Database
) -> None:
    """Each transaction of a reader finds pointers that were those of one root."""
    versions: list[dict[str, str]] = []
    seen: list[dict[str, str]] = []
    ended = threading.Event()

    def read() -> None:
        with psycopg.connect(
            host=str(database.server.socket_dir),
            dbname=database.name,
            user="postgres",
            autocommit=True,
        ) as connection:
            while not ended.is_set():
                query = sql.SQL("SELECT table_name, metadata_location FROM iceberg_tables")
                seen.append(dict(connection.execute(query).fetchall()))
                ended.wait(0.002)

    small.run(days(1, 2))
    versions.append(wanted_pointers(small))
    register_all(small, registrar_of(database))
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for clear in range(1, 7):
            small.job = f"version {clear}".encode()
            small.run(days(1, 2), clear=clear)
            versions.append(wanted_pointers(small))
            assert not register_all(small, registrar_of(database))[1]
    finally:
        ended.set()
        reader.join(60)
    assert stored(database) == versions[-1]
    assert all(one in versions for one in seen)
    distinct = [one for i, one in enumerate(seen) if i == 0 or seen[i - 1] != one]
    assert distinct == sorted(distinct, key=versions.index)
    assert len(distinct) > 1


# ---------------------------------------------------------------- removed guards


def test_an_update_without_its_condition_is_detected(database: Database) -> None:
    """Without the lock and the condition, a late publisher sets the pointers back."""
    unlocked = sql.SQL(
        "SELECT table_name, metadata_location, {kind} FROM iceberg_tables"
        " WHERE catalog_name = %s AND table_namespace = %s AND table_name = ANY(%s)"
    )
    unconditional = sql.SQL(
        "UPDATE iceberg_tables SET metadata_location = %s, previous_metadata_location = %s"
        " WHERE catalog_name = %s AND table_namespace = %s AND table_name = %s AND %s <> ''"
    )
    registered(database, 1)
    # The condition alone is enough, and so is the lock alone.
    for name, mutant in (("READ_POINTERS", unlocked), ("ADVANCE_POINTER", unconditional)):
        with patch.object(sql_module, name, mutant):
            both(database, "create the namespace", first=False)
        database.run("DELETE FROM iceberg_tables")
        registered(database, 1)
    with (
        patch.object(sql_module, "READ_POINTERS", unlocked),
        patch.object(sql_module, "ADVANCE_POINTER", unconditional),
    ):
        late = registrar_of(database)
        at_statement(late, "create the namespace", lambda: registered(database, 3) and None)
        late.register(pointers(2))
        late.close()
    assert stored(database) == uris(2)  # set back: what the two guards prevent


def test_a_declaration_names_its_target_without_secrets() -> None:
    declared = SqlRegistration(
        name="a", catalog="company", namespace="sales.flights", postgres="main"
    )
    assert declared.target == "sql:main/company/sales.flights"
    assert "main" in SqlRegistrar(declared, lambda: None).where  # type: ignore[arg-type, return-value]
