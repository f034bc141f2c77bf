"""`tally doctor` on an Airflow: configuration, database, processes, plugin and Spark connection; no secret is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.jobs.job import Job, JobState
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.trigger import Trigger
from airflow.sdk import timezone
from cryptography.fernet import Fernet
from sqlalchemy.orm import Session

from tallystick.airflow import doctor
from tallystick.airflow.doctor import (
    auth_check,
    configuration_checks,
    database_checks,
    executor_check,
    fernet_check,
    folder_check,
    jwt_check,
    parallelism_check,
    plugin_checks,
    scheme_check,
    spark_checks,
    triggerer_check,
)
from tallystick.operations.doctor.check import DoctorCheck, State

SECRET = "not-to-be-seen-" * 5
SIMPLE = "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
FAB = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
LOCAL = "airflow.dag_processing.bundles.local.LocalDagBundle"
GIT = "airflow.providers.git.bundles.git.GitDagBundle"
SPARK_42 = "   version 4.2.0\n"


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("check", "state"),
    [
        (executor_check("LocalExecutor"), "ok"),
        (executor_check("airflow.providers.celery.executors.CeleryExecutor"), "ok"),
        (executor_check("SequentialExecutor"), "error"),
        (parallelism_check(32), "ok"),
        (parallelism_check(0), "ok"),
        (parallelism_check(1), "warning"),
        (fernet_check(Fernet.generate_key().decode()), "ok"),
        (fernet_check(",".join(Fernet.generate_key().decode() for _ in range(2))), "ok"),
        (fernet_check(""), "warning"),
        (fernet_check(SECRET), "error"),
        (jwt_check(SECRET, has_private_key=False), "ok"),
        (jwt_check("", has_private_key=True), "ok"),
        (jwt_check("", has_private_key=False), "warning"),
        (jwt_check("airflow_jwt_secret", has_private_key=False), "error"),
        (jwt_check(SECRET[:40], has_private_key=False), "warning"),
        (auth_check(FAB, everyone=False), "ok"),
        (auth_check(SIMPLE, everyone=False), "warning"),
        (auth_check(SIMPLE, everyone=True), "error"),
        (scheme_check("postgresql+psycopg2://me:pw@host/airflow"), "ok"),
        (scheme_check("mysql://me:pw@host/airflow"), "ok"),
        (scheme_check("sqlite:////srv/airflow.db"), "error"),
        (triggerer_check(waiting=0, alive=True), "ok"),
        (triggerer_check(waiting=0, alive=False), "ok"),
        (triggerer_check(waiting=2, alive=True), "ok"),
        (triggerer_check(waiting=2, alive=False), "error"),
    ],
)
def test_a_setting_by_its_value(check: DoctorCheck, state: State) -> None:
    assert check.state == state
    assert bool(check.fix) is (state != "ok")
    assert "not-to-be-seen" not in repr(check)
    assert "pw" not in check.found


@pytest.mark.parametrize(
    ("folder", "bundles", "state"),
    [
        ("there", [LOCAL], "ok"),
        ("there", [], "ok"),
        ("none", [LOCAL], "error"),
        ("none", [GIT], "ok"),
        ("file", [LOCAL], "error"),
        ("closed", [LOCAL], "error"),
    ],
)
def test_the_folder_of_dag_files_can_be_read(
    folder: str,
    bundles: list[str],
    state: State,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "closed").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr(doctor.os, "access", lambda path, _: path.name != "closed")
    assert folder_check(str(tmp_path / folder), bundles).state == state


def test_the_configuration_of_this_process_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "1",
        "CORE__DAGS_FOLDER": str(tmp_path),
        "CORE__FERNET_KEY": Fernet.generate_key().decode(),
        "API_AUTH__JWT_SECRET": SECRET,
        "CORE__AUTH_MANAGER": SIMPLE,
    }.items():
        monkeypatch.setenv(f"AIRFLOW__{name}", value)
    found = {check.name: check for check in configuration_checks()}
    assert {name: check.state for name, check in found.items()} == {
        "executor": "ok",
        "parallelism": "warning",
        "DAG folder": "ok",
        "fernet key": "ok",
        "jwt secret": "ok",
        "logins": "warning",
    }
    assert "not-to-be-seen" not in repr(found)


# ---------------------------------------------------------------- database


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    """Return a database in memory with Airflow's tables."""
    made = sa.create_engine("sqlite://")
    import_all_models()
    Base.metadata.create_all(
        made, tables=[Base.metadata.tables[name] for name in ("dag_run", "job", "trigger")]
    )
    yield made
    made.dispose()


def sessions(engine: sa.Engine) -> Callable[[], AbstractContextManager[Any]]:
    @contextmanager
    def make() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    return make


