"""One real schema registry for all tests of a folder, and what tests register in it.

from support.registries import registry  # noqa: F401  (in a conftest.py)
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.client import RemoteDisconnected
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest

from tallystick.connections.registry import RegistrySettings
from tallystick.registry.client import RegistryClient
from tallystick.registry.port import SchemaReference
from tallystick_devstack.logins import keep_registry_login
from tallystick_devstack.registry import SchemaRegistryServer

_ANSWER_S = 30.0
_numbers = count(1)


class TestRegistry:
    """A running registry with a client that writes, so that the setup of tests does not depend on ours."""

    __test__ = False

    def __init__(self, server: SchemaRegistryServer) -> None:
        self.server = server

    def settings(self, **changes: Any) -> RegistrySettings:
        """Return the settings of a client, with these changes."""
        options = self.server.client_settings() | {"timeout_s": 30} | changes
        return RegistrySettings.from_mapping(options, source="the test")

    def client(self, **changes: Any) -> RegistryClient:
        """Return our client; it repeats a request when Apicurio closes the connection without an answer (`register`)."""
        return RegistryClient(self.settings(**changes))

    def subject(self) -> str:
        """Return a name that no other test uses; it has signs that a path must not contain as they are."""
        return f"t{next(_numbers)}/a b-ä%2F?-value"

    def register(
        self,
        subject: str,
        text: str,
        *,
        kind: str = "AVRO",
        references: Sequence[SchemaReference] = (),
    ) -> int:
        """Register the next version of a subject, and return the id of its schema.

        Apicurio sometimes registers a schema and closes the connection without an answer (3.3.3, under load). A second
        registration of the same text returns the same id.
        """
        body: dict[str, Any] = {"schema": text, "schemaType": kind}
        if references:
            body["references"] = [
                {"name": one.name, "subject": one.subject, "version": one.version}
                for one in references
            ]
        path = f"/subjects/{quote(subject, safe='')}/versions"
        try:
            found = self.send("POST", path, body)
        except RemoteDisconnected:
            found = self.send("POST", path, body)
        assert isinstance(found, dict)
        return int(found["id"])

    def delete(self, subject: str, version: int | None = None) -> None:
        """Delete a subject or one of its versions, as a user does first ("soft delete")."""
        path = f"/subjects/{quote(subject, safe='')}"
        self.send("DELETE", path if version is None else f"{path}/versions/{version}")

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the JSON of its answer."""
        request = urllib.request.Request(
            self.server.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={**self.settings().sent_headers(), "Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_ANSWER_S) as answer:
            return json.load(answer)


@pytest.fixture(scope="package")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestRegistry]:
    """Start a schema registry whose subjects all tests share."""
    folder = tmp_path_factory.mktemp("registry")
    with SchemaRegistryServer(folder, login=keep_registry_login(folder)) as server:
        yield TestRegistry(server)
