"""`tally check` and `tally init` with a real broker and an S3 server: what is found there before a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from typer.testing import Result

from support.brokers import TestBroker, send
from tallystick_devstack.testing.servers import aws_environment, free_port, ministack
from unit.cli.invoke import tally, too_wide

DAG = """\
from datetime import UTC, datetime

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag

COLUMNS = [Column("page", "string"), Column("time", "timestamptz")]
pipeline = Pipeline(
    name="wiki",
    topics=[Topic("{topic}", decode=Json(COLUMNS))],
    warehouse="{warehouse}",
    job="spark_jobs/wiki.py",
    tables=[Table("edits", columns=COLUMNS, partition_by=["day(time)"])],
)
dag = replay_dag(pipeline, schedule="@daily", start_date=datetime.fromisoformat("{start}"))
"""
JOB = """\
from tallystick.spark import run

if __name__ == "__main__":
    run(lambda records: records)
"""
NOW = datetime.now(UTC).replace(microsecond=0)
DAY_AGO = NOW - timedelta(hours=20)


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with ministack() as url:
        session = boto3.session.Session(
            aws_access_key_id="test",
            aws_secret_access_key="test-secret",
            region_name="us-east-1",
        )
        session.client("s3", endpoint_url=url).create_bucket(Bucket="lake")
        yield url


@pytest.fixture(autouse=True)
def _servers(
    broker: TestBroker,
    s3_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Set the environment as a user does, and make the current folder a project."""
    for name, value in aws_environment(s3_url).items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "TALLYSTICK_LAKE", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    connection = json.dumps({"bootstrap_servers": broker.bootstrap})
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", connection)
    if "AIRFLOW_HOME" not in os.environ:  # Airflow reads it when it is imported, once per process
        os.environ["AIRFLOW_HOME"] = str(tmp_path_factory.mktemp("airflow-home"))
    monkeypatch.chdir(tmp_path)


def produce(broker: TestBroker, topic: str, *values: bytes, at: datetime = DAY_AGO) -> None:
    send(broker.producer(), topic, *values, timestamp=round(at.timestamp() * 1000))


def records(count: int, at: datetime = DAY_AGO) -> list[bytes]:
    return [json.dumps({"page": f"P{n}", "time": at.isoformat()}).encode() for n in range(count)]


