"""A table's connection in Airflow's tasks: first the environment, then Airflow's own, and never in the Spark driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tallystick.airflow.connections import settings_named
from tallystick.airflow.environment import driver_environment
from tallystick.connections.http import HttpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import env_name
from tallystick.connections.smtp import SmtpSettings
from tallystick.errors import SettingsError

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


def test_airflows_own_connection_is_read_last(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {
        "conn_type": "postgres",
        "host": "db",
        "port": 5433,
        "schema": "flights",
        "login": "replay",
        "password": "secret",
        "extra": {"sslmode": "verify-full", "lock_timeout_s": 5},
    }
    monkeypatch.setenv("AIRFLOW_CONN_POSTGRES_MAIN", json.dumps(words))
    found = settings_named(PostgresSettings, "main")
    assert (found.host, found.port, found.dbname, found.user) == ("db", 5433, "flights", "replay")
    assert (found.password, found.sslmode, found.lock_timeout_s) == ("secret", "verify-full", 5)
    monkeypatch.setenv("TALLYSTICK_POSTGRES_MAIN", '{"host": "env", "dbname": "d", "user": "u"}')
    assert settings_named(PostgresSettings, "main").host == "env"


def test_an_undefined_connection_is_reported_with_airflows_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(
        SettingsError, match=r"PostgreSQL connection 'gone' is not defined"
    ) as caught:
        settings_named(PostgresSettings, "gone")
    assert "Airflow connection postgres_gone" in caught.value.hint
    monkeypatch.setenv(
        "AIRFLOW_CONN_POSTGRES_MAIN",
        json.dumps({"conn_type": "postgres", "host": "db", "extra": {"cursor": "dict"}}),
    )
    with pytest.raises(SettingsError, match=r"connection 'main': 'cursor' is not a setting"):
        settings_named(PostgresSettings, "main")


@pytest.mark.parametrize(
    "name",
    [
        env_name(PostgresSettings, "main"),
        env_name(HttpSettings, "main"),
        env_name(SmtpSettings, "main"),
        env_name(RegistrySettings, "main"),
    ],
)
def test_the_spark_driver_gets_no_connection_of_an_output_or_registry(name: str) -> None:
    environment = driver_environment(
        {name: "{}", "TALLYSTICK_S3_BUCKET_OWNER": "1"},
        kafka_name="default",
        kafka=KafkaSettings(bootstrap_servers=("a:1",)),
        result_file=Path("result"),
        master="local[1]",
    )
    assert "TALLYSTICK_S3_BUCKET_OWNER" in environment
    assert name not in environment
