"""S3 and PostgreSQL as child processes: their data survives a stop and a kill, also in a folder with a long name."""

from __future__ import annotations

import socket
from pathlib import Path

import psycopg2
import pytest
from botocore.exceptions import ClientError

from tallystick.errors import SettingsError
from tallystick_devstack import process
from tallystick_devstack.airflow import AirflowStack
from tallystick_devstack.postgres import ADMIN, Postgres
from tallystick_devstack.process import free_port
from tallystick_devstack.s3 import S3Server
from tallystick_devstack.spark import SparkCluster


def test_s3_objects_keep_their_etags_over_a_stop_a_kill_and_another_port(tmp_path: Path) -> None:
    first = S3Server(tmp_path)
    first.start()
    try:
        first.create_bucket("lake")
        first.create_bucket("lake")
        written = first.client().put_object(Bucket="lake", Key="a/root.json", Body=b"{}")["ETag"]
        first.stop()
        assert not first.alive
        first.start()
        first.client().put_object(Bucket="lake", Key="a/root.json", Body=b"{1}", IfMatch=written)
        assert first.process is not None
        first.process.kill()
    finally:
        first.stop()
    second = S3Server(tmp_path, port=free_port())
    second.start()
    try:
        client = second.client()
        found = client.get_object(Bucket="lake", Key="a/root.json")
        assert found["Body"].read() == b"{1}"
        with pytest.raises(ClientError, match="PreconditionFailed"):
            client.put_object(Bucket="lake", Key="a/root.json", Body=b"{2}", IfMatch=written)
        client.put_object(Bucket="lake", Key="a/root.json", Body=b"{2}", IfMatch=found["ETag"])
    finally:
        second.stop()


@pytest.mark.parametrize("server_type", [S3Server, SparkCluster])
def test_a_server_does_not_start_while_another_process_listens_at_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_type: type[S3Server | SparkCluster]
) -> None:
    monkeypatch.setattr(process, "_PORT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as killed_but_not_gone:
        server = server_type(tmp_path, port=killed_but_not_gone.getsockname()[1])
        with pytest.raises(SettingsError, match=f"port {server.port} .* is in use"):
            server.start()
        assert not server.alive


def test_the_api_server_of_airflow_does_not_start_while_another_process_listens_at_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PORT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as killed_but_not_gone:
        airflow = AirflowStack(
            tmp_path,
            dags_dir=tmp_path,
            plugins_dir=tmp_path,
            database="postgresql://nowhere/airflow",
            port=killed_but_not_gone.getsockname()[1],
        )
        with pytest.raises(SettingsError, match=f"port {airflow.port} .* is in use"):
            airflow.start_component("api-server")
        assert not airflow.processes


def rows(server: Postgres) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(host=str(server.socket_dir), user="postgres", dbname="airflow")
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("create table if not exists kept (number int)")
            cursor.execute("insert into kept select count(*) from kept")
            cursor.execute("select number from kept order by number")
            return list(cursor.fetchall())
    finally:
        connection.close()


@pytest.mark.parametrize("folder", ["near", "deep/" + "a-folder-with-a-long-name/" * 6])
def test_postgres_keeps_its_rows_over_a_stop_and_a_kill(tmp_path: Path, folder: str) -> None:
    server = Postgres(tmp_path / folder)
    assert len(str(server.socket_dir / ".s.PGSQL.5432")) < 100
    server.start()
    try:
        server.create_database("airflow")
        server.create_database("airflow")
        assert rows(server) == [(0,)]
        assert server.process is not None
        server.process.kill()
        server.start()
        assert rows(server) == [(0,), (1,)]
        server.stop()
        assert not server.alive
        server.start()
        assert rows(server) == [(0,), (1,), (2,)]
    finally:
        server.stop()


def test_postgres_has_the_settings_that_are_added_also_another_port(tmp_path: Path) -> None:
    settings = {"wal_level": "logical", "port": "54321", "jit": "on"}
    server = Postgres(tmp_path / "pg", settings=settings)
    server.start()
    try:
        server.create_database("shop")
        connection = psycopg2.connect(
            host=str(server.socket_dir), port=server.port, user=ADMIN, dbname="shop"
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "select name, setting from pg_settings where name = any(%s)", (list(settings),)
                )
                assert dict(cursor.fetchall()) == settings
        finally:
            connection.close()
    finally:
        server.stop()


def test_a_socket_folder_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    server = Postgres(tmp_path / ("a-folder-with-a-long-name/" * 6))
    mine = tmp_path / "mine"
    mine.mkdir()
    server.socket_dir.symlink_to(mine)
    try:
        with pytest.raises(SettingsError, match="belongs to another user"):
            server.start()
    finally:
        server.socket_dir.unlink()
    assert not list(mine.iterdir())
