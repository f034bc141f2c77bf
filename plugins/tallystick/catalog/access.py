"""The checks before each request of the catalog, of every route: the header Host and the token. Then its log line.

The log has the method, the path, the status and the time: no header, no query and no body, so that no token gets there.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from tallystick.catalog.errors import CatalogError, as_catalog_error
from tallystick.catalog.tokens import TokenFile, TokenGrant
from tallystick.errors import SettingsError

log = logging.getLogger(__name__)

PATH_CHARS_MAX = 300
ANY_LAKE = TokenGrant(digest=b"", lakes=None)
"""What a request without a token may see if the catalog has no tokens."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches the host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class AccessGuard:
    """An ASGI app that lets through to `app` only requests that pass, with the caller's grant in `scope["state"]`.

    `tokens`: None if no token is needed; then the server must be bound to a loopback address, and the header Host must
    name one: a page in a browser of this machine could otherwise read the catalog under a name that leads here.
    """

    def __init__(self, app: AsgiApp, *, tokens: TokenFile | None) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, pass on and log one request."""
        if scope["type"] != "http":
            return
        began_s = time.monotonic()
        statuses: list[int] = []

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            scope.setdefault("state", {})["grant"] = self._grant(scope)
            await self._app(scope, receive, noting)
        except Exception as error:
            # The answer has the form of every other error, and the server goes on.
            known = as_catalog_error(error)
            if not isinstance(error, CatalogError):
                log.error("%s: a defect", shown_path(scope), exc_info=error)
            if not statuses:
                await send_error(known, noting)
        finally:
            took_ms = 1000 * (time.monotonic() - began_s)
            status = statuses[0] if statuses else 0
            log.info("%s %s %d %.0f ms", scope["method"], shown_path(scope), status, took_ms)

    def _grant(self, scope: Scope) -> TokenGrant:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if self._tokens is None:
            _check_host([value for name, value in headers if name == b"host"])
            return ANY_LAKE
        sent = [value for name, value in headers if name == b"authorization"]
        kind, _, token = (sent[0] if len(sent) == 1 else b"").decode("latin-1").partition(" ")
        try:
            found = self._tokens.grant_of(token.strip()) if kind.lower() == "bearer" else None
        except SettingsError as error:
            log.error("no token is accepted: %s", error)
            raise CatalogError(
                503, "ServiceUnavailableException", "The tokens cannot be read.", retry_after_s=60
            ) from None
        if found is None:
            raise CatalogError(
                401, "NotAuthorizedException", "Expected a bearer token of this catalog."
            )
        return found


def _check_host(sent: list[bytes]) -> None:
    try:
        host = urlsplit(f"//{sent[0].decode('latin-1')}").hostname if len(sent) == 1 else None
    except ValueError:
        host = None
    if host is None or not is_loopback(host):
        raise CatalogError(
            403,
            "ForbiddenException",
            "Expected a loopback address in the header Host: this catalog has no tokens.",
        )


async def send_error(error: CatalogError, send: Send) -> None:
    """Send an error as the whole answer."""
    body = error.body()
    headers = {
        **error.headers(),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def shown_path(scope: Scope) -> str:
    """Return the path of a request for the log: as it was sent, with every control character escaped by a %."""
    raw: bytes = scope.get("raw_path") or b""
    text = raw.partition(b"?")[0].decode("ascii", "backslashreplace")
    return text if len(text) <= PATH_CHARS_MAX else f"{text[:PATH_CHARS_MAX]}..."
