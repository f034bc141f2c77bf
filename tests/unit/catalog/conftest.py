"""A catalog of two lakes in memory, as an ASGI app that is called in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from support.small_lake import SmallLake, good_lake
from tallystick.catalog.access import AccessGuard
from tallystick.catalog.app import build
from tallystick.catalog.lakes import ServedLake
from tallystick.catalog.tokens import TokenFile
from tallystick.store.memory import MemoryStore

ANSWER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """What a client gets: the status, the headers in small letters, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """The status and the type of an error, whose body has Iceberg's form."""
        form = self.json["error"]
        assert set(form) == {"message", "type", "code"}
        assert form["code"] == self.status
        return self.status, form["type"]


def call(
    app: AccessGuard,
    method: str,
    path: str,
    *,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Got:
    """Send one request to an app."""
    sent: list[Any] = []
    sending = {"host": "127.0.0.1:8181", **(headers or {})}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogateescape"),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in sending.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8181),
    }
    parts = [body[i : i + 65536] for i in range(0, len(body), 65536)] or [b""]

    async def receive() -> Any:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start = sent[0]
    return Got(
        status=start["status"],
        headers={k.decode(): v.decode() for k, v in start["headers"]},
        body=b"".join(one.get("body", b"") for one in sent[1:]),
    )


@pytest.fixture(scope="session")
def built() -> dict[str, SmallLake]:
    """Return two lakes to be copied."""
    return {name: good_lake(MemoryStore(name)) for name in ("small", "other")}


@pytest.fixture
def small(built: dict[str, SmallLake]) -> SmallLake:
    return built["small"].copy()


@pytest.fixture
def lakes(built: dict[str, SmallLake], small: SmallLake) -> dict[str, ServedLake]:
    """Return two lakes, and one in which nothing is planned yet."""
    stores = {"small": small.store, "other": built["other"].copy().store}
    stores["empty"] = MemoryStore("empty")
    return {name: ServedLake(name, one, answer_s=ANSWER_S) for name, one in stores.items()}


def served(lakes: Mapping[str, ServedLake], tokens: TokenFile | None = None) -> AccessGuard:
    """Return the app of lakes."""
    return build(lakes, tokens=tokens, settings={name: {"s3.region": "here"} for name in lakes})


@pytest.fixture
def app(lakes: dict[str, ServedLake]) -> AccessGuard:
    return served(lakes)


def prefix_of(app: AccessGuard, warehouse: str = "", **headers: str) -> str:
    """Begin a session and return its prefix."""
    got = call(app, "GET", "/v1/config", query=f"warehouse={warehouse}", headers=headers)
    assert got.status == 200, got.body
    prefix: str = got.json["overrides"]["prefix"]
    return prefix
