"""Registers tables in an Iceberg SQL catalog on PostgreSQL: all tables of a commit in one transaction.

The catalog's schema is that of Iceberg's JdbcCatalog, which PyIceberg's SqlCatalog shares: `iceberg_tables` has one row
per table with its pointer, `iceberg_namespace_properties` the namespaces. In version V1 of the schema, `iceberg_type`
distinguishes tables from views; V0 has no such column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import sql

from tallystick.connections.postgres import PostgresSettings
from tallystick.errors import OutputBusy
from tallystick.outputs.postgres.session import Session, translated
from tallystick.outputs.registrations.declared import SqlRegistration
from tallystick.outputs.registrations.port import Pointer, ahead, foreign, steps
from tallystick.protocol.registering import Advance, Create, PointerStep

# PostgreSQL requires the rights of CREATE ... IF NOT EXISTS even if there is nothing to create.
CATALOG_THERE = sql.SQL(
    "SELECT to_regclass('iceberg_tables') IS NOT NULL, to_regclass('iceberg_namespace_properties') IS NOT NULL"
)
# Two processes that create the same table at once would fail at PostgreSQL's own catalog.
CREATE_CATALOG_LOCK = sql.SQL("SELECT pg_advisory_xact_lock(hashtext('tallystick.iceberg_tables'))")
CREATE_TABLES = sql.SQL(
    """
    CREATE TABLE IF NOT EXISTS iceberg_tables (
        catalog_name varchar(255) NOT NULL, table_namespace varchar(255) NOT NULL, table_name varchar(255) NOT NULL,
        metadata_location varchar(1000), previous_metadata_location varchar(1000), iceberg_type varchar(5),
        PRIMARY KEY (catalog_name, table_namespace, table_name))
    """
)
CREATE_NAMESPACES = sql.SQL(
    """
    CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
        catalog_name varchar(255) NOT NULL, namespace varchar(255) NOT NULL, property_key varchar(255) NOT NULL,
        property_value varchar(1000), PRIMARY KEY (catalog_name, namespace, property_key))
    """
)
HAS_TYPES = sql.SQL(
    "SELECT count(*) > 0 FROM pg_attribute WHERE attrelid = to_regclass('iceberg_tables')"
    " AND attname = 'iceberg_type' AND NOT attisdropped"
)
# Both catalogs list a namespace only if it has this property or a table.
CREATE_NAMESPACE = sql.SQL(
    "INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)"
    " VALUES (%s, %s, 'exists', 'true') ON CONFLICT DO NOTHING"
)
# In the order of their names, so that two publishers lock the rows in the same order.
READ_POINTERS = sql.SQL(
    "SELECT table_name, metadata_location, {kind} FROM iceberg_tables"
    " WHERE catalog_name = %s AND table_namespace = %s AND table_name = ANY(%s) ORDER BY table_name FOR UPDATE"
)
CREATE_POINTER = sql.SQL(
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location{column})"
    " VALUES (%s, %s, %s, %s{value}) ON CONFLICT DO NOTHING"
)
ADVANCE_POINTER = sql.SQL(
    "UPDATE iceberg_tables SET metadata_location = %s, previous_metadata_location = %s"
    " WHERE catalog_name = %s AND table_namespace = %s AND table_name = %s AND metadata_location = %s"
)


class SqlRegistrar:
    """The registrar of a namespace in an Iceberg SQL catalog."""

    def __init__(self, declared: SqlRegistration, settings: Callable[[], PostgresSettings]) -> None:
        self.declared, self._settings = declared, settings
        self._session: Session | None = None
        self._secrets: tuple[str, ...] = ()
        self.where = f"namespace {declared.namespace} of catalog {declared.catalog} of connection {declared.postgres}"

    def register(self, pointers: Sequence[Pointer]) -> Mapping[str, str]:
        """Set all pointers in one transaction; return those that are ahead.

        Safe to repeat, also if the answer to COMMIT was lost: the rows are read and locked first, and a pointer that is
        right already is left alone. A publisher that is late finds a later pointer there, and changes nothing.
        """
        with self._translated():
            session = self._connected()
            self._create_catalog(session)
            (has_types,) = session.one("find types", HAS_TYPES)
            with session.transaction():
                found = self._read(session, pointers, has_types=has_types)
                decided = steps(
                    pointers, found.get, registration=self.declared.name, where=self.where
                )
                later = ahead(decided, found.get)
                if not later:
                    self._write(session, pointers, decided, has_types=has_types)
        return later

    def close(self) -> None:
        """Close the session. If a transaction is open, the server rolls it back. Safe to repeat."""
        if self._session is not None:
            self._session.close()
        self._session = None

    # ------------------------------------------------------------ the statements

    def _create_catalog(self, session: Session) -> None:
        """Create the catalog's tables if they are missing. Safe to repeat: what is there is left alone."""
        if all(session.one("find the catalog", CATALOG_THERE)):
            return
        with session.transaction():
            session.run("wait to create", CREATE_CATALOG_LOCK)
            session.run("create tables", CREATE_TABLES)
            session.run("create namespaces", CREATE_NAMESPACES)

    def _read(
        self, session: Session, pointers: Sequence[Pointer], *, has_types: bool
    ) -> dict[str, str]:
        """Lock and return the pointers of these tables. Raises OutputRefused for a row that is no table."""
        kind = sql.SQL("iceberg_type" if has_types else "NULL")
        rows = session.run(
            "read pointers",
            READ_POINTERS.format(kind=kind),
            (self.declared.catalog, self.declared.namespace, sorted(p.table for p in pointers)),
        )
        found: dict[str, str] = {}
        for table, uri, of_type in rows:
            # JdbcCatalog takes a row without a type for a table: it is from version V0 of the schema.
            if of_type not in (None, "TABLE") or uri is None:
                what = "a row without metadata" if uri is None else f"a {of_type.lower()}"
                raise foreign(
                    self.declared.name,
                    self.where,
                    table,
                    f"expected an Iceberg table, found {what}",
                )
            found[table] = uri
        return found

    def _write(
        self,
        session: Session,
        pointers: Sequence[Pointer],
        decided: Mapping[str, PointerStep],
        *,
        has_types: bool,
    ) -> None:
        """Write the decided pointers. Safe to repeat: each write has the condition that the row is as it was read."""
        declared = self.declared
        place = (declared.catalog, declared.namespace)
        session.run("create the namespace", CREATE_NAMESPACE, place)
        for pointer in sorted(pointers, key=lambda one: one.table):
            step = decided[pointer.table]
            changed: Any = None
            if isinstance(step, Create):
                query = CREATE_POINTER.format(
                    column=sql.SQL(", iceberg_type" if has_types else ""),
                    value=sql.SQL(", 'TABLE'" if has_types else ""),
                )
                changed = session.run(
                    "create a pointer", query, (*place, pointer.table, pointer.uri)
                )
            elif isinstance(step, Advance):
                values = (pointer.uri, step.expected, *place, pointer.table, step.expected)
                changed = session.run("advance a pointer", ADVANCE_POINTER, values)
            if changed is not None and changed.rowcount != 1:
                raise OutputBusy(
                    f"registration {declared.name}: table {pointer.table} of {self.where} was changed by another "
                    "process at the same time.",
                    hint="wait for the next try: it reads the pointer again. Nothing was changed.",
                )

    def _connected(self) -> Session:
        """Return the session; open a new one if there is none, or if the last one broke."""
        if self._session is None or not self._session.usable:
            self.close()
            settings = self._settings()
            self._secrets = settings.secrets()
            self._session = Session(settings, output=self.declared.name, where=self.where)
        return self._session

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with translated(f"registration {self.declared.name}", self.where, lambda: self._secrets):
            yield
