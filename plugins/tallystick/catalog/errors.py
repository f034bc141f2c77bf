"""Iceberg's form of an error, and which one each error of tallystick becomes.

Clients choose their exception by the status, and by the type if a status has several. A write is refused with 403: each
route of the specification that writes has it, and every client shows its message.
"""

from __future__ import annotations

import json
from typing import Any

from tallystick.catalog.versions import SelectionError
from tallystick.errors import (
    InvalidPipeline,
    InvalidRequest,
    NothingPlanned,
    RetryLater,
    TallystickError,
)

RETRY_AFTER_S = 5
NO_SUCH_NAMESPACE = "NoSuchNamespaceException"


class CatalogError(Exception):
    """An error as a client gets it. `kind`: Iceberg's name of it. `retry_after_s`: when to send the request again."""

    def __init__(
        self, status: int, kind: str, message: str, *, retry_after_s: int | None = None
    ) -> None:
        super().__init__(status, kind, message)
        self.status = status
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s

    def body(self) -> bytes:
        """Return Iceberg's JSON form."""
        form: dict[str, Any] = {"message": self.message, "type": self.kind, "code": self.status}
        return json.dumps({"error": form}).encode()

    def headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        found = {"Cache-Control": "no-store"}
        if self.retry_after_s is not None:
            found["Retry-After"] = str(self.retry_after_s)
        if self.status == 401:
            found["WWW-Authenticate"] = "Bearer"
        return found


def no_such_namespace(name: str) -> CatalogError:
    """Return the error for a lake that this catalog does not have, or that the caller may not see: one text for both."""
    return CatalogError(404, NO_SUCH_NAMESPACE, f"Namespace does not exist: {name}")


def no_such_warehouse(name: str) -> CatalogError:
    """Return the error for a session with a lake that the catalog does not have, or that the caller may not see."""
    return CatalogError(404, "NoSuchWarehouseException", f"Lake does not exist: {name}")


def no_such_table(namespace: str, table: str) -> CatalogError:
    """Return the error for a table that a version does not have, or to which nothing was committed yet."""
    return CatalogError(404, "NoSuchTableException", f"Table does not exist: {namespace}.{table}")


def no_such_route(path: str) -> CatalogError:
    """Return the error for a path that the catalog does not have."""
    return CatalogError(
        404, "NotFoundException", f"No such resource: {path}. Clients begin at /v1/config."
    )


def no_such_version(message: str) -> CatalogError:
    """Return the error for a version that a lake does not have."""
    return CatalogError(
        404,
        "NotFoundException",
        f"{message} `tally log` lists the versions that committed something.",
    )


def lost_version(lake: str, version: int) -> CatalogError:
    """Return the error for the version of a session that the lake had, and has no more: it was set back or replaced."""
    return CatalogError(
        404,
        "NotFoundException",
        f"{lake} no longer has the version {version} of this session: the lake was set back or replaced. "
        "Begin a new session (connect to the catalog again).",
    )


class CollectedError(CatalogError):
    """The error for a table of a version that gc has deleted."""


def collected(lake: str, version: int, table: str) -> CollectedError:
    """Return the error for a table of a version that gc has deleted."""
    return CollectedError(
        404,
        "NotFoundException",
        f"Version {version} of {lake} can no longer be read: gc has deleted the metadata of {table}. "
        "Begin a new session (connect to the catalog again), or name a later version.",
    )


def read_only() -> CatalogError:
    """Return the error for every request that would write."""
    return CatalogError(
        403,
        "ForbiddenException",
        "This catalog is read-only: only commits of tallystick change tables.",
    )


def bad_request(message: str) -> CatalogError:
    """Return the error for a request that cannot be understood."""
    return CatalogError(400, "BadRequestException", message)


def as_catalog_error(
    error: Exception, *, namespace: str = "", table: str | None = None
) -> CatalogError:
    """Return the error that a client gets for an error of reading a lake. No message of tallystick has secrets.

    `namespace`, `table`: those of the request's path. The specification has one 404 for a table, also if its namespace
    does not exist: engines such as Trino report any other one as a failure of the catalog.
    """
    found = _of_lake(error, namespace)
    if table is not None and found.kind == NO_SUCH_NAMESPACE:
        return no_such_table(namespace, table)
    return found


def _of_lake(error: Exception, namespace: str) -> CatalogError:
    match error:
        case CatalogError():
            return error
        case SelectionError():
            return bad_request(f"{error}. Clients begin at /v1/config.")
        case NothingPlanned():
            return no_such_namespace(namespace)
        case RetryLater():
            return CatalogError(
                503, "ServiceUnavailableException", error.message, retry_after_s=RETRY_AFTER_S
            )
        case InvalidRequest() | InvalidPipeline():
            return bad_request(error.message)
        case TallystickError():
            return CatalogError(500, "InternalServerError", f"{error.kind}: {error}")
        case _:
            return CatalogError(
                500, "InternalServerError", "A defect of the catalog; its log has the details."
            )
