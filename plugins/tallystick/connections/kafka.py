"""The settings of a Kafka connection: a frozen value, checked when it is built, that never shows a secret.

The option names are kafka-python's, from an allow-list. Only this module decides which options a connection may have. An
option that tallystick sets itself (isolation, fetch sizes, group ids) cannot be set from outside.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tallystick.connections.settings import Settings, unusable

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
class KafkaSettings(Settings):
    """The address of a cluster and the credentials for it. Raises SettingsError if the options do not fit together.

    `client_rack` is the rack of this process, so that brokers may send it to a replica nearby (KIP-392).
    `empty_fetch_timeout_ms` limits how long a broker may give empty answers to fetches before it sends records or a
    proof that there are none (`kafka.silence`). `repr` leaves out the secrets: the passwords of SASL and of the private
    key, and the proxy's address, which may contain a password.
    """

    KIND: ClassVar[str] = "kafka"
    TITLE: ClassVar[str] = "Kafka"
    EXAMPLE: ClassVar[str] = '{"bootstrap_servers": "host:port"}'
    OPTIONS: ClassVar[str] = "those of kafka-python"

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
            raise unusable("bootstrap_servers is missing or empty", "set at least one host:port.")
        for server in self.bootstrap_servers:
            _check_server(server)
        if self.security_protocol not in SECURITY_PROTOCOLS:
            raise unusable(
                f"unknown security_protocol {self.security_protocol!r}",
                f"use one of {', '.join(SECURITY_PROTOCOLS)}.",
            )
        for name, most in _TIMEOUTS.items():
            if not 1 <= getattr(self, name) <= most:
                raise unusable(
                    f"{name}: expected 1 to {most}, found {getattr(self, name)}",
                    "set a value in this range.",
                )
        if self.proxy_url is not None and not _is_socks_url(self.proxy_url):
            raise unusable(
                "proxy_url is not a SOCKS5 address",
                "write socks5://host:port (if it needs them: user, colon, password and an @ before the host, with / and "
                "@ in them as %2F and %40), or remove it.",
            )
        self._check_sasl()
        self._check_ssl()

    def _check_sasl(self) -> None:
        if not self.security_protocol.startswith("SASL_"):
            self._refuse_unused(_SASL_ONLY, "SASL_PLAINTEXT or SASL_SSL")
            return
        if self.sasl_mechanism not in SASL_MECHANISMS:
            raise unusable(
                f"unsupported sasl_mechanism {self.sasl_mechanism!r}",
                f"use one of {', '.join(SASL_MECHANISMS)}.",
            )
        if not self.sasl_plain_username or not self.sasl_plain_password:
            raise unusable(
                f"{self.security_protocol} without sasl_plain_username or sasl_plain_password",
                "set both: kafka-python uses these two for PLAIN and for SCRAM.",
            )

    def _check_ssl(self) -> None:
        if not self.security_protocol.endswith("SSL"):
            self._refuse_unused(_SSL_ONLY, "SSL or SASL_SSL")
        elif (self.ssl_keyfile or self.ssl_password) and not self.ssl_certfile:
            raise unusable(
                "ssl_keyfile or ssl_password is set without ssl_certfile",
                "set the client certificate, too.",
            )

    def _refuse_unused(self, names: tuple[str, ...], wanted: str) -> None:
        # If a password were silently ignored, the connection would be less safe than its owner believes.
        for name in names:
            if getattr(self, name) is not None:
                raise unusable(
                    f"{name} has no effect with security_protocol {self.security_protocol}",
                    f"set security_protocol to {wanted}, or remove {name}.",
                )

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may contain."""
        return tuple(
            one for one in (self.sasl_plain_password, self.ssl_password, self.proxy_url) if one
        )

    @property
    def endpoint(self) -> str:
        """The bootstrap servers as one text, for messages."""
        return ",".join(self.bootstrap_servers)

    @classmethod
    def _converted(cls, name: str, value: Any) -> Any:
        """Return an option in the form of its field: servers as a tuple, from a list or a string with commas."""
        if name != "bootstrap_servers":
            return value
        servers = value.split(",") if isinstance(value, str) else value
        if not isinstance(servers, list | tuple) or not all(isinstance(s, str) for s in servers):
            raise unusable(
                "bootstrap_servers: expected a string or a list of strings",
                'use "host:port,host:port".',
            )
        return tuple(one.strip() for one in servers if one.strip())

    def as_env_json(self) -> str:
        """Return the JSON form with its secrets, only to be passed to a child process in its environment."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        options = {name: value for name, value in values.items() if value is not None}
        return json.dumps(
            options | {"bootstrap_servers": list(self.bootstrap_servers)}, sort_keys=True
        )

    def client_options(self) -> dict[str, Any]:
        """Return the settings as keyword arguments of kafka-python's clients; they contain secrets."""
        options = {one.name: getattr(self, one.name) for one in fields(self)}
        # The first is an option of the library's consumer only; tallystick's fetches contain it. The second is
        # tallystick's own.
        del options["client_rack"], options["empty_fetch_timeout_ms"]
        return options | {"bootstrap_servers": list(self.bootstrap_servers)}


def _check_server(server: str) -> None:
    host, colon, port = server.rpartition(":")
    # With "@" or "/" it would be a URL, which may contain a password: refuse it without quoting it.
    if any(sign in server for sign in "@/ \t\n"):
        raise unusable(
            "an entry of bootstrap_servers is not host:port",
            "write it without scheme, user or path.",
        )
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise unusable(
            f"bootstrap_servers: expected host:port, found {server!r}",
            "write host and port (1 to 65535).",
        )


def _is_socks_url(url: str) -> bool:
    # Parse it as the library does. If that fails, the library's error quotes the port, which is then a part of the
    # password.
    try:
        parts = urlsplit(url)
        reachable = bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False
    extra = parts.path.strip("/") or parts.query or parts.fragment
    return parts.scheme in ("socks5", "socks5h") and reachable and not extra
