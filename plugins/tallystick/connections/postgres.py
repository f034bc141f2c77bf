"""How to reach a PostgreSQL database: one frozen value, checked when it is built, that never shows a secret.

The words are libpq's, from an allow-list, and three bounds of time of ours. What this project sets itself (search for a
server that takes writes, keepalives, isolation) cannot be set from outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tallystick.errors import SettingsError

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
TIMEOUT_S_MAX = 86_400
_EXAMPLE = '{"host": "db", "dbname": "flights", "user": "replay", "password": "..."}'


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    """Where a database is and who we are to it; raises SettingsError where the parts do not fit together.

    `host`: a name, several with commas, or the folder of a socket. `connect_timeout_s`, `lock_timeout_s` and
    `statement_timeout_s` bound what one attempt waits for. `repr` leaves out what is secret.
    """

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
                raise _unfit(f"{name} is missing or empty", f"write it as {_EXAMPLE}.")
        # "@" and "://" would be a URL, perhaps with a password in it: refused without quoting it.
        if "@" in self.host or "://" in self.host:
            raise _unfit(
                "host is not a host's name",
                "write it without scheme, user or port; each has its word.",
            )
        if not 0 < self.port < 65536:
            raise _unfit(f"port {self.port} is out of bounds", "use 1 to 65535.")
        if self.sslmode not in SSL_MODES:
            raise _unfit(
                f"sslmode {self.sslmode!r} is unknown", f"use one of {', '.join(SSL_MODES)}."
            )
        if (self.sslkey or self.sslpassword) and not self.sslcert:
            raise _unfit(
                "sslkey or sslpassword is given without sslcert", "give the client certificate too."
            )
        for name in ("connect_timeout_s", "lock_timeout_s", "statement_timeout_s"):
            if not 1 <= getattr(self, name) <= TIMEOUT_S_MAX:
                raise _unfit(
                    f"{name} {getattr(self, name)} is out of bounds", f"use 1 to {TIMEOUT_S_MAX}."
                )

    def secrets(self) -> tuple[str, ...]:
        """The values that no message may hold."""
        return tuple(one for one in (self.password, self.sslpassword) if one)

    @property
    def endpoint(self) -> str:
        """The database as one text, for messages."""
        return f"{self.dbname} on {self.host}:{self.port}"

    @classmethod
    def from_mapping(cls, words: Mapping[str, Any], *, source: str) -> PostgresSettings:
        """Check `words` against the allow-list; `source` says in errors where they came from.

        Raises SettingsError naming the key, never its value.
        """
        try:
            return cls(**_typed(words))
        except SettingsError as unfit:
            why = unfit
        # Outside the handler: an error keeps the one that was handled, and that one what it choked on.
        raise SettingsError(f"{source}: {why.happened}", next_step=why.next_step)

    @classmethod
    def from_json(cls, text: str, *, source: str) -> PostgresSettings:
        """Parse the JSON form; raises SettingsError without quoting the text, which holds secrets."""
        return cls.from_mapping(words_of_json(text, source=source), source=source)

    def client_options(self) -> dict[str, Any]:
        """The same as libpq's words; holds secrets."""
        own = ("connect_timeout_s", "lock_timeout_s", "statement_timeout_s")
        words = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in own}
        return {name: value for name, value in words.items() if value is not None}


_INTEGERS = frozenset({"port", "connect_timeout_s", "lock_timeout_s", "statement_timeout_s"})


def _typed(words: Mapping[str, Any]) -> dict[str, Any]:
    known = {one.name for one in fields(PostgresSettings)}
    for name, value in words.items():
        if name not in known:
            raise _unfit(f"{name!r} is not a setting", f"use only {', '.join(sorted(known))}.")
        kind, what = (int, "an integer") if name in _INTEGERS else (str, "a string")
        if type(value) is not kind:  # exact: True is no port
            raise _unfit(f"{name} is not {what}", "mend the connection's JSON.")
    return {"host": "", "dbname": "", "user": "", **words}


def words_of_json(text: str, *, source: str) -> dict[str, Any]:
    """A JSON object with each key once; raises SettingsError without quoting the text."""
    try:
        words = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        words = None
    if isinstance(words, dict):
        return words
    raise SettingsError(
        f"{source}: the value is not a JSON object with each key once.",
        next_step=f"write it as {_EXAMPLE}, in libpq's words.",
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    words = dict(pairs)
    if len(words) != len(pairs):
        raise ValueError("a key twice")
    return words


def _unfit(happened: str, next_step: str) -> SettingsError:
    return SettingsError(f"{happened}.", next_step=next_step)
