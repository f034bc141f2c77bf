"""The embedded broker: first start, restart with its log, kill, users; and readers that survive these."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from support.brokers import TestBroker, send
from support.canaries import error_text
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import KafkaUnavailable, LogDamaged, SettingsError
from tallystick.format.offsets import OffsetRange, Position
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.planning import LogPlanner
from tallystick.kafka.reader import RangeReader
from tallystick_devstack import process
from tallystick_devstack.kafka import (
    KafkaBroker,
    class_archive,
    default_jar_folder,
    fetch_jars,
    make_class_archive,
)
from tallystick_devstack.process import free_port

PASSWORD = "not-to-be-seen"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """Start a broker that these tests may stop and kill. Its port never changes, as with a real one."""
    state = tmp_path_factory.mktemp("own-kafka")
    make_class_archive(
        fetch_jars(default_jar_folder())
    )  # already done by setup, unless Java has changed since
    with KafkaBroker(state, port=free_port(), users={"me": PASSWORD}) as running:
        yield TestBroker(running, AdminClient({"bootstrap.servers": running.bootstrap}))


def test_a_broker_starts_from_the_class_archive_of_setup(own: TestBroker) -> None:
    (archive,) = class_archive(default_jar_folder()).flags
    children = psutil.Process(own.kafka.process.pid).children(recursive=True)
    (java,) = [process for process in children if process.name() == "java"]
    mapped = Path(f"/proc/{java.pid}/maps").read_text()
    assert archive.partition("=")[2] in mapped


def user(broker: TestBroker, password: str, mechanism: str = "PLAIN") -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=(broker.kafka.users_bootstrap,),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="me",
        sasl_plain_password=password,
        bootstrap_timeout_ms=5_000,
    )


def test_a_user_with_the_right_password_reads(own: TestBroker) -> None:
    with KafkaClient(user(own, PASSWORD)) as client:
        assert client.cluster_id()


@pytest.mark.parametrize(
    ("password", "mechanism"), [("wrong-" + PASSWORD, "PLAIN"), (PASSWORD, "SCRAM-SHA-256")]
)
def test_the_error_of_a_refused_user_names_the_settings_to_check(
    own: TestBroker, password: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = user(own, password, mechanism)
    with (
        caplog.at_level(logging.DEBUG),
        caplog.at_level(
            logging.DEBUG, logger="kafka"
        ),  # a task of tallystick in this process changes the level
        pytest.raises(
            SettingsError, match=r"refused to authenticate user 'me'.*sasl_mechanism, sasl_plain_u"
        ) as refused,
    ):
        KafkaClient(settings).__enter__()
    assert "kafka" in caplog.text
    assert PASSWORD not in error_text(refused.value) + caplog.text


def test_no_log_line_contains_the_password(
    own: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        caplog.at_level(logging.DEBUG, logger="kafka"),
        KafkaClient(user(own, PASSWORD)) as client,
    ):
        client.cluster_id()
    assert "kafka" in caplog.text
    assert PASSWORD not in caplog.text


def test_a_reader_survives_the_kill_and_restart_of_its_leader(own: TestBroker) -> None:
    topic = own.topic()
    producer = own.producer()
    for turn in range(20):
        send(producer, topic, b"%d" % turn)
    ours = _reader(own, topic, fetch_bytes_max=1)
    batches = ours.read(0, OffsetRange(start=0, end=20))
    values = next(batches)["value"].to_pylist()
    own.kafka.process.kill()
    own.kafka.start()
    own.wait_for_leaders(topic, 1)
    for batch in batches:
        values += batch["value"].to_pylist()
    assert values == [b"%d" % turn for turn in range(20)]
    assert ours.account.records == 20


def test_epochs_distinguish_the_terms_of_a_leader(own: TestBroker) -> None:
    topic = own.topic()
    send(own.producer(), topic, b"0", b"1", timestamp=1_000)
    own.kafka.process.kill()
    own.kafka.start()
    own.wait_for_leaders(topic, 1)
    send(own.producer(), topic, b"2", b"3", timestamp=3_000)
    with LogPlanner(own.settings) as planner:
        (early,) = planner.boundary(topic, 2_000, [0])
        (late,) = planner.boundary(topic, 4_000, [0])
        assert (early.offset, late.offset) == (2, 4)
        assert early.leader_epoch < late.leader_epoch
        assert planner.diverged(topic, [early]) == []
        assert planner.diverged(topic, [late]) == []
        # A third record of the first term would have been truncated since.
        (message,) = planner.diverged(topic, [Position(offset=3, leader_epoch=early.leader_epoch)])
        assert "ends at 2" in message
    ours, span = _reader(own, topic, fetch_bytes_max=1 << 20), OffsetRange(start=0, end=4)
    assert sum(batch.num_rows for batch in ours.read(0, span, planned_end=late)) == 4
    # Planned up to 4 in the first term: records from 2 on were written in the second.
    planned = Position(offset=4, leader_epoch=early.leader_epoch)
    with pytest.raises(LogDamaged, match=r"before offset 4 was of leader epoch \d+, .* ends at 2"):
        list(ours.read(0, span, planned_end=planned))


def test_a_reader_fails_if_its_leader_does_not_return(own: TestBroker) -> None:
    topic = own.topic()
    producer = own.producer()
    for turn in range(5):
        send(producer, topic, b"%d" % turn)
    ours = _reader(own, topic, fetch_bytes_max=1)
    ours.settings = KafkaSettings(bootstrap_servers=(own.bootstrap,), request_timeout_ms=1_000)
    batches = ours.read(0, OffsetRange(start=0, end=5))
    next(batches)
    own.kafka.process.kill()
    with pytest.raises(
        KafkaUnavailable, match=f"Kafka at {own.bootstrap} did not return .*bootstrap_servers"
    ):
        list(batches)
    own.kafka.start()


def test_a_restart_keeps_the_log_and_the_cluster_id(tmp_path: Path) -> None:
    first = KafkaBroker(tmp_path / "state").start()
    running = TestBroker(first, AdminClient({"bootstrap.servers": first.bootstrap}))
    topic = running.topic()
    send(running.producer(), topic, b"kept")
    with LogPlanner(running.settings) as planner:
        before = planner.describe([topic])[topic]
    first.stop()
    first.stop()
    assert not first.alive
    with KafkaBroker(tmp_path / "state") as second:
        assert second.start() is second
        with LogPlanner(KafkaSettings(bootstrap_servers=(second.bootstrap,))) as planner:
            assert planner.describe([topic])[topic] == before


def test_a_port_in_use_is_refused_by_number(
    own: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PORT_S", 0.2)
    port = int(own.bootstrap.rpartition(":")[2])
    with pytest.raises(
        SettingsError, match=f"port {port} of 127.0.0.1, which is set for Kafka, is in use"
    ):
        KafkaBroker(tmp_path / "other", port=port).start()


def test_the_error_of_a_broker_that_cannot_start_has_its_last_log_lines(tmp_path: Path) -> None:
    broken = KafkaBroker(tmp_path / "state", settings={"log.retention.ms": "nonsense"})
    with pytest.raises(SettingsError, match="nonsense"):
        broken.start()
    assert not broken.alive


def test_jars_that_exist_are_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "")
    (tmp_path / "jars").mkdir()
    assert fetch_jars(tmp_path / "jars") == tmp_path / "jars"
    with pytest.raises(SettingsError, match=r"no java in PATH.*install Java 17"):
        fetch_jars(tmp_path / "missing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jars"]


def _reader(broker: TestBroker, topic: str, fetch_bytes_max: int) -> RangeReader:
    with KafkaClient(broker.settings) as client:
        topic_id, cluster_id = client.layout(topic).topic_id, client.cluster_id()
    return RangeReader(
        KafkaSettings(bootstrap_servers=(broker.bootstrap,)),
        topic=topic,
        topic_id=topic_id,
        cluster_id=cluster_id,
        compacted=False,
        fetch_bytes_max=fetch_bytes_max,
        batch_rows=1,  # each batch of the log is returned by itself, so a test can do something between two
    )
