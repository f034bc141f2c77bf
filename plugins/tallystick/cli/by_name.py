"""The names by which engines find the tables of a lake in a `tally catalog`, and their addresses there."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from tallystick.catalog.versions import SelectionError, check_lake_name
from tallystick.errors import InvalidRequest
from tallystick.operations.status import LakeTables, TableStatus
from tallystick.operations.status.files import LakeFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogNames:
    """The names of the tables of one lake. `namespace`: None if the lake needs `--name` there. `url`: of a catalog."""

    namespace: str | None
    version: int
    url: str | None

    def identifier(self, table: TableStatus) -> str | None:
        """Return `namespace.table`; None if the lake has no name without `--name`."""
        return None if self.namespace is None else f"{self.namespace}.{table.name}"

    def address(self, table: TableStatus) -> str | None:
        """Return the address that loads the table at this version; None if no catalog or no metadata is known."""
        if self.url is None or self.namespace is None or table.metadata is None:
            return None
        prefix = quote(f"{self.namespace}@{self.version}", safe="@")
        return f"{self.url}/v1/{prefix}/namespaces/{self.namespace}/tables/{table.name}"


def catalog_names(answer: LakeTables | LakeFiles, catalog: str | None) -> CatalogNames:
    """Return the names that tables have if the lake is served as the last part of its URI, the default of the catalog.

    Raises InvalidRequest if `catalog` is no address of one.
    """
    name = answer.uri.rpartition("/")[2]
    try:
        namespace = check_lake_name(name)
    except SelectionError:
        namespace = None
    url = None if catalog is None else _checked(catalog)
    return CatalogNames(namespace=namespace, version=answer.version, url=url)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidRequest(
            f"--catalog: expected an http or https URL, found {url!r}.",
            hint="use the address that `tally catalog` prints, e.g. http://127.0.0.1:8181.",
        )
    if parts.username is not None:
        raise InvalidRequest(
            "--catalog: expected a URL without a user and a password, found one with them.",
            hint="leave them out: clients of the catalog send a token.",
        )
    return url.rstrip("/")
