"""The settings of an HTTP connection: a frozen value, checked when it is built, that never shows a secret."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import urlsplit

from tallystick.connections.settings import Settings, check_timeout, unusable

# The headers that tallystick itself sets in each call.
OWN_HEADERS = ("idempotency-key", "content-length", "transfer-encoding", "host", "connection")
OWN_PREFIX = "tallystick-"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings(Settings):
    """An HTTP connection. If an output's url is a path, `base_url` is its prefix. Each call sends `headers`.

    `repr` leaves out headers, password and token, and the base url: some receivers put a secret into its path.
    """

    KIND: ClassVar[str] = "http"
    TITLE: ClassVar[str] = "HTTP"
    EXAMPLE: ClassVar[str] = '{"base_url": "https://host", "timeout_s": 30}'
    OPTIONS: ClassVar[str] = "in docs/reference/outputs.md"

    base_url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    cafile: str | None = None
    timeout_s: int = 30

    def __post_init__(self) -> None:
        check_timeout(self.timeout_s)
        if self.base_url is not None and not is_base_url(self.base_url):
            raise unusable(
                "base_url: expected http(s)://host, with a path at most",
                "write it without user, query and fragment.",
            )
        if (self.username is None) != (self.password is None):
            raise unusable("only one of username and password is set", "set both or neither.")
        if self.bearer_token is not None and self.username is not None:
            raise unusable("both bearer_token and username are set", "set one of the two.")
        for name, value in self.sent_headers().items():
            if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
                # The message does not quote them: a broken name may be half of a secret.
                raise unusable(
                    "a header's name or value has a character that headers do not allow",
                    "use printable ASCII in values; letters, digits and hyphens in names.",
                )
            if name.lower() in OWN_HEADERS or name.lower().startswith(OWN_PREFIX):
                raise unusable(
                    f"header {name} is set by tallystick itself",
                    "remove it from `headers`.",
                )

    def sent_headers(self) -> dict[str, str]:
        """Return the headers of each call; they contain secrets."""
        found = dict(self.headers)
        if self.bearer_token is not None:
            found["Authorization"] = f"Bearer {self.bearer_token}"
        if self.username is not None:
            pair = f"{self.username}:{self.password}".encode()
            found["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return found

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may contain, the longest first; of `Bearer abc` also the `abc`."""
        values = [*self.sent_headers().values()]
        last_words = [value.rpartition(" ")[2] for value in values]
        path = urlsplit(self.base_url).path.strip("/") if self.base_url else ""
        found = {*values, *last_words, self.password or "", self.bearer_token or "", path}
        return tuple(sorted((one for one in found if len(one) > 4), key=len, reverse=True))


def is_base_url(url: str) -> bool:
    """Return True if `url` is http(s)://host with a port and a path at most."""
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in " @?#"):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        return False
