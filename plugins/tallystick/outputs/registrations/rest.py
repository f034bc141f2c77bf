"""Registers tables in a catalog with Iceberg's REST API (the Iceberg REST Catalog spec, registerTable with `overwrite`).

The API has no condition for it: the pointer is read first, and overwritten if it is an earlier one of the same table. A
publisher that sleeps between the two can set a pointer back to an earlier commit; it registers the last commit again
right after (`operations.register`). Each request has a connection of its own and follows no redirect.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tallystick.connections.http import HttpSettings
from tallystick.connections.settings import without_secrets
from tallystick.connections.tls import tls_of
from tallystick.errors import (
    OutputBusy,
    OutputRefused,
    OutputUnavailable,
    SettingsError,
    TallystickError,
)
from tallystick.outputs.registrations.declared import RestRegistration
from tallystick.outputs.registrations.port import Pointer, ahead, steps
from tallystick.protocol.registering import Advance, Create

# The metadata of a table with very many columns and snapshots.
ANSWER_BYTES_MAX = 64 << 20
_PASSING = (408, 425, 429)
# What separates the levels of a namespace in a path, percent-encoded, if the configuration has no other
# (Iceberg REST Catalog spec, namespace-separator).
_SEPARATOR = "%1F"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogAnswer:
    """An answer: its status, its JSON object, and the text for messages."""

    status: int
    body: Mapping[str, Any]
    text: str

    @property
    def kind(self) -> str:
        """The type of the error in the answer, such as `NoSuchTableException`; empty if there is none."""
        error = self.body.get("error")
        return str(error.get("type", "")) if isinstance(error, dict) else ""


class RestRegistrar:
    """The registrar of a namespace in a REST catalog."""

    def __init__(self, declared: RestRegistration, settings: Callable[[], HttpSettings]) -> None:
        self.declared, self._settings_of = declared, settings
        self._settings = HttpSettings()
        self._tls: ssl.SSLContext | None = None
        self._namespace: str | None = None
        self.where = (
            f"namespace {declared.namespace} of the REST catalog of connection {declared.http}"
        )

    def register(self, pointers: Sequence[Pointer]) -> Mapping[str, str]:
        """Set the pointers, table by table; return those that are ahead.

        Safe to repeat: pointers are read first, and those that are right already are left alone.
        """
        namespace = self._opened()
        found = {
            one.table: uri
            for one in pointers
            if (uri := self._pointer(namespace, one.table)) is not None
        }
        decided = steps(pointers, found.get, registration=self.declared.name, where=self.where)
        later = ahead(decided, found.get)
        for pointer in () if later else sorted(pointers, key=lambda one: one.table):
            step = decided[pointer.table]
            if isinstance(step, Create | Advance):
                self._set(namespace, pointer, overwrite=isinstance(step, Advance))
        return later

    def close(self) -> None:
        """Do nothing, because no connection stays open. Safe to repeat."""

    # ------------------------------------------------------------ requests

    def _opened(self) -> str:
        """Return the path of the namespace, with the prefix of the catalog's configuration."""
        if self._namespace is None:
            self._settings = self._settings_of()
            if self._settings.base_url is None:
                raise SettingsError(
                    f"registration {self.declared.name}: connection {self.declared.http} has no base_url.",
                    hint='set it to the address of the catalog without /v1, e.g. "https://host/api/catalog".',
                )
            self._tls = tls_of(self._settings.cafile)
            asked = {"warehouse": self.declared.warehouse} if self.declared.warehouse else {}
            answer = self._asked("GET", f"/v1/config{'?' if asked else ''}{urlencode(asked)}")
            if answer.status != 200:
                raise self._refused("its configuration", answer)
            config: dict[str, Any] = {
                **(answer.body.get("defaults") or {}),
                **(answer.body.get("overrides") or {}),
            }
            prefix = str(config.get("prefix") or "").strip("/")
            separator = str(config.get("namespace-separator") or _SEPARATOR)
            levels = separator.join(map(quote, self.declared.namespace.split(".")))
            self._namespace = f"/v1/{f'{quote(prefix)}/' if prefix else ''}namespaces/{levels}"
        return self._namespace

    def _pointer(self, namespace: str, table: str) -> str | None:
        answer = self._asked("GET", f"{namespace}/tables/{quote(table, safe='')}?snapshots=refs")
        if answer.status == 404 and answer.kind != "NoSuchNamespaceException":
            return None
        if answer.status != 200:
            raise self._refused(f"table {table}", answer)
        return str(answer.body.get("metadata-location") or "")

    def _set(self, namespace: str, pointer: Pointer, *, overwrite: bool) -> None:
        """Register a table. Safe to repeat: it names one metadata file, which never changes."""
        answer = self._asked(
            "POST",
            f"{namespace}/register",
            {
                "name": pointer.table,
                "metadata-location": pointer.uri,
                **({"overwrite": True} if overwrite else {}),
            },
        )
        if answer.status != 200:
            raise self._refused(f"table {pointer.table}", answer)
        stored = answer.body.get("metadata-location")
        if stored != pointer.uri:
            raise OutputRefused(
                f"registration {self.declared.name}: table {pointer.table} of {self.where}: expected the pointer "
                f"{pointer.uri}, found {stored}.",
                hint="this catalog writes metadata of its own when it registers a table, so its pointers do not show the "
                "lake's commits. Use another kind of registration, and remove what it wrote.",
            )

    def _asked(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> CatalogAnswer:
        base = urlsplit(self._settings.base_url or "")
        host, port, timeout_s = base.hostname or "", base.port, self._settings.timeout_s
        connection = (
            HTTPConnection(host, port, timeout=timeout_s)
            if base.scheme == "http"
            else HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        )
        headers = {**self._settings.sent_headers(), "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        failure = ""
        try:
            with closing(connection):
                sent = None if body is None else json.dumps(body).encode()
                connection.request(method, base.path.rstrip("/") + path, sent, headers)
                response = connection.getresponse()
                content = response.read(ANSWER_BYTES_MAX + 1)
                status = response.status
        except (OSError, HTTPException) as error:
            failure = f"{type(error).__name__}: {error}"
        if failure:
            raise self._unavailable(failure)
        text = without_secrets(content, self._settings.secrets())
        return CatalogAnswer(status=status, body=_object(content), text=text)

    # ------------------------------------------------------------ errors

    def _unavailable(self, why: str) -> OutputUnavailable:
        shown = without_secrets(why, self._settings.secrets())
        return OutputUnavailable(
            f"registration {self.declared.name}: {self.where}: {shown}.",
            hint="wait for the next try, which reads the pointers from the catalog again.",
        )

    def _refused(self, what: str, answer: CatalogAnswer) -> TallystickError:
        if answer.status in _PASSING or answer.status >= 500:
            return self._unavailable(f"{what}: {answer.status} {answer.text}")
        message = (
            f"registration {self.declared.name}: {what} of {self.where}: {answer.status} {answer.text}".rstrip(
                "."
            )
            + "."
        )
        if answer.status == 409:
            return OutputBusy(
                message,
                hint="wait for the next try: another process registered the table meanwhile. If it comes back, the "
                "catalog may ignore overwrite (Iceberg REST spec, RegisterTableRequest).",
            )
        if answer.status in (401, 403):
            return SettingsError(
                message, hint="correct the connection's credentials, or their rights."
            )
        if answer.status == 404 and "Namespace" in answer.kind:
            return SettingsError(
                message,
                hint="create the namespace in the catalog, or correct its name; tallystick creates none.",
            )
        if answer.status == 404:
            return SettingsError(
                message,
                hint="correct base_url and warehouse; and give the catalog the right to read the lake's bucket: it "
                "reads the metadata that it registers.",
            )
        if answer.status == 406 or "UnsupportedOperation" in answer.kind:
            return OutputRefused(
                message,
                hint="this catalog does not support overwrite (Iceberg REST spec, RegisterTableRequest), so its pointers "
                "cannot be advanced. Use a version that does, or another kind of registration.",
            )
        return OutputRefused(message, hint="correct it in the catalog and clear `publish`.")


def _object(content: bytes) -> Mapping[str, Any]:
    if len(content) > ANSWER_BYTES_MAX:
        return {}
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
