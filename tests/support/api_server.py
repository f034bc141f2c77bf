"""Airflow's API server alone, on SQLite, with DAGs of made lakes: for requests to the pages of lakes."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.dag_auth_manager import READERS_ENV
from tallystick_devstack.process import ChildProcess, base_environment, run_to_end, wait_until
from tallystick_devstack.testing.servers import free_port

PASSWORDS = {name: f"{name}-password" for name in ("admin", "viewer", "limited", "nothing")}
_DEADLINE_S = 300.0
_DAGS = """\
from datetime import UTC, datetime

from airflow.sdk import DAG

from tallystick import Column, Pipeline, Table
from tallystick.airflow import replay_dag


def replay(name):
    pipeline = Pipeline(
        name=name,
        topics=["events"],
        warehouse=f"s3://lake/{name}",
        job="spark_jobs/none.py",
        tables=[Table("events", columns=[Column("n", "long")])],
    )
    return replay_dag(pipeline, schedule="@daily", start_date=datetime(2013, 1, 1, tzinfo=UTC))


"""


@dataclass(frozen=True)
class Answer:
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> object:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclass
class ApiServer:
    """A running API server, with one session per user."""

    url: str
    tokens: dict[str, str] = field(default_factory=dict)

    def token(self, user: str) -> str:
        """Return the user's token, after a login."""
        if user not in self.tokens:
            body = json.dumps({"username": user, "password": PASSWORDS[user]}).encode()
            sent = {"Content-Type": "application/json"}
            answer = self.send("/auth/token", method="POST", body=body, headers=sent)
            assert answer.status == 201, answer
            self.tokens[user] = json.loads(answer.body)["access_token"]
        return self.tokens[user]

    def get(
        self,
        path: str,
        user: str | None = None,
        *,
        cookie: bool = True,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request as a browser does, with the session's cookie, or with a bearer token."""
        sent = dict(headers or {})
        if user is not None and cookie:
            sent["Cookie"] = f"_token={self.token(user)}"
        elif user is not None:
            sent["Authorization"] = f"Bearer {self.token(user)}"
        return self.send(path, method=method, headers=sent)

    def send(
        self, path: str, *, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """Send a request and return its answer, of any status; redirects are not followed."""
        request = urllib.request.Request(
            self.url + path, data=body, method=method, headers=dict(headers)
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
        try:
            with opener.open(request, timeout=60) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read())


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow no redirect."""
        return


@contextmanager
def api_server(
    folder: Path,
    *,
    lakes: Sequence[str],
    env: Mapping[str, str],
    readers: Mapping[str, list[str]],
    others: Sequence[str] = (),
) -> Iterator[ApiServer]:
    """Run the server. `lakes`: DAGs with a lake of the same name at s3://lake; `others`: DAGs without one."""
    dags = folder / "dags"
    dags.mkdir()
    lines = [f'{name} = replay("{name}")' for name in lakes]
    lines += [f'{name} = DAG("{name}", schedule=None)' for name in others]
    (dags / "made.py").write_text(_DAGS + "\n".join(lines) + "\n")
    (folder / "plugins").mkdir()
    (folder / "passwords.json").write_text(json.dumps(PASSWORDS))
    port = free_port()
    settings = {
        **base_environment(),
        **env,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(folder / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__AUTH_MANAGER": "support.dag_auth_manager.DagAuthManager",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer,limited:viewer,nothing:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "AIRFLOW__API__SECRET_KEY": "k" * 64,
        "AIRFLOW__API_AUTH__JWT_SECRET": "j" * 64,
        READERS_ENV: json.dumps(readers),
    }
    airflow = [sys.executable, "-m", "airflow"]
    for name, words in (("migrate", ["db", "migrate"]), ("parse", ["dags", "reserialize"])):
        run_to_end(
            [*airflow, *words],
            name=name,
            log_path=folder / f"{name}.log",
            deadline_s=_DEADLINE_S,
            env=settings,
        )
    command = [*airflow, "api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with ChildProcess(
        command, name="api-server", log_path=folder / "api-server.log", env=settings, cwd=folder
    ) as process:
        server = ApiServer(f"http://127.0.0.1:{port}")

        def answers() -> bool:
            try:
                return server.get("/api/v2/monitor/health").status == 200
            except OSError:
                return False

        wait_until(answers, deadline_s=_DEADLINE_S, what="an answer", process=process)
        yield server