def add_job(engine: sa.Engine, job_type: str, *, seconds_ago: float = 0) -> None:
    at = timezone.utcnow() - timedelta(seconds=seconds_ago)
    with Session(engine) as session:
        job = Job(job_type=job_type)
        job.state, job.latest_heartbeat = JobState.RUNNING, at
        session.add(job)
        session.commit()


@pytest.fixture
def _postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"postgresql+psycopg2://me:{SECRET}@127.0.0.1:1/airflow"
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", url)


def states(checks: Iterator[DoctorCheck]) -> dict[str, State]:
    found = list(checks)
    assert "not-to-be-seen" not in repr(found)
    return {check.name: check.state for check in found}


@pytest.mark.usefixtures("_postgres")
def test_processes_that_send_heartbeats_are_alive(engine: sa.Engine) -> None:
    add_job(engine, "SchedulerJob")
    add_job(engine, "DagProcessorJob")
    assert states(database_checks(sessions(engine))) == {
        "database kind": "ok",
        "database": "ok",
        "scheduler": "ok",
        "dag-processor": "ok",
        "triggerer": "ok",
    }


@pytest.mark.usefixtures("_postgres")
def test_processes_without_a_heartbeat_are_errors(engine: sa.Engine) -> None:
    add_job(engine, "SchedulerJob", seconds_ago=3_600)
    with Session(engine) as session:
        session.add(Trigger(classpath="a.B", kwargs={}))
        session.commit()
    assert states(database_checks(sessions(engine))) == {
        "database kind": "ok",
        "database": "ok",
        "scheduler": "error",
        "dag-processor": "error",
        "triggerer": "error",
    }
    add_job(engine, "TriggererJob")
    assert states(database_checks(sessions(engine)))["triggerer"] == "ok"


@pytest.mark.usefixtures("_postgres")
def test_a_database_without_tables_is_an_error() -> None:
    empty = sa.create_engine("sqlite://")
    assert states(database_checks(sessions(empty)))["database"] == "error"
    empty.dispose()


@pytest.mark.usefixtures("_postgres")
def test_a_database_that_does_not_answer_is_an_error() -> None:
    @contextmanager
    def unreachable() -> Iterator[Session]:
        raise sa.exc.OperationalError("SELECT", {}, Exception(SECRET))
        yield

    assert states(database_checks(unreachable))["database"] == "error"


def test_a_database_file_that_does_not_exist_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "airflow.db"
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{file}")
    assert states(database_checks()) == {"database kind": "error", "database": "error"}
    assert not file.exists()


# ---------------------------------------------------------------- plugin and Spark


def test_the_plugin_of_this_environment_is_loaded() -> None:
    (check,) = plugin_checks()
    assert check.state == "ok", check
    assert "tallystick.airflow.plugin:TallystickPlugin" in check.found


@pytest.mark.parametrize("points", [[], [EntryPoint("tallystick", "no.such:Plugin", "g")]])
def test_a_plugin_that_is_missing_or_broken_is_an_error(
    points: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "entry_points", lambda **_: points)
    (check,) = plugin_checks()
    assert check.state == "error"


def spark(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any] | None, output: str = SPARK_42
) -> list[DoctorCheck]:
    if connection is not None:
        value = json.dumps({"conn_type": "spark", **connection})
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", value)
    else:
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    return list(spark_checks("spark_default", "4.2.0", {}, run=lambda _: output))


@pytest.mark.parametrize(
    ("connection", "state", "text"),
    [
        ({"host": "local[2]"}, "ok", "master local[2]"),
        ({"host": "spark://master", "port": 7077}, "ok", "master spark://master:7077"),
        ({"host": "mesos://master"}, "error", "is not supported"),
        ({"host": "local[2]", "extra": {"deploy-mode": "cluster"}}, "error", "deploy-mode"),
        (None, "error", "is not defined"),
    ],
)
def test_the_spark_connection_is_resolved_as_a_stage_task_does(
    connection: dict[str, Any] | None, state: State, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = spark(monkeypatch, connection)
    assert (found[0].name, found[0].state) == ("connection spark_default", state)
    assert text in found[0].found
    assert [check.name for check in found[1:]] == (["spark-submit"] if state == "ok" else [])


@pytest.mark.parametrize(
    ("output", "state"), [(SPARK_42, "ok"), (SPARK_42.replace("4.2.0", "3.5.1"), "error")]
)
def test_the_spark_of_the_connection_is_that_of_pyspark(
    output: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark(monkeypatch, {"host": "local[2]"}, output)[1].state == state


def test_each_part_is_an_examination_of_its_own() -> None:
    found = doctor.examinations(spark_conn_id="mine", pyspark="4.2.0", environ={})
    assert [one.name for one in found] == ["configuration", "database", "plugin", "connection mine"]
    assert {one.area for one in found} == {"airflow"}
