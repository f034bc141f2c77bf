"""Requests to the REST API of a cluster, from a task and from the triggerer's event loop."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import httpx

from tallystick.errors import ClusterUnavailable, SettingsError

TIMEOUT_S = 20.0
TRIES_MAX, PAUSE_S = 3, 2.0
log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
_MESSAGE_MAX = 500


class NotAnsweredError(Exception):
    """A server did not answer as the API does (a standby, a proxy, a failure): another one is asked."""


class RestApi(Generic[Answer]):
    """An API below `base` at one of `urls`; the servers are asked in this order until `read` accepts an answer.

    `read` returns what an answer contains. It raises NotAnsweredError if another server may answer, and SettingsError if
    this one refuses what is configured. `headers` is called for each request, because a token can change. `what` and
    `hint` are of the error if no server answers.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        base: str = "",
        read: Callable[[str, httpx.Response], Answer],
        what: str,
        hint: str,
        headers: Callable[[], Mapping[str, str]],
        ca_file: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.urls = tuple(url.rstrip("/") for url in urls)
        self._base = base
        self._read = read
        self._what, self._hint = what, hint
        self._headers = headers
        self._ca_file = ca_file
        self._timeout_s = timeout_s

    def send(self, method: str, path: str, **sent: Any) -> Answer:
        """Send a request; `sent`: its `json` and `params`. Raises ClusterUnavailable if no server answers."""
        failures: list[str] = []
        with httpx.Client(**self._options()) as client:
            for url in self.urls:
                with _noted(failures, url):
                    return self._read(url, client.request(method, url + self._base + path, **sent))
        raise self._unavailable(failures)

    def send_repeatedly(self, method: str, path: str, **sent: Any) -> Answer:
        """Send a request that changes nothing, some times until a server answers. Raises the last ClusterUnavailable."""
        for _ in range(TRIES_MAX - 1):
            try:
                return self.send(method, path, **sent)
            except ClusterUnavailable as error:
                log.warning("%s", error)
                time.sleep(PAUSE_S)
        return self.send(method, path, **sent)

    async def asend(self, method: str, path: str, **sent: Any) -> Answer:
        """Send a request as `send` does, without blocking the event loop."""
        failures: list[str] = []
        async with httpx.AsyncClient(**self._options()) as client:
            for url in self.urls:
                with _noted(failures, url):
                    return self._read(
                        url, await client.request(method, url + self._base + path, **sent)
                    )
        raise self._unavailable(failures)

    def _options(self) -> dict[str, Any]:
        # The cluster is inside of the network, not behind a proxy. Redirects are not followed: a token is sent only to
        # servers that the connection names.
        return {
            "headers": dict(self._headers()),
            "timeout": self._timeout_s,
            "trust_env": False,
            "verify": _tls(self._ca_file),
        }

    def _unavailable(self, failures: Sequence[str]) -> ClusterUnavailable:
        why = "; ".join(failures) or "it has no address"
        return ClusterUnavailable(f"{self._what} is not available: {why}.", hint=self._hint)


def json_object(answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises NotAnsweredError if it has none: another program answered."""
    try:
        found = answer.json()
    except ValueError:
        raise NotAnsweredError(f"it answered {answer.status_code} without JSON") from None
    if not isinstance(found, dict):
        raise NotAnsweredError(f"it answered {answer.status_code} without a JSON object")
    return found


def one_line(text: object) -> str:
    """Return a message of a cluster as one line, cut to a length that fits into an error."""
    return " ".join(str(text).split())[:_MESSAGE_MAX].rstrip(".")


def bearer(token: str | None) -> dict[str, str]:
    """Return the header that contains the token, if there is one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


@contextmanager
def _noted(failures: list[str], url: str) -> Iterator[None]:
    """Add the reason to `failures` if a server does not answer, so that the next one is asked."""
    try:
        yield
    except httpx.HTTPError as error:
        failures.append(f"{url} did not answer: {type(error).__name__}: {error}")
    except NotAnsweredError as error:
        failures.append(f"{url}: {error}")


@cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    """Return one context for all requests: reading the authorities takes longer than a request."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"the certificates in {ca_file} cannot be read: {error}.",
            hint="name a file with certificates in PEM as ca_file in the extra of the Spark connection.",
        ) from None
