"""Who gets what from the pages of lakes: every route of the app, on Airflow's real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_server import ApiServer, api_server
from support.large_lake import LargeLake
from tallystick.airflow.pages.app import build
from tallystick.airflow.pages.mount import EXTERNAL_VIEWS, PREFIX
from tallystick.airflow.pages.page import DIGEST, FILES
from tallystick.store.open import open_store
from tallystick_devstack.testing.servers import aws_environment, ministack

LAKES = ["alpha", "beta"]
SPAN = "from=2025-01-01T00%3A00%3A00.000Z&to=2025-01-01T01%3A00%3A00.000Z"
# What a route needs besides its path; a new route must be listed here.
QUERIES = {
    "/": "",
    "/dags/{dag_id}/": "",
    "/static/{digest}/{name:path}": "",
    "/api/lakes": "",
    "/api/dags/{dag_id}/summary": "",
    "/api/dags/{dag_id}/status": "",
    "/api/dags/{dag_id}/lag": "",
    "/api/dags/{dag_id}/commits": "",
    "/api/dags/{dag_id}/interval": SPAN,
    "/api/dags/{dag_id}/compare": "left=45&right=50",
    "/api/dags/{dag_id}/dead-letters": "",
    "/api/dags/{dag_id}/object": "key=root.json",
}
ROUTES = sorted(
    (path, method)
    for route in build().routes
    for path in [getattr(route, "path", "")]
    for method in sorted(getattr(route, "methods", None) or ["ANY"])
)
OF_DAGS = [path for path in QUERIES if "{dag_id}" in path]

pytestmark = [pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Run the API server with two lakes, a DAG without a lake, and a DAG whose lake has no plan yet."""
    folder: Path = tmp_path_factory.mktemp("api")
    with ministack() as url, pytest.MonkeyPatch.context() as patch:
        env = aws_environment(url)
        for name, value in env.items():
            patch.setenv(name, value)
        import boto3

        boto3.client("s3").create_bucket(Bucket="lake")
        for name in LAKES:
            LargeLake(intervals=60, commits=20, dag=name, pipeline=name).write(
                open_store(f"s3://lake/{name}")
            )
        readers = {"limited": ["alpha", "plain", "fresh"], "nothing": []}
        with api_server(
            folder, lakes=[*LAKES, "fresh"], others=["plain"], env=env, readers=readers
        ) as running:
            yield running


def address(path: str, dag: str = "alpha") -> str:
    """Return the address of a route with its parameters filled in."""
    filled = path.replace("{dag_id}", dag).replace("{name:path}", "page.css")
    filled = filled.replace("{digest}", DIGEST)
    return f"{PREFIX}{filled}?{QUERIES[path]}"


def test_the_app_has_exactly_these_routes_and_all_of_them_only_read() -> None:
    assert {path for path, _ in ROUTES} == set(QUERIES)
    assert {method for _, method in ROUTES} == {"GET"}


@pytest.mark.parametrize("path", QUERIES)
def test_without_a_login_no_route_answers(server: ApiServer, path: str) -> None:
    for headers in ({}, {"Cookie": "_token=forged"}, {"Authorization": "Bearer forged"}):
        answer = server.get(address(path), headers=headers)
        assert answer.status in (401, 403), (headers, answer)
        assert set(json.loads(answer.body)) == {"detail"}


@pytest.mark.parametrize("path", QUERIES)
def test_a_user_without_permissions_gets_nothing(server: ApiServer, path: str) -> None:
    answer = server.get(address(path), "nothing")
    assert answer.status == 403
    assert set(json.loads(answer.body)) == {"detail"}


@pytest.mark.parametrize("path", OF_DAGS)
def test_a_user_gets_only_lakes_of_own_dags(server: ApiServer, path: str) -> None:
    assert server.get(address(path, "alpha"), "limited").status == 200
    answer = server.get(address(path, "beta"), "limited")
    assert answer.status == 403
    assert set(json.loads(answer.body)) == {"detail"}


