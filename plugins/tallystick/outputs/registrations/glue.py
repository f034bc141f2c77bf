"""Registers tables in AWS Glue's Data Catalog, in the form that Iceberg's GlueCatalog, PyIceberg, Athena and Spark read.

Glue has no transaction over tables: each table changes by itself, and its version is the condition of the change (AWS
Glue API, UpdateTable: VersionId). Region, credentials and endpoint come from boto3's own chain, as those of S3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.parsers import ResponseParserError

from tallystick.errors import (
    OutputBusy,
    OutputRefused,
    OutputUnavailable,
    SettingsError,
    TallystickError,
)
from tallystick.format.types import LIST, MAP, STRUCT, Typed
from tallystick.outputs.registrations.declared import GlueRegistration
from tallystick.outputs.registrations.port import Pointer, ahead, foreign, steps
from tallystick.protocol.registering import Advance, Create

CONFIG = Config(
    connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 4}
)
POINTER, PREVIOUS, TABLE_TYPE = "metadata_location", "previous_metadata_location", "table_type"
# The types of Glue (those of Hive) that Iceberg's GlueCatalog gives to Iceberg's types.
_TYPES = {
    "long": "bigint",
    "time": "string",
    "timestamptz": "timestamp",
    "uuid": "string",
}
# The parts of a table that UpdateTable would remove if they are left out, and that are not tallystick's to remove.
_KEPT = ("Description", "Owner", "Retention", "TargetTable")
_BUSY = ("ConcurrentModificationException", "AlreadyExistsException", "VersionMismatchException")
_UNDEFINED = (NoCredentialsError, NoRegionError, PartialCredentialsError, ProfileNotFound)
_DENIED = ("AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException")


class GlueRegistrar:
    """The registrar of a database in a Data Catalog. `connect` returns a boto3 client of Glue."""

    def __init__(
        self, declared: GlueRegistration, connect: Callable[[], Any] | None = None
    ) -> None:
        self.declared = declared
        self._connect = connect or (
            lambda: boto3.session.Session().client(
                "glue", region_name=declared.region, config=CONFIG
            )
        )
        self._client: Any = None
        self._place: dict[str, str] = {"DatabaseName": declared.database}
        if declared.account is not None:
            self._place["CatalogId"] = declared.account
        self.where = f"database {declared.database} of AWS Glue"

    def register(self, pointers: Sequence[Pointer]) -> Mapping[str, str]:
        """Set the pointers, table by table; return those that are ahead.

        Safe to repeat: a pointer that is right already is left alone, and one that was changed since it was read is not
        overwritten, because its version is the condition. If the outcome of a change is unknown, the next call reads it.
        """
        with self._translated():
            if self._client is None:
                self._client = self._connect()
            tables = {one.table: self._table(one.table) for one in pointers}
            found = {
                table: self._pointer(table, there)
                for table, there in tables.items()
                if there is not None
            }
            decided = steps(pointers, found.get, registration=self.declared.name, where=self.where)
            later = ahead(decided, found.get)
            if later:
                return later
            for pointer in sorted(pointers, key=lambda one: one.table):
                step = decided[pointer.table]
                if isinstance(step, Create):
                    self._create(pointer)
                elif isinstance(step, Advance):
                    self._advance(pointer, tables[pointer.table] or {}, step.expected)
        return {}

    def close(self) -> None:
        """Close the client's connections. Safe to repeat."""
        if self._client is not None:
            self._client.close()
        self._client = None

    # ------------------------------------------------------------ requests

    def _table(self, table: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._client.get_table(**self._place, Name=table)["Table"]
        except ClientError as error:
            # The same code means that the database is missing. Then the first create is refused with Glue's message.
            if _code(error) == "EntityNotFoundException":
                return None
            raise
        return found

    def _pointer(self, table: str, found: Mapping[str, Any]) -> str:
        parameters = found.get("Parameters") or {}
        if str(parameters.get(TABLE_TYPE, "")).upper() != "ICEBERG" or not (
            uri := parameters.get(POINTER)
        ):
            kind = parameters.get(TABLE_TYPE) or found.get("TableType") or "another kind of table"
            raise foreign(
                self.declared.name, self.where, table, f"expected an Iceberg table, found {kind}"
            )
        return str(uri)

    def _create(self, pointer: Pointer) -> None:
        """Create a table. Safe to repeat: if it exists, Glue refuses, and the next call reads its pointer."""
        self._client.create_table(**self._place, TableInput=table_input(pointer))

    def _advance(self, pointer: Pointer, found: Mapping[str, Any], expected: str) -> None:
        """Set a table's pointer. Safe to repeat: the condition is the version that was read, so it applies once."""
        self._client.update_table(
            **self._place,
            TableInput=table_input(pointer, found, expected),
            # One more version per commit would reach Glue's limit of versions.
            SkipArchive=True,
            VersionId=found["VersionId"],
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError, ResponseParserError) as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> TallystickError:
        code = _code(error)
        stated = (
            error.response["Error"].get("Message", "") if isinstance(error, ClientError) else error
        )
        message = (
            f"registration {self.declared.name}: {self.where}: {code}: {stated}".rstrip(".") + "."
        )
        if code in _BUSY:
            return OutputBusy(
                message, hint="wait for the next try: another process changed the table meanwhile."
            )
        if code in _DENIED or isinstance(error, _UNDEFINED):
            return SettingsError(
                message,
                hint="correct the credentials, the region or the rights (glue:GetTable, CreateTable, UpdateTable).",
            )
        if code == "EntityNotFoundException":
            return SettingsError(
                message,
                hint="create the database in Glue, or correct its name; tallystick never creates it.",
            )
        if code in ("InvalidInputException", "ResourceNumberLimitExceededException"):
            return OutputRefused(
                message, hint="correct it in Glue and clear `publish`. The tables are committed."
            )
        return OutputUnavailable(
            message, hint="wait for the next try, which reads the pointers from Glue again."
        )


def table_input(
    pointer: Pointer, found: Mapping[str, Any] | None = None, expected: str | None = None
) -> dict[str, Any]:
    """Return a table in the form of Glue's API. `found`: the table there now; its other parameters are kept."""
    before = found or {}
    parameters = {
        **(before.get("Parameters") or {}),
        TABLE_TYPE: "ICEBERG",
        POINTER: pointer.uri,
    }
    if expected is not None:
        parameters[PREVIOUS] = expected
    return {
        **{name: before[name] for name in _KEPT if before.get(name) is not None},
        "Name": pointer.table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        # Engines read the columns from Iceberg's metadata. These are for people who look at the Data Catalog.
        "StorageDescriptor": {
            "Location": pointer.location,
            "Columns": [
                {
                    "Name": column.name,
                    "Type": glue_type(column),
                    "Parameters": {
                        "iceberg.field.id": str(column.id),
                        "iceberg.field.optional": str(not column.required).lower(),
                        "iceberg.field.current": "true",
                    },
                }
                for column in pointer.columns
            ],
        },
    }


def glue_type(column: Typed) -> str:
    """Return a column's type as Glue writes it."""
    inner = [glue_type(field) for field in column.fields]
    if column.type == LIST:
        return f"array<{inner[0]}>"
    if column.type == MAP:
        return f"map<{inner[0]},{inner[1]}>"
    if column.type == STRUCT:
        named = zip((field.name for field in column.fields), inner, strict=True)
        return f"struct<{','.join(f'{name}:{kind}' for name, kind in named)}>"
    return "binary" if column.type.startswith("fixed[") else _TYPES.get(column.type, column.type)


def _code(error: Exception) -> str:
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "unknown"))
    return type(error).__name__
