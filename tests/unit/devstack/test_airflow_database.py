"""A metadata database that does not answer is named, without its password, before any component is started."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tallystick.errors import RetryLater
from tallystick_devstack import airflow
from tallystick_devstack.airflow import AirflowStack
from tallystick_devstack.process import free_port


def test_an_unreachable_database_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    port = free_port()
    stack = AirflowStack(
        tmp_path,
        dags_dir=tmp_path,
        plugins_dir=tmp_path,
        database=f"postgresql+psycopg2://someone:canary-1@127.0.0.1:{port}/airflow",
        env={},
    )
    with pytest.raises(RetryLater) as caught:
        stack.start()
    text = str(caught.value)
    assert f"postgresql+psycopg2://***@127.0.0.1:{port}/airflow" in text
    assert "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in text
    assert "canary-1" not in text
    assert stack.processes == {}


def test_a_recreated_database_is_migrated_despite_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`migrated.json` is in Airflow's folder; the folder of the database may be removed without it."""
    database = tmp_path / "airflow.db"
    stack = AirflowStack(
        tmp_path, dags_dir=tmp_path, plugins_dir=tmp_path, database=f"sqlite:///{database}"
    )
    migrations: list[str] = []

    def migrate(*_: object, name: str, **__: object) -> None:
        migrations.append(name)
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("create table alembic_version (version_num text)")

    monkeypatch.setattr(airflow, "run_to_end", migrate)
    monkeypatch.setattr(stack, "start_component", lambda _: None)
    monkeypatch.setattr(stack, "wait_until_healthy", lambda *_, **__: None)
    stack.start()
    stack.start()
    assert migrations == ["airflow db migrate"]
    database.unlink()
    stack.start()
    assert migrations == ["airflow db migrate"] * 2