def test_the_list_has_only_lakes_of_own_dags(server: ApiServer) -> None:
    for user, dags in (("limited", ["alpha", "fresh"]), ("viewer", ["alpha", "beta", "fresh"])):
        found = server.get(f"{PREFIX}/api/lakes", user).json()
        assert found == [
            {"dag": dag, "pipeline": dag, "uri": f"s3://lake/{dag}"} for dag in sorted(dags)
        ]


@pytest.mark.parametrize("path", QUERIES)
@pytest.mark.parametrize("cookie", [True, False])
def test_a_viewer_reads_every_route(server: ApiServer, path: str, cookie: bool) -> None:
    answer = server.get(address(path), "viewer", cookie=cookie)
    assert answer.status == 200, answer
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_no_route_accepts_anything_but_reads(server: ApiServer, method: str) -> None:
    for path in QUERIES:
        assert server.get(address(path), "admin", method=method).status == 405, path


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/api", "/static", "/dags"])
def test_there_is_no_other_page(server: ApiServer, path: str) -> None:
    assert server.get(f"{PREFIX}{path}").status in (307, 401, 403, 404)
    assert server.get(f"{PREFIX}{path}", "admin").status in (307, 404)


@pytest.mark.parametrize(
    "name",
    [
        "../page.py",
        "..%2fpage.py",
        "%2e%2e/page.py",
        "page.html",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "vendor/../page.css",
        "",
    ],
)
def test_only_the_files_of_the_page_are_served(server: ApiServer, name: str) -> None:
    assert server.get(f"{PREFIX}/static/{DIGEST}/{name}", "admin").status == 404
    assert server.get(f"{PREFIX}/static/{'0' * 16}/page.css", "admin").status == 404
    assert "page.css" in FILES
    assert "page.html" not in FILES


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("root.json", 200),
        ("../beta/root.json", 400),
        ("..%2fbeta%2froot.json", 400),
        ("s3://lake/beta/root.json", 400),
        ("plans/../root.json", 400),
        ("tables/events/data/x.parquet", 400),
        ("", 400),
    ],
)
def test_an_object_is_read_only_by_a_key_of_the_own_lake(
    server: ApiServer, key: str, status: int
) -> None:
    answer = server.get(f"{PREFIX}/api/dags/alpha/object?key={key}", "limited")
    assert answer.status == status, answer
    assert b"beta" not in answer.body or status == 400


def test_a_dag_without_a_lake_and_a_lake_without_a_plan_are_named(server: ApiServer) -> None:
    answer = server.get(f"{PREFIX}/api/dags/plain/status", "limited")
    assert answer.status == 404
    assert "DAG plain has no lake" in json.loads(answer.body)["detail"]
    page = server.get(f"{PREFIX}/dags/plain/", "limited")
    assert page.status == 404
    assert b"This DAG has no lake" in page.body
    assert b"<script" not in page.body
    unknown = server.get(f"{PREFIX}/api/dags/unknown/status", "viewer")
    assert unknown.status == 404
    fresh = server.get(f"{PREFIX}/api/dags/fresh/status", "limited")
    assert (fresh.status, json.loads(fresh.body)["kind"]) == (404, "nothing_planned")


def test_the_status_is_sent_once_for_each_state_of_the_lake(server: ApiServer) -> None:
    path = f"{PREFIX}/api/dags/beta/status"
    first = server.get(path, "viewer")
    again = server.get(path, "viewer", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    other = server.get(path, "viewer", headers={"If-None-Match": '"other"'})
    assert (other.status, other.body) == (200, first.body)


def test_the_page_escapes_what_it_shows(server: ApiServer) -> None:
    answer = server.get(f"{PREFIX}/dags/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E/", "viewer")
    assert answer.status in (200, 404)
    assert b"<script>alert" not in answer.body


def test_airflow_has_the_tabs_of_the_plugin(server: ApiServer) -> None:
    answer = server.get("/api/v2/plugins", "admin")
    plugins = json.loads(answer.body)["plugins"]
    (own,) = [plugin for plugin in plugins if plugin["name"] == "tallystick"]
    assert [view["href"] for view in own["external_views"]] == [v["href"] for v in EXTERNAL_VIEWS]
    assert [app["url_prefix"] for app in own["fastapi_apps"]] == [PREFIX]
