"""The declarations of receivers of calls: HTTP servers, and people by e-mail.

DAG files import this module, so it has light imports only; `http` and `email` do the work.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.pipeline import Replaced

T = TypeVar("T")
CONCURRENCY_MAX = 32
METHODS = ("POST", "PUT", "PATCH")
IN_DOUBT = ("send", "hold")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOutput:
    """The declaration of an HTTP receiver: one call per row, with an idempotency key that never changes for that row.

    `url`: http(s)://..., or a path that begins with a slash and is appended to the connection's `base_url`. `http`
    names the connection, which holds the secrets. `key`: columns; each of their values gets one call, regardless of
    the interval. If there are none, a row is identified by its lineage, or, if its table aggregates, by the table's
    key in its interval.

    `replaced`: with `correct` (without a `key`), each change gets a call with a key of its own; with `once`, a call
    that was made is never made again; with `refuse`, an interval that was called for cannot be replaced.
    `concurrency` is the number of calls that are under way at once, in no order; with 1, they keep the order of the
    rows. `calls_per_s` is the maximum rate of one publisher.
    """

    name: str
    table: str
    url: str
    key: Sequence[str] = ()
    http: str = "default"
    method: str = "POST"
    replaced: Replaced = "correct"
    concurrency: int = 4
    calls_per_s: float | None = None

    def __post_init__(self) -> None:
        keys.check_name(self.http, "connection")
        object.__setattr__(self, "key", _columns(self.name, self.key))
        _allowed(self.name, "method", self.method, METHODS)
        _allowed(self.name, "replaced", self.replaced, ("correct", "once", "refuse"))
        if self.key and self.replaced == "correct":
            raise InvalidPipeline(
                f"output {self.name}: expected replaced='once' or 'refuse' with one call per {', '.join(self.key)}, "
                "found 'correct'.",
                hint="declare replaced='once' or 'refuse'; or omit `key`: rows are then corrected by lineage.",
            )
        if not _is_url(self.url):
            raise InvalidPipeline(
                f"output {self.name}: expected a url of http(s)://host... or a path that begins with a slash, "
                "without user, "
                "fragment or invalid characters, found another.",
                hint="correct it; set secrets in the connection that `http` names.",
            )
        if not 1 <= self.concurrency <= CONCURRENCY_MAX:
            raise InvalidPipeline(
                f"output {self.name}: expected a concurrency of 1 to {CONCURRENCY_MAX}, found {self.concurrency}.",
                hint=f"use 1 to {CONCURRENCY_MAX}.",
            )
        if self.calls_per_s is not None and not 0 < self.calls_per_s < 1e6:
            raise InvalidPipeline(
                f"output {self.name}: expected calls_per_s above 0 and below 10^6, found {self.calls_per_s}.",
                hint="use a number above 0, or omit it.",
            )

    @property
    def target(self) -> str:
        """The target that the output's name refers to, with what identifies a row.

        If the identity changed, the notes of earlier calls would not be found.
        """
        once = " once per row" if self.replaced == "once" else ""
        return f"http:{self.http}/{self.url}" + (_keyed(self.key) or once)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailOutput:
    """The declaration of one e-mail per row, or per key if `key` is declared.

    The mail server acknowledges at most one e-mail per key, even if the interval is rerun or replaced.

    `to` is the column of the address. `subject` and `body` are texts with columns in braces ("Order {order_id}"; {{
    is a brace). `smtp` names the connection. `key`: columns; each of their values gets one e-mail, regardless of the
    interval. If there are none, each row gets one. `replaced`: with `once`, only new keys get an e-mail; with
    `refuse`, an interval that was sent cannot be replaced.

    `in_doubt` applies if an e-mail may have been sent, but the server's answer was not noted (the publisher died just
    then): `send` sends it again with the same Message-ID, `hold` leaves the decision to a person.
    """

    name: str
    table: str
    to: str
    subject: str
    body: str
    sender: str
    smtp: str = "default"
    key: Sequence[str] = ()
    replaced: Replaced = "once"
    in_doubt: Literal["send", "hold"] = "send"

    def __post_init__(self) -> None:
        keys.check_name(self.smtp, "connection")
        object.__setattr__(self, "key", _columns(self.name, self.key))
        _allowed(self.name, "replaced", self.replaced, ("once", "refuse"))
        _allowed(self.name, "in_doubt", self.in_doubt, IN_DOUBT)
        for what in ("subject", "body"):
            columns_of(self.name, what, getattr(self, what))
        if "\n" in self.subject or "\r" in self.subject:
            raise InvalidPipeline(
                f"output {self.name}: expected a subject of one line, found several.",
                hint="write one line.",
            )
        if not is_address(self.sender):
            raise InvalidPipeline(
                f"output {self.name}: expected an e-mail address as sender, found {self.sender!r}.",
                hint="write one plain address: name@example.org.",
            )

    @property
    def target(self) -> str:
        """The target that the output's name refers to, with the key columns.

        If the key columns changed, keys that have their e-mail would get another.
        """
        return f"smtp:{self.smtp}/{self.to}" + _keyed(self.key)


def columns_of(output: str, what: str, template: str) -> tuple[str, ...]:
    """Return the columns in braces in a template. Raises InvalidPipeline if there is anything else in braces."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InvalidPipeline(
            f"output {output}: the {what} cannot be parsed: {error}.",
            hint="write columns as {column}, and a brace as {{ or }}.",
        ) from error
    for _, name, format_spec, conversion in parts:
        if name is not None and (not name.isidentifier() or format_spec or conversion):
            raise InvalidPipeline(
                f"output {output}: expected a plain column name in the braces of the {what}, found {name!r}.",
                hint="write only the name of a column in braces, and a brace as {{ or }}.",
            )
    return tuple(name for _, name, _, _ in parts if name is not None)


def is_address(text: str) -> bool:
    """Return True if a text is one plain address in ASCII.

    It has no name, no list, and no character that would end the line of a header.
    """
    local, at, domain = text.rpartition("@")
    plain = text.isascii() and text.isprintable() and len(text) <= 254
    return bool(
        plain
        and at
        and local
        and not set(text) & set(' ",:;<>()[]\\')
        and local.count("@") == 0
        and all(part and part.strip("-") == part for part in domain.split("."))
    )


def _columns(output: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or len(set(names)) != len(names):
        raise InvalidPipeline(
            f"output {output}: expected a list of columns, each once, as key, found {names!r}.",
            hint="write a list of columns, each once.",
        )
    return tuple(names)


def _allowed(output: str, what: str, value: T, of: Iterable[T]) -> None:
    if value not in of:
        raise InvalidPipeline(
            f"output {output}: unknown {what}={value!r}.",
            hint=f"use one of {', '.join(map(str, of))}.",
        )


def _is_url(url: str) -> bool:
    if not url.isascii() or not url.isprintable() or " " in url or "#" in url or "@" in url:
        return False
    if url.startswith("/"):
        return not url.startswith("//")
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number
        return False


def _keyed(key: Sequence[str]) -> str:
    return f" once per {','.join(key)}" if key else ""
