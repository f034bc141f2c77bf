"""`tally doctor` as a whole, on a real broker and an S3 server: a good installation, and one that loses records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from support.brokers import TestBroker
from support.log_lake import LogLake, days, fill
from tallystick.operations.doctor import versions
from tallystick.operations.doctor.check import Area
from tallystick.store.open import open_store
from tallystick_devstack.testing.servers import aws_environment, ministack
from unit.cli.invoke import tally, too_wide

KEPT_MS = 10**12  # more than 31 years: the records are of 2013


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with ministack() as url:
        yield url


@pytest.fixture
def s3(s3_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broker: TestBroker) -> Any:
    """Set the environment as a user does, without Airflow; the value is a client of the S3 server with a bucket."""
    for name in [n for n in os.environ if n.startswith(("TALLYSTICK_", "AIRFLOW_"))]:
        monkeypatch.delenv(name)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in aws_environment(s3_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    connection = json.dumps({"bootstrap_servers": broker.bootstrap})
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", connection)
    for check in ("java", "spark"):  # tests/unit/operations/doctor/test_versions.py has them
        good = Area("versions").ok(check, "not started here")
        monkeypatch.setattr(versions, f"{check}_check", lambda *_, good=good, **__: good)
    client = boto3.client("s3")
    client.create_bucket(Bucket="lake")
    return client


def lake_of(broker: TestBroker, topic: str) -> LogLake:
    return LogLake(broker, [topic], store=open_store(f"s3://lake/{topic}"))


def test_a_good_installation_has_neither_errors_nor_warnings(s3: Any, broker: TestBroker) -> None:
    topic = broker.topic(2, retention_ms=KEPT_MS, min_insync_replicas=1)
    fill(broker, topic, 1, 2, day=0.5)
    lake = lake_of(broker, topic)
    lake.run(days(0, 1))
    result = tally("doctor", lake.lake.store.uri, "--write", "--strict")
    assert result.exit_code == 0, result.stdout
    assert "0 errors, 0 warnings; " in result.stdout
    assert too_wide(result.stdout) == []
    found = json.loads(tally("doctor", lake.lake.store.uri, "--json").stdout)
    states = {(c["area"].partition(" ")[0], c["name"]): c["state"] for c in found["checks"]}
    for check in (
        *(("store", name) for name in ("access", "clock", "lifecycle", "encryption")),
        *(("kafka", name) for name in ("login", f"{topic}: identity", f"{topic}: retention")),
        *(("ledger", name) for name in ("root", "problems", "retention")),
    ):
        assert states[check] == "ok", (check, found)
    assert states["store", "conditional writes"] == "info"


def test_a_gap_that_the_topic_drops_and_a_rule_that_deletes_are_found(
    s3: Any, broker: TestBroker
) -> None:
    topic = broker.topic(retention_ms=KEPT_MS)
    for number in range(3):
        fill(broker, topic, number, day=number + 0.5)
    lake = lake_of(broker, topic)
    lake.run(days(0, 1))
    lake.run(days(2, 3))
    broker.delete_records(topic, 2)
    s3.put_bucket_lifecycle_configuration(
        Bucket="lake",
        LifecycleConfiguration={
            "Rules": [
                {
                    "ID": "tidy",
                    "Status": "Enabled",
                    "Filter": {"Prefix": f"{topic}/"},
                    "Expiration": {"Days": 30},
                }
            ]
        },
    )
    result = tally("doctor", lake.lake.store.uri)
    assert result.exit_code == 1
    assert too_wide(result.stdout) == []
    shown = " ".join(result.stdout.split())
    assert f"error lifecycle: rule 'tidy' deletes after 30 d objects below {topic}/" in shown
    assert f"topic {topic} has dropped all of it (1 offset)" in shown
    assert "airflow backfill create --dag-id edges" in shown