def check(
    topic: str,
    *options: str,
    warehouse: str = "s3://lake/check",
    start: datetime | None = None,
) -> Result:
    """Write the files of a pipeline into the current folder, and check them."""
    for path, source in (
        (
            Path("dags/wiki.py"),
            DAG.format(topic=topic, warehouse=warehouse, start=(start or DAY_AGO).isoformat()),
        ),
        (Path("spark_jobs/wiki.py"), JOB),
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    result = tally("check", "dags/wiki.py", *options)
    assert too_wide(result.stdout) == []
    return result


def finding(result: Result, name: str, state: str) -> str:
    """Return the finding of a check in that state as one line."""
    parts: list[str] = []
    for line in result.stdout.splitlines():
        if line[:1].strip():
            parts.append(line)
        elif parts:
            parts[-1] += f" {line}"
    flat = [" ".join(part.split()) for part in parts]
    found = [part for part in flat if part.startswith(f"{state} {name} ")]
    assert found, result.stdout + result.stderr
    return found[0]


def test_a_good_pipeline_has_no_problem(broker: TestBroker) -> None:
    topic = broker.topic(partitions=3, retention_ms=7 * 86_400_000)
    produce(broker, topic, *records(20))
    result = check(topic, "--probe")
    assert result.exit_code == 0, result.stdout
    assert broker.bootstrap in finding(result, "connection", "ok")
    assert f"{topic}: 3 partitions, 20 offsets" in finding(result, "topic", "ok")
    assert "retention.ms=604800000, which is 7 d" in finding(result, "retention", "ok")
    assert "s3://lake/check can be read and listed" in finding(result, "warehouse", "ok")
    assert "conditional writes work" in finding(result, "writes", "ok")
    assert "nothing has been planned there yet" in finding(result, "lake", "ok")
    assert "20 read: 20 decoded, 0 dead letters" in finding(result, "records", "ok")
    assert "rows by table: edits 20" in finding(result, "transform", "ok")
    assert "within a day" in finding(result, "event time", "ok")
    assert result.stdout.endswith("0 problems, 0 warnings.\n")


def test_nothing_is_left_in_the_bucket(broker: TestBroker, s3_url: str) -> None:
    topic = broker.topic()
    produce(broker, topic, *records(2))
    check(topic, "--probe", warehouse="s3://lake/left")
    client = boto3.session.Session(
        aws_access_key_id="test", aws_secret_access_key="test-secret", region_name="us-east-1"
    ).client("s3", endpoint_url=s3_url)
    assert client.list_objects_v2(Bucket="lake", Prefix="left")["KeyCount"] == 0


def test_a_misspelt_topic_is_named_with_similar_ones(broker: TestBroker) -> None:
    broker.topic(name="pageviews")
    result = check("pageveiws")
    assert result.exit_code == 1
    missing = finding(result, "topic", "FAIL")
    assert "topic 'pageveiws' does not exist" in missing
    assert "Next: did you mean 'pageviews'?" in missing
    assert "name a file with --sample" in finding(result, "records", "not checked")
    assert "can be read and listed" in finding(result, "warehouse", "ok"), "the rest is checked"


def test_a_missing_bucket_is_named(broker: TestBroker) -> None:
    topic = broker.topic()
    produce(broker, topic, *records(2))
    result = check(topic, warehouse="s3://nosuchbucket/wiki")
    assert result.exit_code == 1
    missing = finding(result, "warehouse", "FAIL")
    assert "bucket 'nosuchbucket'" in missing
    assert "Next: create the bucket" in missing
    assert "2 read: 2 decoded" in finding(result, "records", "ok"), "the rest is checked"


def test_brokers_that_refuse_are_named_and_may_answer_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = f"127.0.0.1:{free_port()}"
    connection = json.dumps({"bootstrap_servers": address})
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", connection)
    result = check("any")
    assert result.exit_code == 75
    assert address in finding(result, "connection", "FAIL")
    waiting = "still waiting for Kafka (connection default)"
    logged = [line for line in result.stderr.splitlines() if not line.startswith(waiting)]
    assert logged == [], "the client's own log is not shown"


def test_records_of_another_format_are_named(broker: TestBroker) -> None:
    topic = broker.topic()
    produce(broker, topic, *[b"\x00\x00\x00\x00\x2a\x02\x04\xff"] * 3)
    result = check(topic)
    assert result.exit_code == 1
    dead = finding(result, "records", "FAIL")
    assert "3 read: 0 decoded, 3 dead letters: a run would have no row" in dead
    assert "Confluent's wire format (byte 0, then the id of a schema in the registry: 42)" in dead


def test_event_times_far_from_the_timestamps_are_a_warning(broker: TestBroker) -> None:
    topic = broker.topic()
    produce(broker, topic, *records(4, at=datetime(2015, 9, 12, tzinfo=UTC)))
    result = check(topic)
    assert result.exit_code == 0
    apart = finding(result, "event time", "warning")
    assert "column time: 4 of 4 records are more than a day from their Kafka timestamp" in apart
    assert "2015-09-12 00:00:00" in apart


def test_retention_that_deletes_what_the_schedule_reads_is_a_warning(broker: TestBroker) -> None:
    topic = broker.topic(retention_ms=3_600_000 * 24)
    produce(broker, topic, *records(1))
    result = check(topic, start=NOW - timedelta(days=9))
    assert "retention.ms=86400000, which is 1 d: records before" in finding(
        result, "retention", "warning"
    )


def test_an_empty_topic_is_a_warning(broker: TestBroker) -> None:
    result = check(broker.topic())
    assert "it has no records yet" in finding(result, "topic", "warning")
    assert result.exit_code == 0


def test_a_topic_whose_first_offsets_hold_no_record_is_read_further(broker: TestBroker) -> None:
    topic = broker.topic()
    producer = broker.transactions(f"aborted-{topic}")
    producer.begin_transaction()
    send(producer, topic, *records(30), flush=False)
    producer.flush(30)
    broker.end(producer, topic, abort=True)
    produce(broker, topic, *records(5))
    result = check(topic, "--records", "5")
    assert "5 read: 5 decoded, 0 dead letters" in finding(result, "records", "ok")


def test_init_writes_a_pipeline_from_a_topic_that_the_check_accepts(broker: TestBroker) -> None:
    topic = broker.topic(partitions=2)
    produce(broker, topic, *records(30, at=NOW - timedelta(days=3)), at=NOW - timedelta(days=3))
    produce(broker, topic, *records(30), at=DAY_AGO)
    result = tally("init", "visits", "--topic", topic, "--records", "40")
    assert result.exit_code == 0, result.stderr
    text = Path("dags/visits.py").read_text()
    first = NOW - timedelta(days=3)
    assert f"start_date=datetime({first.year}, {first.month}, {first.day}, tzinfo=UTC)" in text
    assert "Unpausing starts a run for each day since start_date (3 now)" in text
    assert 'partition_by=["day(time)"]' in text
    checked = tally("check", "dags/visits.py")
    assert checked.exit_code == 0, checked.stdout
    assert "unpausing it now starts 3 runs" in finding(checked, "schedule", "ok")


def test_init_bounds_the_schedule_of_a_topic_that_has_ended(broker: TestBroker) -> None:
    topic = broker.topic(retention_ms=-1)
    for day in (12, 13):
        at = datetime(2015, 9, day, 5, tzinfo=UTC)
        produce(broker, topic, *records(3, at=at), at=at)
    assert tally("init", "old", "--topic", topic).exit_code == 0
    text = Path("dags/old.py").read_text()
    assert "start_date=datetime(2015, 9, 12, tzinfo=UTC)" in text
    assert "end_date=datetime(2015, 9, 13, tzinfo=UTC)" in text
    assert "unpausing it now starts 2 runs" in finding(
        tally("check", "dags/old.py"), "schedule", "ok"
    )


def test_init_of_an_empty_topic_writes_nothing(broker: TestBroker) -> None:
    topic = broker.topic()
    result = tally("init", "empty", "--topic", topic)
    assert result.exit_code == 77
    assert f"topic '{topic}' has no records." in result.stderr
    assert list(Path().rglob("*.py")) == []
