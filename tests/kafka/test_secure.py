"""TLS and SCRAM with a real broker: an authorized client reads, any other gets an error that names the settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.brokers import TestBroker, done, send
from support.canaries import error_text
from support.certificates import self_signed
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import SettingsError
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.planning import LogPlanner
from tallystick.kafka.reader import RangeReader
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.process import free_port, wait_until

PASSWORD = "not-to-be-seen"
MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True)
class Secured:
    """A broker with three listeners: plain text for the tests themselves, TLS, and TLS with SCRAM."""

    broker: TestBroker
    certificate: Path
    tls: str
    sasl: str

    def settings(self, mechanism: str | None = None, **options: str) -> KafkaSettings:
        login = {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "me",
            "sasl_plain_password": PASSWORD,
        }
        return KafkaSettings.from_mapping(
            {
                "bootstrap_servers": self.sasl if mechanism else self.tls,
                "security_protocol": "SASL_SSL" if mechanism else "SSL",
                "ssl_cafile": str(self.certificate),
                "bootstrap_timeout_ms": 5_000,
                "request_timeout_ms": 5_000,
                **(login if mechanism else {}),
                **options,
            },
            source="the test",
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured-kafka")
    certificate = self_signed(folder / "server.pem")
    plain, controller, tls, sasl = (free_port() for _ in range(4))
    clients = f"PLAINTEXT://127.0.0.1:{plain},TLS://127.0.0.1:{tls},LOGIN://127.0.0.1:{sasl}"
    broker_settings = {
        "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": clients,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,LOGIN:SASL_SSL"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    }
    for mechanism in MECHANISMS:
        broker_settings[f"listener.name.login.{mechanism.lower()}.sasl.jaas.config"] = SCRAM
    with KafkaBroker(folder / "state", port=plain, settings=broker_settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        secured = Secured(
            TestBroker(running, admin), certificate, f"127.0.0.1:{tls}", f"127.0.0.1:{sasl}"
        )
        for number in MECHANISMS.values():
            change = UserScramCredentialUpsertion(
                "me", ScramCredentialInfo(number, 4096), PASSWORD.encode()
            )
            done(admin.alter_user_scram_credentials([change]))
        for mechanism in MECHANISMS:
            # The broker answers before it accepts the user.
            wait_until(
                lambda mechanism=mechanism: is_accepted(secured.settings(mechanism)),
                deadline_s=30,
                what=f"the user being accepted by {mechanism}",
            )
        yield secured


def is_accepted(settings: KafkaSettings) -> bool:
    try:
        with KafkaClient(settings) as client:
            return bool(client.cluster_id())
    except SettingsError:
        return False


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS], ids=["TLS only", *MECHANISMS])
def test_planning_and_reading_go_through_tls(secured: Secured, mechanism: str | None) -> None:
    topic = secured.broker.topic(2)
    values = [b"%d" % n * 1_000 for n in range(3_000)]
    send(secured.broker.producer(linger_ms=20), topic, *values, timestamp=1_000)
    settings = secured.settings(mechanism)
    with LogPlanner(settings) as planner:
        described = planner.describe([topic])[topic]
        ends = planner.boundary(topic, 2_000, [0, 0])
    assert [end.offset for end in ends] == [3_000, 0]
    ours = RangeReader(
        settings,
        topic=topic,
        topic_id=described.topic_id,
        cluster_id=described.cluster_id,
        compacted=False,
    )
    span = OffsetRange(start=0, end=3_000)
    read = ours.read(0, span, planned_end=ends[0])
    assert [value for batch in read for value in batch["value"].to_pylist()] == values


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "options", [{"sasl_plain_password": f"wrong-{PASSWORD}"}, {"sasl_plain_username": "stranger"}]
)
def test_the_error_of_a_refused_scram_user_names_the_settings_to_check(
    secured: Secured, mechanism: str, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        caplog.at_level(logging.DEBUG, logger="kafka"),
        pytest.raises(
            SettingsError,
            match=r"refused to authenticate user '(me|stranger)'.*sasl_mechanism, sasl_",
        ) as refused,
    ):
        KafkaClient(secured.settings(mechanism, **options)).__enter__()
    assert PASSWORD not in error_text(refused.value) + caplog.text


def test_a_certificate_of_an_unknown_issuer_is_refused(secured: Secured, tmp_path: Path) -> None:
    other = self_signed(tmp_path / "other.pem")
    with pytest.raises(SettingsError, match=r"certificate that cannot be verified.*ssl_cafile"):
        KafkaClient(secured.settings(ssl_cafile=str(other))).__enter__()


def test_the_error_of_a_plain_client_at_a_tls_listener_names_the_setting(secured: Secured) -> None:
    settings = KafkaSettings(
        bootstrap_servers=(secured.tls,), bootstrap_timeout_ms=1_000, request_timeout_ms=1_000
    )
    with pytest.raises(
        SettingsError, match=rf"{secured.tls} does not speak Kafka in plain text.*security_protocol"
    ):
        KafkaClient(settings).__enter__()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_log_line_of_a_scram_login_contains_the_password(
    secured: Secured, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        # Tasks of tallystick in this process raise the level, because kafka-python logs much.
        caplog.at_level(logging.DEBUG, logger="kafka"),
        KafkaClient(secured.settings(mechanism)) as client,
    ):
        client.cluster_id()
    assert "kafka" in caplog.text
    assert PASSWORD not in caplog.text
