"""The request, dates, job and Kafka connection of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from support.canaries import error_text
from support.small_lake import pipeline
from tallystick.airflow.connections import settings_named
from tallystick.airflow.run import dates_of, request_of, span_of, utc
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import InvalidPipeline, InvalidRequest, SettingsError
from tallystick.format.interval import Interval
from tallystick.operations.job_file import job_file

AT = datetime(2013, 1, 2, tzinfo=UTC)
SMALL = pipeline("memory://runs")


def run(**given: Any) -> Any:
    known = {"dag_id": "small", "run_id": "scheduled__1", "clear_number": 0, "run_after": AT}
    dates = ("logical_date", "data_interval_start", "data_interval_end")
    return SimpleNamespace(**{**dict.fromkeys(dates), "run_type": "scheduled", **known, **given})


@pytest.mark.parametrize(("clear_number", "number"), [(0, 0), (3, 3), (None, 0)])
def test_request_is_dag_run_and_clear_number(clear_number: int | None, number: int) -> None:
    request = request_of(run(clear_number=clear_number))
    assert (request.dag, request.run, request.clear) == ("small", "scheduled__1", number)


def test_a_run_without_a_logical_date_has_no_interval() -> None:
    dates = dates_of(run(run_type="manual"))
    assert dates.data_interval is None
    assert dates.run_after == AT


def test_data_interval_of_airflow_becomes_an_interval() -> None:
    start, end = pendulum.datetime(2013, 1, 1), pendulum.datetime(2013, 1, 2)
    dates = dates_of(run(data_interval_start=start, data_interval_end=end))
    assert dates.data_interval == Interval(start=datetime(2013, 1, 1, tzinfo=UTC), end=AT)
    assert type(dates.data_interval.start) is datetime


def test_interval_without_extent_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is empty"):
        dates_of(run(data_interval_start=AT, data_interval_end=AT))


DAY_1 = "[2013-01-01T00:00:00.000Z, 2013-01-02T00:00:00.000Z)"
LOCAL = pendulum.datetime(2013, 1, 1, 7, tz="Asia/Tokyo")


@pytest.mark.parametrize(
    ("dates", "params", "span"),
    [
        ({"data_interval_start": AT - timedelta(days=1), "data_interval_end": AT}, {}, DAY_1),
        (
            {"data_interval_start": LOCAL, "data_interval_end": LOCAL.add(hours=1)},
            {},
            "[2012-12-31T22:00:00.000Z, 2012-12-31T23:00:00.000Z)",
        ),
        # The form's dates have precedence over the run's own dates, as in the plan.
        (
            {"data_interval_start": AT, "data_interval_end": AT + timedelta(days=1)},
            {"from": "2013-01-01", "to": "2013-01-02"},
            DAY_1,
        ),
        ({}, {"from": "yesterday", "to": "2013-01-02"}, "from='yesterday' to='2013-01-02'"),
        ({}, {"from": "2013-01-01", "to": None}, "from='2013-01-01' to=None"),
        ({"data_interval_start": AT, "data_interval_end": AT}, {"form": 1}, "02T00:00:00.000Z)"),
        ({}, {}, "everything new until 2013-01-02T00:00:00.000Z"),
        ({}, {"mode": "erase"}, "everything new until 2013-01-02T00:00:00.000Z"),
    ],
)
def test_the_span_of_a_run_can_be_named_even_if_its_parameters_are_wrong(
    dates: dict[str, Any], params: dict[str, Any], span: str
) -> None:
    assert span in span_of(run(**dates), params)


def test_instants_are_utc_and_whole_milliseconds() -> None:
    local = datetime(2013, 1, 1, 7, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=-5)))
    assert utc(local) == datetime(2013, 1, 1, 12, 0, 0, 123_000, tzinfo=UTC)


def test_missing_job_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match=r"spark_jobs/small\.py") as caught:
        job_file(SMALL, str(tmp_path))
    assert str(tmp_path) in str(caught.value)


def no_connection(_: str) -> Connection:
    raise AirflowNotFoundException("not there")


def test_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", '{"bootstrap_servers": "env:9092"}')
    monkeypatch.setattr(
        BaseHook, "get_connection", lambda _: pytest.fail("Airflow's connection is read")
    )
    assert settings_named(KafkaSettings, SMALL.kafka).endpoint == "env:9092"


def test_secrets_folder_comes_before_airflow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "default.json"
    secret.write_text('{"bootstrap_servers": "file:9092"}')
    secret.chmod(0o600)
    monkeypatch.delenv("TALLYSTICK_KAFKA_DEFAULT", raising=False)
    monkeypatch.setenv("TALLYSTICK_SECRETS_DIR", str(tmp_path))
    monkeypatch.setattr(
        BaseHook, "get_connection", lambda _: Connection(conn_id="x", conn_type="kafka", host="air")
    )
    assert settings_named(KafkaSettings, SMALL.kafka).endpoint == "file:9092"


def test_airflow_connection_becomes_kafka_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TALLYSTICK_KAFKA_DEFAULT", raising=False)
    requested: list[str] = []
    found = Connection(
        conn_id="kafka_default",
        conn_type="kafka",
        host="broker",
        port=9093,
        login="reader",
        password="canary",
        extra='{"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}',
    )
    monkeypatch.setattr(BaseHook, "get_connection", lambda name: requested.append(name) or found)
    settings = settings_named(KafkaSettings, SMALL.kafka)
    assert requested == ["kafka_default"]
    assert (settings.endpoint, settings.sasl_plain_username, settings.sasl_plain_password) == (
        "broker:9093",
        "reader",
        "canary",
    )


@pytest.mark.parametrize(
    ("host", "port", "endpoint"),
    [
        ("h1", None, "h1:9092"),
        ("h1", 9093, "h1:9093"),
        ("h1:9092,h2:9092", None, "h1:9092,h2:9092"),
        ("h1, h2:1", 9093, "h1:9093,h2:1"),
        ("[::1],[::2]:1", None, "[::1]:9092,[::2]:1"),
    ],
)
def test_hosts_of_an_airflow_connection_get_its_port_if_they_have_none(
    monkeypatch: pytest.MonkeyPatch, host: str, port: int | None, endpoint: str
) -> None:
    monkeypatch.delenv("TALLYSTICK_KAFKA_DEFAULT", raising=False)
    found = Connection(conn_id="x", conn_type="kafka", host=host, port=port)
    monkeypatch.setattr(BaseHook, "get_connection", lambda _: found)
    assert settings_named(KafkaSettings, SMALL.kafka).bootstrap_servers == tuple(
        endpoint.split(",")
    )


def test_unknown_settings_are_refused_without_their_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TALLYSTICK_KAFKA_DEFAULT", raising=False)
    found = Connection(
        conn_id="x",
        conn_type="kafka",
        extra='{"bootstrap.servers": "b:1", "sasl.password": "canary"}',
    )
    monkeypatch.setattr(BaseHook, "get_connection", lambda _: found)
    with pytest.raises(SettingsError, match=r"bootstrap\.servers") as caught:
        settings_named(KafkaSettings, SMALL.kafka)
    assert "canary" not in str(caught.value)


def test_undefined_connection_is_reported_with_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TALLYSTICK_KAFKA_DEFAULT", raising=False)
    monkeypatch.delenv("TALLYSTICK_SECRETS_DIR", raising=False)
    monkeypatch.setattr(BaseHook, "get_connection", no_connection)
    with pytest.raises(SettingsError) as caught:
        settings_named(KafkaSettings, SMALL.kafka)
    for place in ("TALLYSTICK_KAFKA_DEFAULT", "TALLYSTICK_SECRETS_DIR", "kafka_default"):
        assert place in str(caught.value)


@pytest.mark.parametrize("extra", ['{"sasl_plain_password": "canary"', '["canary"]', '"canary"'])
def test_an_extra_that_is_no_json_object_is_refused_and_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, extra: str
) -> None:
    """Airflow itself reads it as empty: the connection would be used without its login and without TLS."""
    monkeypatch.delenv("TALLYSTICK_KAFKA_DEFAULT", raising=False)
    found = Connection(conn_id="kafka_default", conn_type="kafka", host="b", extra=extra)
    monkeypatch.setattr(BaseHook, "get_connection", lambda _: found)
    with pytest.raises(
        SettingsError, match="extra of the Airflow connection 'kafka_default': "
    ) as caught:
        settings_named(KafkaSettings, SMALL.kafka)
    assert "canary" not in error_text(caught.value) + caplog.text


def test_a_connection_that_airflow_cannot_parse_is_named_and_not_quoted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TALLYSTICK_KAFKA_DEFAULT", raising=False)
    monkeypatch.delenv("TALLYSTICK_SECRETS_DIR", raising=False)
    broken = '{"conn_type": "kafka", "host": "b:1", "password": "canary"'
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", broken)
    with pytest.raises(SettingsError, match="ignores an extra that it cannot parse") as caught:
        settings_named(KafkaSettings, SMALL.kafka)
    assert "canary" not in error_text(caught.value) + caplog.text
