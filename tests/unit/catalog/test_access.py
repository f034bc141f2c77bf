"""The checks before each request: no route answers without a token, and a token sees its lakes only."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from tallystick.catalog import routes
from tallystick.catalog.access import AccessGuard, is_loopback
from tallystick.catalog.lakes import ServedLake
from tallystick.catalog.tokens import TokenFile, token_line
from unit.catalog.conftest import call, prefix_of, served
from unit.catalog.test_routes import EVENTS, WRITES

OF_SMALL = {"authorization": "Bearer of-small"}
OF_ALL = {"authorization": "bearer of-all"}
OF_OTHERS = {"authorization": "Bearer of-others"}
REAL = {"prefix": "latest", "namespace": "small", "table": "events"}
ROUTES = [
    (method, route.path.format(**REAL))  # type: ignore[attr-defined]
    for route in routes.router.routes
    for method in sorted(route.methods)  # type: ignore[attr-defined]
]
NO_ROUTES = [("GET", "/"), ("GET", "/v1/latest/namespaces/small/views"), ("OPTIONS", "/v1/config")]
REFUSED: Mapping[str, Mapping[str, str]] = {
    "no token": {},
    "an empty token": {"authorization": "Bearer "},
    "another token": {"authorization": "Bearer other"},
    "another scheme": {"authorization": "Basic of-small"},
    "a token that is not ASCII": {"authorization": "Bearer \xff\xfe"},
    "the digest": {"authorization": f"Bearer {token_line('of-small', []).split()[0]}"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    lines = [
        token_line("of-small", ["small"]),
        token_line("of-all", []),
        token_line("of-others", ["elsewhere"]),
    ]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def guarded(lakes: dict[str, ServedLake], file: Path) -> AccessGuard:
    return served(lakes, TokenFile(file))


def test_the_list_of_routes_is_that_of_the_app() -> None:
    assert len(ROUTES) >= len(routes.ENDPOINTS) + 1
    assert ("GET", f"/v1/latest/{EVENTS}") in ROUTES


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED.keys())
def test_no_route_answers_without_a_token_of_the_file(
    guarded: AccessGuard, headers: Mapping[str, str]
) -> None:
    writes = [(method, path.format("latest")) for method, path in WRITES]
    for method, path in (*ROUTES, *writes, *NO_ROUTES):
        got = call(guarded, method, path, headers=headers)
        assert got.error == (401, "NotAuthorizedException"), (method, path)
        assert got.headers["www-authenticate"] == "Bearer"
        assert b"small" not in got.body


def test_two_tokens_in_one_request_are_refused(guarded: AccessGuard) -> None:
    twice = {"authorization": "Bearer of-small", "Authorization": "Bearer of-all"}
    assert call(guarded, "GET", "/v1/config", headers=twice).status == 401


def test_a_token_sees_its_lakes_and_no_other(guarded: AccessGuard) -> None:
    assert prefix_of(guarded, **OF_SMALL).startswith("small@")
    for prefix in ("latest", prefix_of(guarded, **OF_SMALL)):
        got = call(guarded, "GET", f"/v1/{prefix}/namespaces", headers=OF_SMALL)
        assert got.json["namespaces"] == [["small"]]
    got = call(guarded, "GET", "/v1/latest/namespaces", headers=OF_ALL)
    assert got.json["namespaces"] == [["other"], ["small"]]
    got = call(guarded, "GET", "/v1/latest/namespaces", headers=OF_OTHERS)
    assert got.json["namespaces"] == []


def test_a_foreign_lake_is_answered_exactly_like_one_that_does_not_exist(
    guarded: AccessGuard,
) -> None:
    for method, path in ROUTES:
        found = [
            call(
                guarded,
                method,
                path.replace("small", name),
                query=f"warehouse={name}&parent={name}",
                headers=OF_SMALL,
            )
            for name in ("other", "never")
        ]
        assert found[0].status == found[1].status == 404, (method, path)
        assert found[0].headers.keys() == found[1].headers.keys()
        assert found[0].body.replace(b"other", b"never") == found[1].body
    for prefix in ("other@10", "small@10,other@10"):
        got = call(guarded, "GET", f"/v1/{prefix}/namespaces", headers=OF_SMALL)
        assert got.error == (404, "NoSuchNamespaceException")


def test_a_foreign_token_gets_nothing_from_any_route(guarded: AccessGuard) -> None:
    for method, path in ROUTES:
        got = call(guarded, method, path, headers=OF_OTHERS)
        if path == "/v1/latest/namespaces":
            assert got.json["namespaces"] == []
        else:
            assert got.status == 404, (method, path)


def test_a_token_that_is_taken_out_gets_nothing_at_the_next_request(
    guarded: AccessGuard, file: Path
) -> None:
    assert call(guarded, "GET", "/v1/config", headers=OF_SMALL).status == 200
    file.write_text(token_line("of-all", []))
    assert call(guarded, "GET", "/v1/config", headers=OF_SMALL).status == 401
    file.write_text("broken")
    got = call(guarded, "GET", "/v1/config", headers=OF_ALL)
    assert got.error == (503, "ServiceUnavailableException")
    assert got.headers["retry-after"] == "60"


def test_no_token_is_in_the_log(
    guarded: AccessGuard, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for headers in (OF_SMALL, {"authorization": "Bearer hunter2"}):
            call(guarded, "GET", "/v1/config", headers=headers)
        file.write_text("hunter2")
        call(guarded, "GET", "/v1/config", headers=OF_SMALL)
    assert "401" in caplog.text
    assert "no token is accepted" in caplog.text
    assert "of-small" not in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8181", "localhost:1", "LOCALHOST", "[::1]:8181", "127.9.9.9"]
)
def test_without_tokens_the_header_host_may_be_a_loopback_address(
    app: AccessGuard, host: str
) -> None:
    assert call(app, "GET", "/v1/config", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example", "[::1"],
)
def test_without_tokens_another_header_host_is_refused(app: AccessGuard, host: str) -> None:
    for method, path in (*ROUTES, *NO_ROUTES):
        got = call(app, method, path, headers={"host": host})
        assert got.error == (403, "ForbiddenException")


def test_a_loopback_address_is_recognized() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "[::1]", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "a.example")] == [False] * 4
