"""The declarations of registrations. DAG files import this module, so it has light imports only."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallystick.format import keys
from tallystick.pipeline.columns import refuse

# PyIceberg and Iceberg's JdbcCatalog store a namespace of several levels as names separated by dots.
_NAMESPACE = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62}){0,3}"
)
_SQL_CATALOG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_DATABASE = re.compile(r"[a-z0-9_][a-z0-9_-]{0,254}")
_REGION = re.compile(r"[a-z]{2}[a-z0-9-]{0,30}-[0-9]{1,2}")
_ACCOUNT = re.compile(r"[0-9]{12}")
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,254}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRegistration:
    """The declaration of an Iceberg SQL catalog: that of Iceberg's JdbcCatalog and PyIceberg's SqlCatalog, on PostgreSQL.

    All tables of a commit change in one transaction. `catalog` is the name under which readers open the catalog, as it is
    in its column `catalog_name`. `namespace` has the tables, and belongs to this pipeline alone. `postgres` names the
    connection.
    """

    name: str
    catalog: str
    namespace: str
    postgres: str = "default"

    def __post_init__(self) -> None:
        _check(self.name, "catalog", self.catalog, _SQL_CATALOG, "a name of letters, digits, _ . -")
        _check_namespace(self.name, self.namespace)
        keys.check_name(self.postgres, "connection")

    @property
    def target(self) -> str:
        """The target that the registration's name refers to."""
        return f"sql:{self.postgres}/{self.catalog}/{self.namespace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueRegistration:
    """The declaration of a database in AWS Glue's Data Catalog.

    `database` exists, and belongs to this pipeline alone. `region` and `account` are those of the Data Catalog; if they
    are None, those of boto3's own chain, which also has the credentials (docs/how-to/register-tables.md).
    """

    name: str
    database: str
    region: str | None = None
    account: str | None = None

    def __post_init__(self) -> None:
        _check(
            self.name,
            "database",
            self.database,
            _DATABASE,
            "a name of lower case letters, digits, _ -",
        )
        if self.region is not None:
            _check(self.name, "region", self.region, _REGION, "a region such as eu-west-1")
        if self.account is not None:
            _check(self.name, "account", self.account, _ACCOUNT, "an AWS account id of 12 digits")

    @property
    def target(self) -> str:
        """The target that the registration's name refers to."""
        return f"glue:{self.account or 'default'}/{self.region or 'default'}/{self.database}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestRegistration:
    """The declaration of a catalog with Iceberg's REST API that registers with `overwrite`.

    `namespace` has the tables, and belongs to this pipeline alone. `http` names the connection; its `base_url` is the
    catalog's, without `/v1`. `warehouse`: the warehouse that the catalog's configuration is asked for.
    """

    name: str
    namespace: str
    http: str = "default"
    warehouse: str | None = None

    def __post_init__(self) -> None:
        _check_namespace(self.name, self.namespace)
        keys.check_name(self.http, "connection")
        if self.warehouse is not None:
            _check(
                self.name,
                "warehouse",
                self.warehouse,
                _PREFIX,
                "a name of letters, digits, _ . / -",
            )

    @property
    def target(self) -> str:
        """The target that the registration's name refers to."""
        return f"rest:{self.http}/{self.warehouse or ''}/{self.namespace}"


def _check_namespace(name: str, namespace: str) -> None:
    _check(
        name,
        "namespace",
        namespace,
        _NAMESPACE,
        "1 to 4 names of letters, digits, _ and -, separated by dots",
    )


def _check(name: str, field: str, value: str, allowed: re.Pattern[str], expected: str) -> None:
    if not isinstance(value, str) or not allowed.fullmatch(value):
        raise refuse(
            f"registration {name}: {field}: expected {expected}, found {value!r}.",
            "write it as in the catalog.",
        )
