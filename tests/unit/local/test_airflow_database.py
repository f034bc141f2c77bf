"""A metadata database that does not answer is named before anything is started, without its password."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import RetryLater
from tallystick.local.airflow import AirflowStack
from tallystick.local.process import free_port


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
    assert f"someone:***@127.0.0.1:{port}/airflow" in text
    assert "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in text
    assert "canary-1" not in text
    assert stack.processes == {}
