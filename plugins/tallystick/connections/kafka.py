"""How to reach a Kafka cluster: one frozen value, checked when it is built, that never shows a secret.

The words are kafka-python's, from an allow-list: what a connection may say is decided here and nowhere else, and an
option that this reader sets itself (isolation, fetch sizes, group ids) cannot be set from outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from tallystick.errors import SettingsError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TIMEOUT_MS_MAX = 600_000
EMPTY_FETCH_MS_MAX = 3_600_000
_TIMEOUTS = {
    "request_timeout_ms": TIMEOUT_MS_MAX,
    "bootstrap_timeout_ms": TIMEOUT_MS_MAX,
    "empty_fetch_timeout_ms": EMPTY_FETCH_MS_MAX,
}
_SSL_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
_SSL_ONLY = (*_SSL_FILES, "ssl_password")
_SASL_ONLY = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Where a cluster is and who we are to it; raises SettingsError where the parts do not fit together.

    `client_rack` names where this process runs, so that brokers may send it to a replica nearby (KIP-392).
    `empty_fetch_timeout_ms` bounds how long a broker may answer fetches with nothing, where there must be something or a
    proof that nothing is there (`kafka.silence`). `repr` leaves out what is secret: the password of SASL, of the private
    key, and a proxy's address, which may hold one.
    """

    bootstrap_servers: tuple[str, ...]
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_crlfile: str | None = None
    ssl_check_hostname: bool = True
    proxy_url: str | None = field(default=None, repr=False)
    client_id: str = "tallystick"
    client_dns_lookup: str = "use_all_dns_ips"
    client_rack: str | None = None
    request_timeout_ms: int = 30_000
    bootstrap_timeout_ms: int = 30_000
    empty_fetch_timeout_ms: int = 300_000

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise _unfit("bootstrap_servers is missing or empty", "name at least one host:port.")
        for server in self.bootstrap_servers:
            _check_server(server)
        if self.security_protocol not in SECURITY_PROTOCOLS:
            raise _unfit(
                f"security_protocol {self.security_protocol!r} is unknown",
                f"use one of {', '.join(SECURITY_PROTOCOLS)}.",
            )
        for name, most in _TIMEOUTS.items():
            if not 1 <= getattr(self, name) <= most:
                raise _unfit(f"{name} {getattr(self, name)} is out of bounds", f"use 1 to {most}.")
        if self.proxy_url is not None and not _is_socks_url(self.proxy_url):
            raise _unfit(
                "proxy_url is not a SOCKS5 address",
                "write socks5://host:port (user, colon, password and an @ before the host where it wants them, with / "
                "and @ in them as %2F and %40), or leave it out.",
            )
        self._check_sasl()
        self._check_ssl()

    def _check_sasl(self) -> None:
        if not self.security_protocol.startswith("SASL_"):
            self._refuse_unused(_SASL_ONLY, "SASL_PLAINTEXT or SASL_SSL")
            return
        if self.sasl_mechanism not in SASL_MECHANISMS:
            raise _unfit(
                f"sasl_mechanism {self.sasl_mechanism!r} is not supported",
                f"use one of {', '.join(SASL_MECHANISMS)}.",
            )
        if not self.sasl_plain_username or not self.sasl_plain_password:
            raise _unfit(
                f"{self.security_protocol} lacks sasl_plain_username or sasl_plain_password",
                "give both: kafka-python uses these two for PLAIN and for SCRAM.",
            )

    def _check_ssl(self) -> None:
        if not self.security_protocol.endswith("SSL"):
            self._refuse_unused(_SSL_ONLY, "SSL or SASL_SSL")
        elif (self.ssl_keyfile or self.ssl_password) and not self.ssl_certfile:
            raise _unfit(
                "ssl_keyfile or ssl_password is given without ssl_certfile",
                "give the client certificate too.",
            )

    def _refuse_unused(self, names: tuple[str, ...], wanted: str) -> None:
        # A password that silently goes unused is a connection that is less safe than its owner believes.
        for name in names:
            if getattr(self, name) is not None:
                raise _unfit(
                    f"{name} has no effect with security_protocol {self.security_protocol}",
                    f"set security_protocol to {wanted}, or leave {name} out.",
                )

    def secrets(self) -> tuple[str, ...]:
        """The values that no message may hold."""
        return tuple(
            one for one in (self.sasl_plain_password, self.ssl_password, self.proxy_url) if one
        )

    @property
    def endpoint(self) -> str:
        """The bootstrap servers as one text, for messages."""
        return ",".join(self.bootstrap_servers)

    @classmethod
    def from_mapping(cls, words: Mapping[str, Any], *, source: str) -> KafkaSettings:
        """Check `words` against the allow-list; `source` says in errors where they came from.

        Raises SettingsError naming the key, never its value.
        """
        try:
            return cls(**_typed(words))
        except SettingsError as unfit:
            why = unfit
        # Outside the handler, here and below: an error keeps the one that was handled, and that one what it choked on.
        raise SettingsError(f"{source}: {why.happened}", next_step=why.next_step)

    @classmethod
    def from_json(cls, text: str, *, source: str) -> KafkaSettings:
        """Parse the JSON form; raises SettingsError without quoting the text, which holds secrets."""
        return cls.from_mapping(words_of_json(text, source=source), source=source)

    def as_env_json(self) -> str:
        """The JSON form with its secrets, to hand on to a child process in its environment and nowhere else."""
        words = {one.name: getattr(self, one.name) for one in fields(self)}
        said = {name: value for name, value in words.items() if value is not None}
        return json.dumps(
            said | {"bootstrap_servers": list(self.bootstrap_servers)}, sort_keys=True
        )

    def client_options(self) -> dict[str, Any]:
        """The same as keyword arguments of kafka-python's clients; holds secrets."""
        options = {one.name: getattr(self, one.name) for one in fields(self)}
        # The library's consumer takes the first; our fetches carry it themselves. The second is ours alone.
        del options["client_rack"], options["empty_fetch_timeout_ms"]
        return options | {"bootstrap_servers": list(self.bootstrap_servers)}


