"""GET requests to a schema registry: retried while it cannot answer, within a deadline, with bounded answers.

Each request has a connection of its own, follows no redirect and sends the credentials only to the urls of the
connection. Proxies of the environment are not used.
"""

from __future__ import annotations

import json
import ssl
import time
from dataclasses import dataclass
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    RemoteDisconnected,
)
from typing import Any
from urllib.parse import urlsplit

from tallystick.connections.registry import RegistrySettings
from tallystick.connections.settings import without_secrets
from tallystick.connections.tls import tls_of
from tallystick.errors import (
    RegistryRefused,
    RegistryUnavailable,
    SchemaNotFound,
    SettingsError,
    TallystickError,
)

ANSWER_BYTES_MAX = 16 << 20
PATIENCE_S = 60.0
PAUSE_S = 0.2
PAUSE_S_MAX = 5.0
_READ_BYTES = 1 << 16
_PASSING = (408, 425, 429)
# The error codes of Confluent's API for a subject, a version and a schema that do not exist.
_NOT_FOUND = range(40401, 40500)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAnswer:
    """An answer: its status (0 if none came whole; `why` has the reason) and its body."""

    status: int
    body: bytes = b""
    why: str = ""
    retry_after_s: float = 0.0

    @property
    def passes(self) -> bool:
        """True if the same request may get another answer later."""
        return self.status == 0 or self.status in _PASSING or self.status >= 500


class _AnswerTooLargeError(Exception):
    """The body of an answer exceeds the limit."""


class RegistryRequests:
    """Sends the requests of one client.

    `patience_s`: how long a request is repeated, over all urls, before RegistryUnavailable is raised; an attempt that has
    begun then still has its own `timeout_s`. Raises SettingsError if a file of the TLS settings cannot be used.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        patience_s: float = PATIENCE_S,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self._settings = settings
        self._patience_s = patience_s
        self._answer_bytes_max = answer_bytes_max
        self._tls = self._tls_context()

    def get(self, path: str) -> Any:
        """Return the JSON of an answer; `path` begins with a slash and is percent-encoded.

        Raises RegistryUnavailable, SchemaNotFound and RegistryRefused as the port describes. Safe to repeat: it reads.
        """
        deadline = time.monotonic() + self._patience_s
        pause_s = PAUSE_S
        while True:
            url, answer = self._answer_of_any(path)
            if 200 <= answer.status < 300:
                return self._parsed(url, path, answer.body)
            if not answer.passes:
                raise self._refused(url, path, answer)
            wait_s = max(pause_s, answer.retry_after_s)
            if time.monotonic() + wait_s > deadline:
                raise RegistryUnavailable(
                    f"{self._message(url, path, answer)}.",
                    hint="wait for the next try; if it persists, check the registry, and the urls of its connection.",
                )
            time.sleep(wait_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _answer_of_any(self, path: str) -> tuple[str, RegistryAnswer]:
        """Return the first answer that does not pass, with its url; if all pass, the last one."""
        for url in self._settings.urls:
            answer = self._answer(url, path)
            if not answer.passes:
                break
        return url, answer

    def _answer(self, url: str, path: str) -> RegistryAnswer:
        parts, timeout_s = urlsplit(url), self._settings.timeout_s
        deadline = time.monotonic() + timeout_s
        host, port = parts.hostname or "", parts.port
        connection = (
            HTTPConnection(host, port, timeout=timeout_s)
            if parts.scheme == "http"
            else HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        )
        refused: TallystickError
        try:
            connection.request("GET", parts.path.rstrip("/") + path, headers=self._headers())
            answer = connection.getresponse()
            body = self._body(answer, deadline)
            retry_after = answer.getheader("Retry-After") or ""
            return RegistryAnswer(
                status=answer.status,
                body=body,
                retry_after_s=float(retry_after) if _is_seconds(retry_after) else 0.0,
            )
        except _AnswerTooLargeError:
            refused = RegistryRefused(
                f"schema registry at {url}, GET {path}: expected an answer of at most {self._answer_bytes_max} bytes, "
                "found more.",
                hint="check what answers at this url.",
            )
        except ssl.SSLCertVerificationError as error:
            refused = SettingsError(
                f"schema registry at {url}: {error.verify_message}.",
                hint="set a cafile in the connection that verifies the registry's certificate.",
            )
        except (HTTPException, OSError) as error:
            return RegistryAnswer(status=0, why=_reason(error, timeout_s))
        finally:
            connection.close()
        # Outside the handlers: an error of the library may contain what a server sent.
        raise refused

    def _body(self, answer: HTTPResponse, deadline: float) -> bytes:
        """Return the whole body. Raises HTTPException if it ends early, TimeoutError if it is slow as a whole."""
        parts: list[bytes] = []
        length = 0
        while some := answer.read1(_READ_BYTES):
            parts.append(some)
            length += len(some)
            if length > self._answer_bytes_max:
                raise _AnswerTooLargeError
            if time.monotonic() > deadline:
                raise TimeoutError
        if answer.length:
            raise HTTPException("the body ended early")
        return b"".join(parts)

    def _headers(self) -> dict[str, str]:
        return {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            "User-Agent": "tallystick",
            "Connection": "close",
            **self._settings.sent_headers(),
        }

    def _tls_context(self) -> ssl.SSLContext | None:
        settings = self._settings
        if not any(url.startswith("https://") for url in settings.urls):
            return None
        return tls_of(
            settings.cafile,
            certfile=settings.certfile,
            keyfile=settings.keyfile,
            key_password=settings.key_password,
        )

    # ------------------------------------------------------------ errors

    def _parsed(self, url: str, path: str, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            pass  # raise outside the handler: the library's error contains the whole body
        shown = without_secrets(body[:4096], self._settings.secrets(), length_max=100)
        raise RegistryRefused(
            f"schema registry at {url}, GET {path}: expected JSON, found {shown!r}.",
            hint="check the url of the connection: it must be that of Confluent's API, with its path.",
        )

    def _message(self, url: str, path: str, answer: RegistryAnswer) -> str:
        if not answer.status:
            return f"schema registry at {url} did not answer GET {path}: {answer.why}"
        shown = without_secrets(answer.body[:4096], self._settings.secrets())
        return f"schema registry at {url} answered {answer.status} to GET {path}{f': {shown}' if shown else ''}"

    def _refused(
        self, url: str, path: str, answer: RegistryAnswer
    ) -> SchemaNotFound | RegistryRefused:
        message = f"{self._message(url, path, answer)}."
        if answer.status == 404 and _error_code(answer.body) in _NOT_FOUND:
            return SchemaNotFound(
                message,
                hint="check the name of the subject; a schema that was deleted permanently must be registered again.",
            )
        if answer.status in (401, 403, 407):
            hint = "check user, password or token of the connection, and that it may read every subject."
        elif 300 <= answer.status < 400:
            hint = "set the url of the connection to the registry's own address: redirects are not followed."
        else:
            hint = "check the url of the connection: it must be that of Confluent's API, with its path."
        return RegistryRefused(message, hint=hint)


def _error_code(body: bytes) -> int:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return 0
    code = found.get("error_code") if isinstance(found, dict) else None
    return code if type(code) is int else 0


def _is_seconds(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 7


def _reason(error: Exception, timeout_s: int) -> str:
    """Return the reason why no answer came, in tallystick's words: the library's may contain what a server sent."""
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason').replace('_', ' ').lower()}"
    if isinstance(error, RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(error, HTTPException):
        return "the answer is incomplete, or is not HTTP"
    return getattr(error, "strerror", None) or type(error).__name__
