"""Airflow of the embedded stack gets the settings of metrics and lineage of its caller, and no other settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick_devstack.airflow import AirflowStack


def test_only_settings_of_metrics_and_lineage_reach_airflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = {
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": '{"type": "console"}',
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318",
    }
    others = {"AIRFLOW__CORE__PARALLELISM": "99", "AIRFLOW__API__HOST": "0.0.0.0", "TOKEN": "x"}
    for name, value in (passed | others).items():
        monkeypatch.setenv(name, value)
    stack = AirflowStack(tmp_path, dags_dir=tmp_path, plugins_dir=tmp_path, database="db://x")
    found = stack.environment()
    assert {name: found.get(name) for name in passed} == passed
    assert found["AIRFLOW__CORE__PARALLELISM"] == "4"
    assert found["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert "TOKEN" not in found
