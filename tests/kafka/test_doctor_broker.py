"""`tally doctor` on a real broker: topics that are missing, recreated or short-lived, rights, and a wrong password."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from support.brokers import TestBroker, done, send
from support.log_lake import LogLake, days, fill
from tallystick.connections.kafka import KafkaSettings
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.planning import LogPlanner
from tallystick.kafka.wire import TopicRetention
from tallystick.operations.doctor.check import DoctorCheck
from tallystick.operations.doctor.kafka import kafka_checks, topics_of
from tallystick.operations.doctor.lake import LedgerReading, guard_checks, ledger_checks
from tallystick.operations.doctor.run import Examination, examine
from tallystick.operations.gaps_at_risk import gaps_at_risk
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.process import wait_until

PASSWORD = "not-to-be-seen"
KEPT_MS = 10**12  # more than 31 years: the records are of 2013


def ledger(broker: TestBroker, topic: str) -> LogLake:
    """Return a lake in which the first and the third day of a topic are committed; the second one is a gap."""
    for number in range(3):
        fill(broker, topic, number, 10 + number, day=number + 0.5)
    lake = LogLake(broker, [topic])
    lake.run(days(0, 1))
    lake.run(days(2, 3))
    return lake


def read(lake: LogLake) -> LedgerReading:
    reading = LedgerReading(uri=lake.lake.store.uri)
    assert [c.state for c in ledger_checks(lake.lake, reading) if c.name == "root"] == ["ok"]
    return reading


def examined(
    settings: KafkaSettings, *readings: LedgerReading, now: datetime | None = None
) -> dict[str, DoctorCheck]:
    """Return the checks of a connection by name, as the command makes them."""

    def named(kind: Any, name: str) -> Any:
        assert (kind, name) == (KafkaSettings, "default")
        return settings

    def steps() -> Iterator[DoctorCheck]:
        topics = topics_of(readings, "default")
        yield from kafka_checks("default", named, topics, now=now or datetime.now(UTC))

    found = examine([Examination(area="kafka default", name="login", steps=steps, limit_s=60)])
    assert PASSWORD not in repr(found)
    assert all(check.fix for check in found if check.state != "ok")
    return {check.name: check for check in found}


def not_ok(found: dict[str, DoctorCheck]) -> dict[str, str]:
    return {name: check.state for name, check in found.items() if check.state != "ok"}


@pytest.fixture
def topic(broker: TestBroker) -> str:
    return broker.topic(
        retention_ms=KEPT_MS, min_insync_replicas=1, message_timestamp_after_max_ms=2**63 - 1
    )


def test_a_good_topic_is_ok_but_for_its_single_replica(broker: TestBroker, topic: str) -> None:
    reading = read(ledger(broker, topic))
    found = examined(broker.settings, reading)
    assert not_ok(found) == {f"{topic}: replicas": "info"}
    assert set(found) == {
        *("login", "brokers"),
        *(f"{topic}: {n}" for n in ("identity", "read", "retention", "unclean election")),
        *(f"{topic}: {n}" for n in ("replicas", "timestamps", "future")),
    }
    assert "Kafka 4.1" in found["brokers"].found
    kept = reading.kept[topic]
    assert (kept.kept, kept.starts, kept.ends) == (
        timedelta(milliseconds=KEPT_MS),
        (0,),
        (6,),
    )
    (guard,) = guard_checks(reading, now=datetime.now(UTC))
    assert guard.state == "ok"


def test_without_a_ledger_only_the_brokers_are_checked(broker: TestBroker) -> None:
    assert not_ok(examined(broker.settings)) == {}


def test_a_missing_topic_is_an_error_and_hides_no_other(broker: TestBroker, topic: str) -> None:
    gone = broker.topic(retention_ms=KEPT_MS)
    readings = [read(ledger(broker, gone)), read(ledger(broker, topic))]
    broker.delete_topic(gone)
    found = examined(broker.settings, *readings)
    assert not_ok(found) == {gone: "error", f"{topic}: replicas": "info"}
    assert f"topic '{gone}' does not exist" in found[gone].found


def test_a_recreated_topic_is_an_error_with_the_command_that_shows_its_adoption(
    broker: TestBroker, topic: str
) -> None:
    lake = ledger(broker, topic)
    broker.delete_topic(topic)
    broker.topic(name=topic, retention_ms=KEPT_MS)
    found = examined(broker.settings, read(lake))
    assert not_ok(found) == {f"{topic}: identity": "error"}
    assert found[f"{topic}: identity"].command == (
        *("tally", "topic", "adopt", topic),
        lake.lake.store.uri,
    )


def test_a_low_retention_is_a_warning_for_the_topic_and_for_the_gap(
    broker: TestBroker, topic: str
) -> None:
    reading = read(ledger(broker, topic))
    # The records are of 2013. At this time they are a week old, and the topic keeps them for eight days.
    now = datetime(2013, 1, 9, tzinfo=UTC)
    broker.configure(topic, retention_ms=8 * 86_400_000, retention_bytes=1 << 40)
    found = examined(broker.settings, reading, now=now)
    retention = found[f"{topic}: retention"]
    assert retention.state == "warning"
    assert retention.found == (
        "retention.ms is 8 d, retention.bytes=1099511627776; the first record that is not committed may be "
        "dropped in 1 d"
    )
    (gap,) = guard_checks(reading, now=now)
    assert gap.state == "warning"
    assert gap.found == (
        f"gap 2013-01-02 to 2013-01-03: topic {topic} may drop its first record from 2013-01-10 00:00 UTC on "
        "(in 1 d), or earlier by retention.bytes"
    )
    assert gap.command[:3] == ("airflow", "backfill", "create")


def test_records_that_are_gone_are_an_error(broker: TestBroker, topic: str) -> None:
    lake = ledger(broker, topic)
    broker.delete_records(topic, 3)
    reading = read(lake)
    assert f"{topic}: retention" not in not_ok(examined(broker.settings, reading))
    (gap,) = guard_checks(reading, now=datetime.now(UTC))
    assert gap.state == "error"
    assert "has dropped 1 of its 2 offsets" in gap.found


def test_an_unclean_election_that_is_allowed_is_a_warning(broker: TestBroker, topic: str) -> None:
    reading = read(ledger(broker, topic))
    broker.configure(topic, unclean_leader_election_enable="true")
    assert not_ok(examined(broker.settings, reading))[f"{topic}: unclean election"] == "warning"


def test_times_of_arrival_and_times_from_the_future_are_found(
    broker: TestBroker, topic: str
) -> None:
    reading = read(ledger(broker, topic))
    later = datetime.now(UTC) + timedelta(days=400)
    send(broker.producer(), topic, b"{}", timestamp=round(later.timestamp() * 1000))
    assert not_ok(examined(broker.settings, reading))[f"{topic}: future"] == "warning"
    broker.configure(topic, message_timestamp_type="LogAppendTime")
    assert not_ok(examined(broker.settings, reading))[f"{topic}: timestamps"] == "info"


def test_no_broker_at_the_address_is_an_error() -> None:
    nowhere = KafkaSettings(bootstrap_servers=("127.0.0.1:1",), bootstrap_timeout_ms=300)
    assert not_ok(examined(nowhere)) == {"login": "error"}


# ---------------------------------------------------------------- plan tasks


def test_a_plan_task_has_the_retention_of_its_topics_without_another_request(
    broker: TestBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.configure(topic, retention_bytes=1 << 30)
    asked: list[str] = []
    configs = KafkaClient._topic_configs

    def counted(client: KafkaClient, name: str, *words: Any) -> dict[str, str]:
        asked.append(name)
        return configs(client, name, *words)

    monkeypatch.setattr(KafkaClient, "_topic_configs", counted)
    with LogPlanner(broker.settings) as planner:
        assert planner.described == {}
        state = planner.describe([topic])[topic]
        assert planner.described == {topic: state}
        assert state.kept == TopicRetention(kept_ms=KEPT_MS, kept_bytes=1 << 30)
        assert not state.compacted
    assert asked == [topic]


def test_a_gap_at_risk_is_found_from_what_the_planner_has_described(
    broker: TestBroker, topic: str
) -> None:
    lake = ledger(broker, topic)
    age = datetime.now(UTC) - datetime(2013, 1, 2, tzinfo=UTC)
    broker.configure(topic, retention_ms=round((age + timedelta(hours=5)).total_seconds() * 1000))
    broker.delete_records(topic, 3)
    with LogPlanner(broker.settings) as planner:
        planner.describe([topic])
    (found,) = gaps_at_risk(lake.lake, planner.described, dag="edges")
    assert (found.span.start, found.gone) == (datetime(2013, 1, 2, tzinfo=UTC), 1)
    assert timedelta(hours=4) < (found.left or timedelta(0)) < timedelta(hours=5)


# ---------------------------------------------------------------- a user and its rights


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """Start a broker whose user `me` has no right; clients without a login may do everything."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    state = tmp_path_factory.mktemp("guarded-kafka")
    with KafkaBroker(state, users={"me": PASSWORD}, settings=settings) as running:
        yield TestBroker(running, AdminClient({"bootstrap.servers": running.bootstrap}))


