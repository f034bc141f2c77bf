"""The settings of a PostgreSQL connection: a frozen value, checked when it is built, that never shows a secret.

The option names are libpq's, from an allow-list, and three timeouts of tallystick's. Options that tallystick sets itself
(the search for a server that accepts writes, keepalives, isolation) cannot be set from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from tallystick.connections.settings import Settings, unusable

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
TIMEOUT_S_MAX = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings(Settings):
    """The address of a database and the credentials for it. Raises SettingsError if the options do not fit together.

    `host` is a name, several names separated by commas, or the folder of a socket. `connect_timeout_s`, `lock_timeout_s`
    and `statement_timeout_s` limit the waits of one attempt. `repr` leaves out the secrets.
    """

    KIND: ClassVar[str] = "postgres"
    TITLE: ClassVar[str] = "PostgreSQL"
    EXAMPLE: ClassVar[str] = (
        '{"host": "db", "dbname": "flights", "user": "replay", "password": "..."}'
    )
    OPTIONS: ClassVar[str] = "those of libpq"

    host: str
    dbname: str
    user: str
    port: int = 5432
    password: str | None = field(default=None, repr=False)
    passfile: str | None = None
    sslmode: str = "prefer"
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None
    sslpassword: str | None = field(default=None, repr=False)
    application_name: str = "tallystick"
    connect_timeout_s: int = 10
    lock_timeout_s: int = 60
    statement_timeout_s: int = 900

    def __post_init__(self) -> None:
        for name in ("host", "dbname", "user"):
            if not getattr(self, name):
                raise unusable(f"{name} is missing or empty", f"write it as {self.EXAMPLE}.")
        # With "@" or "://" it would be a URL, which may contain a password: refuse it without quoting it.
        if "@" in self.host or "://" in self.host:
            raise unusable(
                "host is not a host name",
                "write it without scheme, user or port: each has a setting of its own.",
            )
        if not 0 < self.port < 65536:
            raise unusable(f"port: expected 1 to 65535, found {self.port}", "use 1 to 65535.")
        if self.sslmode not in SSL_MODES:
            raise unusable(
                f"unknown sslmode {self.sslmode!r}", f"use one of {', '.join(SSL_MODES)}."
            )
        if (self.sslkey or self.sslpassword) and not self.sslcert:
            raise unusable(
                "sslkey or sslpassword is set without sslcert", "set the client certificate, too."
            )
        for name in ("connect_timeout_s", "lock_timeout_s", "statement_timeout_s"):
            if not 1 <= getattr(self, name) <= TIMEOUT_S_MAX:
                raise unusable(
                    f"{name}: expected 1 to {TIMEOUT_S_MAX}, found {getattr(self, name)}",
                    "set a value in this range.",
                )

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may contain."""
        return tuple(one for one in (self.password, self.sslpassword) if one)

    @property
    def endpoint(self) -> str:
        """The database as one text, for messages."""
        return f"{self.dbname} on {self.host}:{self.port}"

    def client_options(self) -> dict[str, Any]:
        """Return the settings as libpq's options; they contain secrets."""
        own = ("connect_timeout_s", "lock_timeout_s", "statement_timeout_s")
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in own}
        return {name: value for name, value in values.items() if value is not None}
