"""How to reach a receiver of calls: frozen values, checked when they are built, that never show a secret."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from tallystick.connections.resolve import SECRETS_DIR_ENV, call_env_name, call_words
from tallystick.errors import SettingsError

TIMEOUT_S_MAX = 600
SECURITIES = ("starttls", "tls", "none")
SECURE_PORTS = {"starttls": 587, "tls": 465, "none": 25}
# What tallystick says itself in each call.
OWN_HEADERS = ("idempotency-key", "content-length", "transfer-encoding", "host", "connection")
OWN_PREFIX = "tallystick-"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """An HTTP connection. `base_url` goes before an output's url that is a path; `headers` go with each call.

    `repr` shows neither headers nor password, nor the base url: some receivers put a secret into its path.
    """

    base_url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    cafile: str | None = None
    timeout_s: int = 30

    def __post_init__(self) -> None:
        _check_timeout(self.timeout_s)
        if self.base_url is not None and not _is_base_url(self.base_url):
            raise _unfit(
                "base_url is not http(s)://host with a path at most",
                "write it without user, query and fragment.",
            )
        if (self.username is None) != (self.password is None):
            raise _unfit("one of username and password is given", "give both, or neither.")
        if self.bearer_token is not None and self.username is not None:
            raise _unfit("bearer_token and username are both given", "give one of the two.")
        for name, value in self.sent_headers().items():
            if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
                # Without quoting them: a broken name may be half of a secret.
                raise _unfit(
                    "a header's name or value has a sign that no header has",
                    "use printable ASCII, and letters, digits and hyphens in names.",
                )
            if name.lower() in OWN_HEADERS or name.lower().startswith(OWN_PREFIX):
                raise _unfit(
                    f"header {name} is one that tallystick sets itself",
                    "leave it out of `headers`.",
                )

    def sent_headers(self) -> dict[str, str]:
        """The headers of each call; they hold secrets."""
        found = dict(self.headers)
        if self.bearer_token is not None:
            found["Authorization"] = f"Bearer {self.bearer_token}"
        if self.username is not None:
            pair = f"{self.username}:{self.password}".encode()
            found["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return found

    def secrets(self) -> tuple[str, ...]:
        """The values that no message may hold, the longest first; of `Bearer abc` also the `abc`."""
        values = [*self.sent_headers().values()]
        words = [value.rpartition(" ")[2] for value in values]
        path = urlsplit(self.base_url).path.strip("/") if self.base_url else ""
        found = {*values, *words, self.password or "", self.bearer_token or "", path}
        return tuple(sorted((one for one in found if len(one) > 4), key=len, reverse=True))

    @classmethod
    def from_mapping(cls, words: Mapping[str, Any], *, source: str) -> HttpSettings:
        """Check `words`; raises SettingsError naming `source` and the word, never its value."""
        kinds = {name: str for name in cls.__slots__} | {"headers": dict, "timeout_s": int}
        try:
            known = _typed(words, kinds)
            if not all(type(v) is str for v in known.get("headers", {}).values()):
                raise _unfit("headers is not an object of texts", "write each value as a text.")
            return cls(**known)
        except SettingsError as unfit:
            why = unfit
        # Outside the handler: an error keeps the one that was handled.
        raise SettingsError(f"{source}: {why.happened}", next_step=why.next_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpSettings:
    """A mail server. `security`: `starttls` (before anything is said), `tls` from the first byte, `none`."""

    host: str
    port: int = 0
    security: str = "starttls"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    cafile: str | None = None
    timeout_s: int = 30

    def __post_init__(self) -> None:
        _check_timeout(self.timeout_s)
        if self.security not in SECURITIES:
            raise _unfit(
                f"security {self.security!r} is unknown", f"use one of {', '.join(SECURITIES)}."
            )
        if not self.host or any(sign in self.host for sign in "@/: \t\n"):
            raise _unfit("host is no host", "write the name alone; port has a word of its own.")
        if not 0 <= self.port < 65536:
            raise _unfit(f"port {self.port} is none", "use 1 to 65535.")
        if (self.username is None) != (self.password is None):
            raise _unfit("one of username and password is given", "give both, or neither.")
        if self.password is not None and self.security == "none":
            raise _unfit(
                "a password would go over a line that all can read", "use starttls or tls."
            )
        if self.port == 0:
            object.__setattr__(self, "port", SECURE_PORTS[self.security])

    def secrets(self) -> tuple[str, ...]:
        """The values that no message may hold."""
        return (self.password,) if self.password else ()

    @classmethod
    def from_mapping(cls, words: Mapping[str, Any], *, source: str) -> SmtpSettings:
        """Check `words`; raises SettingsError naming `source` and the word, never its value."""
        kinds = {name: str for name in cls.__slots__} | {"port": int, "timeout_s": int}
        try:
            return cls(**{"host": "", **_typed(words, kinds)})
        except SettingsError as unfit:
            why = unfit
        # Outside the handler: an error keeps the one that was handled.
        raise SettingsError(f"{source}: {why.happened}", next_step=why.next_step)


def http_settings(
    name: str, *, environ: Mapping[str, str], otherwise: Mapping[str, Any] | None = None
) -> HttpSettings:
    """Resolve the HTTP connection `name`: environment, then secrets folder, then the mapping `otherwise`.

    Where nothing is said of the connection `default`, calls go without headers. Raises SettingsError.
    """
    words, source = _words(
        "http", name, environ, otherwise if name != "default" else otherwise or {}
    )
    return HttpSettings.from_mapping(words, source=source)


def smtp_settings(
    name: str, *, environ: Mapping[str, str], otherwise: Mapping[str, Any] | None = None
) -> SmtpSettings:
    """Resolve the connection `name` to a mail server, as above. Raises SettingsError."""
    words, source = _words("smtp", name, environ, otherwise)
    return SmtpSettings.from_mapping(words, source=source)


def _words(
    kind: Literal["http", "smtp"],
    name: str,
    environ: Mapping[str, str],
    otherwise: Mapping[str, Any] | None,
) -> tuple[Mapping[str, Any], str]:
    if found := call_words(kind, name, environ=environ):
        return found
    if otherwise is not None:
        return otherwise, f"connection {name!r}"
    variable = call_env_name(kind, name)
    raise SettingsError(
        f"{kind} connection {name!r} is not defined: {variable} is not set, and {SECRETS_DIR_ENV} has no file "
        f"{kind}.{name}.json.",
        next_step=f"set {variable} to JSON as docs/reference/outputs.md shows, mount that file, or define the Airflow "
        f"connection {kind}_{name}.",
    )


def tls(cafile: str | None) -> ssl.SSLContext:
    """The TLS of a connection: certificates and host names are always checked. Raises SettingsError for its file."""
    # As for Kafka: what Python 3.13 adds to its default context refuses many a company's own authority.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if cafile is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile)
        return context
    except ssl.SSLError as error:
        why = (error.reason or "no PEM file").replace("_", " ").lower()
    except OSError as error:
        why = error.strerror or type(error).__name__
    raise SettingsError(
        f"cafile {cafile} cannot be used: {why}.",
        next_step="check that the file is there, is PEM and may be read by this user.",
    )


def struck(text: bytes | str, secrets: tuple[str, ...], *, length_max: int = 200) -> str:
    """The first signs of what a receiver answered, on one line and without any secret of ours that it repeats."""
    told = text.decode(errors="replace") if isinstance(text, bytes) else text
    for secret in secrets:
        told = told.replace(secret, "***")
    return " ".join("".join(c if c.isprintable() else " " for c in told).split())[:length_max]


def _typed(words: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    for name, value in words.items():
        if name not in kinds:
            raise _unfit(f"{name!r} is not a setting", f"use only {', '.join(sorted(kinds))}.")
        if type(value) is not kinds[name]:  # exact: True is no number
            raise _unfit(
                f"{name} is not of type {kinds[name].__name__}", "mend the connection's JSON."
            )
    return dict(words)


def _check_timeout(timeout_s: int) -> None:
    if not 1 <= timeout_s <= TIMEOUT_S_MAX:
        raise _unfit(f"timeout_s {timeout_s} is out of bounds", f"use 1 to {TIMEOUT_S_MAX}.")


def _is_base_url(url: str) -> bool:
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in " @?#"):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def _unfit(happened: str, next_step: str) -> SettingsError:
    return SettingsError(f"{happened}.", next_step=next_step)