KAFKA_FORM = '{"bootstrap_servers": "host:port", ...}, in kafka-python\'s words'


def words_of_json(text: str, *, source: str, form: str = KAFKA_FORM) -> dict[str, Any]:
    """Parse a JSON object with each key once; raises SettingsError without quoting the text, which holds secrets."""
    why = "JSON, but not an object"
    try:
        words = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        why = "not a JSON object with each key once"
    else:
        if isinstance(words, dict):
            return words
    raise SettingsError(
        f"{source}: the value is {why}.",
        next_step=f"write it as {form}.",
    )


_KINDS: dict[str, type] = {one.name: str for one in fields(KafkaSettings)} | {
    "ssl_check_hostname": bool,
    **dict.fromkeys(_TIMEOUTS, int),
}


def _typed(words: Mapping[str, Any]) -> dict[str, Any]:
    typed: dict[str, Any] = {}
    for name, value in words.items():
        if name not in _KINDS:
            raise _unfit(f"{name!r} is not a setting", f"use only {', '.join(sorted(_KINDS))}.")
        if name == "bootstrap_servers":
            typed[name] = _servers(value)
        elif type(value) is not _KINDS[name]:  # exact: True is no number of milliseconds
            raise _unfit(
                f"{name} is {_kind_of(value)}, where {_kind_of(_KINDS[name]())} belongs",
                "mend the connection's JSON.",
            )
        else:
            typed[name] = value
    return typed | {"bootstrap_servers": typed.get("bootstrap_servers", ())}


def _kind_of(value: object) -> str:
    """What a JSON value is, in JSON's words."""
    kinds = {
        bool: "a boolean",
        int: "an integer",
        str: "a string",
        float: "a number",
        list: "a list",
    }
    return kinds.get(type(value), "null" if value is None else "an object")


def _servers(value: Any) -> tuple[str, ...]:
    servers = value.split(",") if isinstance(value, str) else value
    if not isinstance(servers, list | tuple) or not all(isinstance(one, str) for one in servers):
        raise _unfit(
            "bootstrap_servers is neither a text nor a list of texts", 'use "host:port,host:port".'
        )
    return tuple(one.strip() for one in servers if one.strip())


def _check_server(server: str) -> None:
    host, colon, port = server.rpartition(":")
    # "@" and "/" would be a URL, perhaps with a password in it: refused without quoting it.
    if any(sign in server for sign in "@/ \t\n"):
        raise _unfit(
            "an entry of bootstrap_servers is not host:port",
            "write it without scheme, user or path.",
        )
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise _unfit(
            f"bootstrap_servers has {server!r}, which is not host:port",
            "name host and port (1 to 65535).",
        )


def _is_socks_url(url: str) -> bool:
    # As the library takes it apart: where that fails its errors quote the port, which is then a part of the password.
    try:
        parts = urlsplit(url)
        reachable = bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False
    extra = parts.path.strip("/") or parts.query or parts.fragment
    return parts.scheme in ("socks5", "socks5h") and reachable and not extra


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    words = dict(pairs)
    if len(words) != len(pairs):
        raise ValueError("a key twice")
    return words


def _unfit(happened: str, next_step: str) -> SettingsError:
    return SettingsError(f"{happened}.", next_step=next_step)
