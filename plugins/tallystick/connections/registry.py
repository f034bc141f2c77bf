"""The settings of a schema registry: a frozen value, checked when it is built, that never shows a secret."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tallystick.connections.http import is_base_url
from tallystick.connections.settings import Settings, check_timeout, unusable

_TLS = ("cafile", "certfile", "keyfile", "key_password")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings(Settings):
    """The addresses of a schema registry with Confluent's API, and the credentials for it.

    `urls`: one or more servers of one registry, each with the path of the API if there is one; the next one is tried if a
    server does not answer. Raises SettingsError if the options do not fit together. `repr` leaves out the secrets.
    """

    KIND: ClassVar[str] = "registry"
    TITLE: ClassVar[str] = "schema registry"
    EXAMPLE: ClassVar[str] = '{"urls": "https://host:8081"}'
    OPTIONS: ClassVar[str] = "in docs/how-to/connect-to-a-schema-registry.md"

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    key_password: str | None = field(default=None, repr=False)
    timeout_s: int = 10

    def __post_init__(self) -> None:
        check_timeout(self.timeout_s)
        if not self.urls:
            raise unusable("urls is missing or empty", f"write it as {self.EXAMPLE}.")
        if not all(map(is_base_url, self.urls)):
            # A refused url may contain a password, so the message does not quote it.
            raise unusable(
                "urls: expected http(s)://host, with a port and a path at most",
                "write them without user, query and fragment: user and password have settings of their own.",
            )
        if (self.username is None) != (self.password is None):
            raise unusable("only one of username and password is set", "set both or neither.")
        if self.bearer_token is not None and self.username is not None:
            raise unusable("both bearer_token and username are set", "set one of the two.")
        if self.username is not None and ":" in self.username:
            raise unusable("username contains a colon", "use a user whose name has none.")
        if not (self.bearer_token or "").isascii() or not (self.bearer_token or "").isprintable():
            raise unusable(
                "bearer_token has a character that headers do not allow", "use printable ASCII."
            )
        if (self.keyfile or self.key_password) and not self.certfile:
            raise unusable(
                "keyfile or key_password is set without certfile",
                "set the client certificate, too.",
            )
        if not any(url.startswith("https://") for url in self.urls):
            for name in _TLS:
                if getattr(self, name) is not None:
                    raise unusable(
                        f"{name} has no effect without an https url",
                        f"use https, or remove {name}.",
                    )

    @classmethod
    def _converted(cls, name: str, value: Any) -> Any:
        """Return an option in the form of its field: urls as a tuple, from a list or a string with commas."""
        if name != "urls":
            return value
        urls = value.split(",") if isinstance(value, str) else value
        if not isinstance(urls, list | tuple) or not all(isinstance(one, str) for one in urls):
            raise unusable(
                "urls: expected a string or a list of strings", f"write it as {cls.EXAMPLE}."
            )
        return tuple(one.strip().rstrip("/") for one in urls if one.strip())

    @property
    def endpoint(self) -> str:
        """The urls as one text, for messages."""
        return ", ".join(self.urls)

    def sent_headers(self) -> dict[str, str]:
        """Return the headers of each request that contain a secret."""
        if self.bearer_token is not None:
            return {"Authorization": f"Bearer {self.bearer_token}"}
        if self.username is not None:
            return {"Authorization": f"Basic {self._basic()}"}
        return {}

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may contain, the longest first."""
        basic = self._basic() if self.username is not None else ""
        found = {self.password or "", self.bearer_token or "", self.key_password or "", basic}
        return tuple(sorted((one for one in found if one), key=len, reverse=True))

    def _basic(self) -> str:
        return base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