def me(broker: TestBroker, password: str = PASSWORD) -> KafkaSettings:
    assert isinstance(broker.kafka, KafkaBroker)
    return KafkaSettings(
        bootstrap_servers=(broker.kafka.users_bootstrap,),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="me",
        sasl_plain_password=password,
    )


def test_a_wrong_password_is_an_error_that_names_the_settings(guarded: TestBroker) -> None:
    found = examined(me(guarded, f"wrong-{PASSWORD}"))
    assert not_ok(found) == {"login": "error"}
    assert "refused to authenticate user 'me'" in found["login"].found
    assert "sasl_plain_password" in found["login"].fix
    assert " as me" in examined(me(guarded))["login"].found


@pytest.mark.parametrize(
    ("granted", "expected"),
    [
        ([], {"": "error"}),
        (["DESCRIBE"], {": read": "error", ": settings": "warning"}),
        (["READ"], {": settings": "warning"}),
        (["READ", "DESCRIBE_CONFIGS"], {": replicas": "info"}),
        (["DESCRIBE", "DESCRIBE_CONFIGS"], {": read": "error", ": replicas": "info"}),
    ],
    ids=["none", "describe", "read", "all", "all but read"],
)
def test_each_right_that_is_missing_is_named(
    guarded: TestBroker, granted: list[str], expected: dict[str, str]
) -> None:
    topic = guarded.topic(retention_ms=KEPT_MS, min_insync_replicas=1)
    lake = ledger(guarded, topic)
    for name in granted:
        binding = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:me",
            "*",
            getattr(AclOperation, name),
            AclPermissionType.ALLOW,
        )
        done(guarded.admin.create_acls([binding]))
    reading = read(lake)
    wanted = {f"{topic}{name}": state for name, state in expected.items()}
    found: dict[str, DoctorCheck] = {}

    def applied() -> bool:
        """Return True if the broker, which applies rights a moment later, has them all."""
        nonlocal found
        found = examined(me(guarded), replace(reading))
        return not_ok(found) == wanted

    wait_until(applied, deadline_s=30, what=f"the rights {granted}: {wanted}")
    if f"{topic}: settings" in found:
        assert "DESCRIBE_CONFIGS" in found[f"{topic}: settings"].fix
    if f"{topic}: read" in wanted:
        assert found[f"{topic}: read"].fix.startswith("grant READ")
