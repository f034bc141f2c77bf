"""The answers of each route, in Iceberg's forms: sessions, listings, tables, errors, and nothing that writes."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from support.small_lake import SmallLake, days
from tallystick.catalog import routes
from tallystick.catalog.access import AccessGuard
from unit.catalog.conftest import Got, call, prefix_of

TABLES = ["dead_letters", "events", "per_kind"]
EVENTS = "namespaces/small/tables/events"
# Each route of the specification that changes something, or has the server work for a client.
WRITES = [
    ("POST", "/v1/oauth/tokens"),
    ("POST", "/v1/{}/namespaces"),
    ("DELETE", "/v1/{}/namespaces/small"),
    ("POST", "/v1/{}/namespaces/small/properties"),
    ("POST", "/v1/{}/namespaces/small/tables"),
    ("POST", "/v1/{}/namespaces/small/tables/events/plan"),
    ("DELETE", "/v1/{}/namespaces/small/tables/events/plan/1"),
    ("POST", "/v1/{}/namespaces/small/tables/events/tasks"),
    ("POST", "/v1/{}/namespaces/small/register"),
    ("POST", "/v1/{}/namespaces/small/tables/events"),
    ("DELETE", "/v1/{}/namespaces/small/tables/events"),
    ("POST", "/v1/{}/namespaces/small/tables/events/unregister"),
    ("POST", "/v1/{}/namespaces/small/tables/events/sign"),
    ("POST", "/v1/{}/tables/rename"),
    ("POST", "/v1/{}/transactions/commit"),
    ("POST", "/v1/{}/namespaces/small/views"),
    ("POST", "/v1/{}/namespaces/small/views/v"),
    ("DELETE", "/v1/{}/namespaces/small/views/v"),
    ("POST", "/v1/{}/views/rename"),
    ("POST", "/v1/{}/namespaces/small/register-view"),
    ("PUT", "/v1/{}/namespaces/small"),
    ("PATCH", "/v1/config"),
]


def get(app: AccessGuard, prefix: str, path: str, query: str = "", **headers: str) -> Got:
    return call(app, "GET", f"/v1/{prefix}/{path}", query=query, headers=headers)


def commit_of(small: SmallLake) -> str:
    """Return the last commit as a prefix has it, from the key in the stored root."""
    version, uuid = small.root()["record"].removeprefix("commits/").split("-")
    return f"{int(version)}.{uuid[:8]}"


def metadata_keys(small: SmallLake) -> dict[str, str]:
    return {name: table["metadata"] for name, table in small.root()["tables"].items()}


# ---------------------------------------------------------------- sessions


def test_a_session_has_every_lake_at_its_last_commit(app: AccessGuard, small: SmallLake) -> None:
    assert prefix_of(app) == f"empty@0,other@{commit_of(small)},small@{commit_of(small)}"
    assert prefix_of(app, "small") == f"small@{commit_of(small)}"
    assert prefix_of(app, "small@10") == f"small@{commit_of(small)}"


def test_a_session_that_follows_its_lakes_has_no_version(app: AccessGuard) -> None:
    assert prefix_of(app, "latest") == "latest"
    assert prefix_of(app, "small@latest,other@latest") == "small@latest,other@latest"


def test_the_session_names_what_clients_may_call_and_nothing_that_writes(app: AccessGuard) -> None:
    form = call(app, "GET", "/v1/config").json
    assert set(form) == {"defaults", "overrides", "endpoints"}
    known = {
        f"{method} {route.path}"  # type: ignore[attr-defined]
        for route in routes.router.routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    assert set(form["endpoints"]) <= known
    assert [one for one in form["endpoints"] if not one.startswith(("GET ", "HEAD "))] == [
        "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics"
    ]


def test_an_instant_is_the_last_commit_at_or_before_it(app: AccessGuard, small: SmallLake) -> None:
    assert prefix_of(app, "small@2024-05-01T00:00:00Z") == f"small@{commit_of(small)}"
    got = call(app, "GET", "/v1/config", query="warehouse=small@2024-04-30T23:59:59.999Z")
    assert got.error == (404, "NotFoundException")
    assert "2024-04-30T23:59:59.999Z" in got.json["error"]["message"]


@pytest.mark.parametrize(
    ("warehouse", "error"),
    [
        ("nothing", (404, "NoSuchWarehouseException")),
        ("empty", (404, "NoSuchWarehouseException")),
        ("small,nothing", (404, "NoSuchWarehouseException")),
        ("small@99", (404, "NotFoundException")),
        ("small@1", (404, "NotFoundException")),
        ("small@10.ffffffff", (404, "NotFoundException")),
        ("S3://lake", (400, "BadRequestException")),
    ],
)
def test_a_session_with_what_does_not_exist_is_refused(
    app: AccessGuard, warehouse: str, error: tuple[int, str]
) -> None:
    assert call(app, "GET", "/v1/config", query=f"warehouse={warehouse}").error == error


def test_a_session_reads_its_version_after_more_commits(app: AccessGuard, small: SmallLake) -> None:
    prefix, before = prefix_of(app, "small"), metadata_keys(small)
    first = {name: get(app, prefix, f"namespaces/small/tables/{name}").body for name in TABLES}
    small.run(days(4, 5))
    assert metadata_keys(small) != before
    for name in TABLES:
        got = get(app, prefix, f"namespaces/small/tables/{name}")
        assert got.body == first[name]
        assert got.json["metadata-location"] == f"memory://small/{before[name]}"
    now = get(app, "latest", EVENTS).json["metadata-location"]
    assert now == f"memory://small/{metadata_keys(small)['events']}"
    assert prefix_of(app, "small@10") == prefix


# ---------------------------------------------------------------- listings


def test_the_lakes_of_a_session_are_its_namespaces(app: AccessGuard, small: SmallLake) -> None:
    both = {"namespaces": [["other"], ["small"]], "next-page-token": None}
    assert get(app, prefix_of(app), "namespaces").json == both
    assert get(app, "latest", "namespaces").json == both
    prefix = prefix_of(app, "small")
    one, none = ({"namespaces": found, "next-page-token": None} for found in ([["small"]], []))
    assert get(app, prefix, "namespaces").json == one
    assert get(app, prefix, "namespaces", "parent=small").json == none
    assert get(app, prefix, "namespaces/small").json == {
        "namespace": ["small"],
        "properties": {"location": "memory://small", "tallystick.version": "10"},
    }


@pytest.mark.parametrize("namespace", ["other", "nothing", "small\x1fevents", "empty", "Small"])
def test_a_namespace_outside_the_session_does_not_exist(app: AccessGuard, namespace: str) -> None:
    prefix = prefix_of(app, "small")
    for path in ("", "/tables"):
        got = get(app, prefix, f"namespaces/{namespace}{path}")
        assert got.error == (404, "NoSuchNamespaceException")
    assert call(app, "HEAD", f"/v1/{prefix}/namespaces/{namespace}").status == 404
    asked = get(app, prefix, "namespaces", f"parent={namespace}")
    assert asked.error == (404, "NoSuchNamespaceException")


@pytest.mark.parametrize("namespace", ["other", "nothing", "small\x1fevents", "empty"])
@pytest.mark.parametrize("warehouse", ["small", "latest"])
def test_a_table_of_a_namespace_that_does_not_exist_does_not_exist(
    app: AccessGuard, namespace: str, warehouse: str
) -> None:
    """The specification has no other 404 for a table, and Trino reports any other one as a failure of the catalog."""
    path = f"/v1/{prefix_of(app, warehouse)}/namespaces/{namespace}/tables/x"
    got = call(app, "GET", path)
    assert got.error == (404, "NoSuchTableException")
    shown = namespace.replace("\x1f", ".")
    assert got.json["error"]["message"] == f"Table does not exist: {shown}.x"
    assert call(app, "HEAD", path).status == 404


@pytest.mark.parametrize("prefix", ["small", "small@2024-05-01T00:00:00Z", "a/b", "@", "small@1@2"])
def test_a_prefix_of_another_form_is_refused(app: AccessGuard, prefix: str) -> None:
    got = get(app, prefix, "namespaces")
    assert got.error in ((400, "BadRequestException"), (404, "NotFoundException"))


def test_tables_are_listed_in_one_answer_without_pages(app: AccessGuard) -> None:
    for query in ("", "pageSize=1"):
        form = get(app, "latest", "namespaces/small/tables", query).json
        identifiers = [{"namespace": ["small"], "name": name} for name in TABLES]
        assert form == {"identifiers": identifiers, "next-page-token": None}


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_pages_have_every_table_once(app: AccessGuard, size: int) -> None:
    token: str | None = ""
    found: list[str] = []
    while token is not None:
        query = f"pageToken={token}&pageSize={size}"
        form = get(app, "latest", "namespaces/small/tables", query).json
        names = [one["name"] for one in form["identifiers"]]
        assert 0 < len(names) <= size
        found += names
        token = form["next-page-token"]
    assert found == TABLES


@pytest.mark.parametrize("size", ["0", "-1", "x", "1.5", "9" * 5000])
def test_a_size_of_a_page_that_is_no_number_is_refused(app: AccessGuard, size: str) -> None:
    got = get(app, "latest", "namespaces/small/tables", f"pageToken=&pageSize={size}")
    assert got.error == (400, "BadRequestException")


def test_a_table_before_its_first_commit_does_not_exist(app: AccessGuard, lakes: Any) -> None:
    planned = SmallLake(store=lakes["empty"].store)
    planned.plan(days(1, 2))
    prefix = prefix_of(app, "empty")
    assert prefix == "empty@0"
    for one in (prefix, "latest"):
        assert get(app, one, "namespaces/empty/tables").json["identifiers"] == []
        got = get(app, one, "namespaces/empty/tables/events")
        assert got.error == (404, "NoSuchTableException")


# ---------------------------------------------------------------- tables


def test_a_table_is_the_metadata_file_of_its_version(app: AccessGuard, small: SmallLake) -> None:
    for name, key in metadata_keys(small).items():
        form = get(app, "latest", f"namespaces/small/tables/{name}").json
        stored = small.store.get(key)
        assert stored is not None
        assert form == {
            "metadata-location": f"memory://small/{key}",
            "metadata": json.loads(stored.body),
            "config": {"s3.region": "here"},
        }


def test_only_snapshots_with_a_branch_are_sent_if_requested(
    app: AccessGuard, small: SmallLake
) -> None:
    whole = get(app, "latest", EVENTS, "snapshots=all")
    refs = get(app, "latest", EVENTS, "snapshots=refs")
    metadata = whole.json["metadata"]
    assert len(metadata["snapshots"]) > 1
    current = metadata["current-snapshot-id"]
    kept = [one for one in metadata["snapshots"] if one["snapshot-id"] == current]
    assert refs.json["metadata"] == {**metadata, "snapshots": kept}
    assert refs.headers["etag"] != whole.headers["etag"]
    assert get(app, "latest", EVENTS, "snapshots=x").error == (400, "BadRequestException")


@pytest.mark.parametrize(
    "path", ["namespaces", "namespaces/small", "namespaces/small/tables", EVENTS]
)
def test_an_answer_that_the_client_has_is_not_sent_again(
    app: AccessGuard, small: SmallLake, path: str
) -> None:
    first = get(app, "latest", path)
    tag = first.headers["etag"]
    assert tag.startswith('"')
    for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = get(app, "latest", path, **{"if-none-match": sent})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert get(app, "latest", path, **{"if-none-match": '"other"'}).body == first.body
    small.run(days(4, 5))
    after = get(app, "latest", path, **{"if-none-match": tag})
    # The new commit changes each answer that has the version in it.
    assert after.status == (200 if path in ("namespaces/small", EVENTS) else 304)


def test_existence_is_answered_without_a_body(app: AccessGuard) -> None:
    for path, status in (
        ("namespaces/small", 204),
        ("namespaces/nothing", 404),
        (EVENTS, 204),
        ("namespaces/small/tables/nothing", 404),
    ):
        assert call(app, "HEAD", f"/v1/latest/{path}").status == status


def test_damaged_metadata_is_an_error_of_the_server_with_its_address(
    app: AccessGuard, small: SmallLake
) -> None:
    key = metadata_keys(small)["events"]
    small.overwrite(key, b"[]")
    got = get(app, "latest", EVENTS)
    assert got.error == (500, "InternalServerError")
    assert key in got.json["error"]["message"]
    small.store.delete([key])
    got = get(app, "latest", EVENTS)
    assert got.error == (500, "InternalServerError")
    assert key in got.json["error"]["message"]


# ---------------------------------------------------------------- writes, reports and the rest


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_every_write_is_refused_and_changes_nothing(
    app: AccessGuard, small: SmallLake, method: str, path: str
) -> None:
    before = dict(small.store._objects)  # type: ignore[attr-defined]
    for prefix in ("latest", prefix_of(app)):
        got = call(app, method, path.format(prefix), body=b"{}")
        assert got.error == (403, "ForbiddenException")
    assert small.store._objects == before  # type: ignore[attr-defined]


def test_a_report_is_counted_and_dropped_and_a_large_one_refused(
    app: AccessGuard, lakes: Any
) -> None:
    path = f"/v1/latest/{EVENTS}/metrics"
    catalog = app._app.state.catalog  # type: ignore[attr-defined]
    assert call(app, "POST", path, body=b"{}").status == 204
    assert catalog.reports == 1
    large = call(app, "POST", path, body=b"x" * (routes.REPORT_BYTES_MAX + 1))
    assert large.error == (413, "BadRequestException")
    nothing = call(app, "POST", "/v1/latest/namespaces/nothing/tables/events/metrics")
    assert nothing.error == (404, "NoSuchTableException")
    assert catalog.reports == 1


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/docs",
        "/openapi.json",
        "/v1",
        "/v1/latest/namespaces/",
        "/v1/latest/namespaces/small/views",
        f"/v1/latest/{EVENTS}/credentials",
        f"/v1/latest/{EVENTS}/metrics",
    ],
)
def test_what_is_not_a_route_is_not_found(app: AccessGuard, path: str) -> None:
    assert call(app, "GET", path).error == (404, "NotFoundException")


def test_a_defect_is_logged_and_not_shown(
    app: AccessGuard, lakes: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(lakes["small"].store, "get", broken)
    with caplog.at_level(logging.INFO):
        got = get(app, "latest", EVENTS)
    assert got.error == (500, "InternalServerError")
    assert b"hunter2" not in got.body
    assert any(one.exc_info for one in caplog.records)


def test_the_log_has_a_line_per_request_without_query_and_headers(
    app: AccessGuard, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="tallystick.catalog"):
        call(
            app,
            "GET",
            "/v1/config",
            query="warehouse=small&token=hunter2",
            headers={"authorization": "Bearer hunter2"},
        )
        call(app, "GET", "/v1/" + "x" * 5000)
    first, second = caplog.messages
    assert first.startswith("GET /v1/config 200 ")
    assert first.endswith(" ms")
    assert "hunter2" not in caplog.text
    assert len(second) < 400
