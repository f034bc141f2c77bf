"""TLS and SCRAM against a real broker: who may read reads, who may not is told which settings to check."""

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
    """A broker with three doors: plain for the tests themselves, TLS, and TLS with SCRAM."""

    broker: TestBroker
    certificate: Path
    tls: str
    sasl: str

    def settings(self, mechanism: str | None = None, **words: str) -> KafkaSettings:
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
                **words,
            },
            source="the test",
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured-kafka")
    certificate = self_signed(folder / "server.pem")
    plain, controller, tls, sasl = (free_port() for _ in range(4))
    clients = f"PLAINTEXT://127.0.0.1:{plain},TLS://127.0.0.1:{tls},LOGIN://127.0.0.1:{sasl}"
    words = {
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
        words[f"listener.name.login.{mechanism.lower()}.sasl.jaas.config"] = SCRAM
    with KafkaBroker(folder / "state", port=plain, settings=words) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        secured = Secured(
            TestBroker(running, admin), certificate, f"127.0.0.1:{tls}", f"127.0.0.1:{sasl}"
        )
        for number in MECHANISMS.values():
            made = UserScramCredentialUpsertion(
                "me", ScramCredentialInfo(number, 4096), PASSWORD.encode()
            )
            done(admin.alter_user_scram_credentials([made]))
        for mechanism in MECHANISMS:
            # The broker answers before it lets the user in.
            wait_until(
                lambda mechanism=mechanism: admitted(secured.settings(mechanism)),
                deadline_s=30,
                what=f"the user being let in by {mechanism}",
            )
        yield secured


def admitted(settings: KafkaSettings) -> bool:
    try:
        with KafkaClient(settings) as client:
            return bool(client.cluster_id())
    except SettingsError:
        return False


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS], ids=["TLS alone", *MECHANISMS])
def test_planning_and_reading_go_through_tls(secured: Secured, mechanism: str | None) -> None:
    topic = secured.broker.topic(2)
    values = [b"%d" % n * 1_000 for n in range(3_000)]
    send(secured.broker.producer(linger_ms=20), topic, *values, timestamp=1_000)
    settings = secured.settings(mechanism)
    with LogPlanner(settings) as planner:
        seen = planner.describe([topic])[topic]
        ends = planner.boundary(topic, 2_000, [0, 0])
    assert [end.offset for end in ends] == [3_000, 0]
    ours = RangeReader(
        settings, topic=topic, topic_id=seen.topic_id, cluster_id=seen.cluster_id, compacted=False
    )
    span = OffsetRange(start=0, end=3_000)
    read = ours.read(0, span, planned_end=ends[0])
    assert [value for batch in read for value in batch["value"].to_pylist()] == values


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "words", [{"sasl_plain_password": f"wrong-{PASSWORD}"}, {"sasl_plain_username": "nobody"}]
)
def test_a_refused_user_is_told_which_settings_to_check(
    secured: Secured, mechanism: str, words: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        caplog.at_level(logging.DEBUG, logger="kafka"),
        pytest.raises(
            SettingsError,
            match=r"refused to authenticate user '(me|nobody)'.*sasl_mechanism, sasl_",
        ) as refused,
    ):
        KafkaClient(secured.settings(mechanism, **words)).__enter__()
    assert PASSWORD not in error_text(refused.value) + caplog.text


def test_a_certificate_that_nobody_vouches_for_is_refused(secured: Secured, tmp_path: Path) -> None:
    other = self_signed(tmp_path / "other.pem")
    with pytest.raises(SettingsError, match=r"certificate that does not verify.*ssl_cafile"):
        KafkaClient(secured.settings(ssl_cafile=str(other))).__enter__()


def test_a_plain_client_at_the_door_of_tls_is_told_what_to_check(secured: Secured) -> None:
    settings = KafkaSettings(
        bootstrap_servers=(secured.tls,), bootstrap_timeout_ms=1_000, request_timeout_ms=1_000
    )
    with pytest.raises(
        SettingsError, match=rf"{secured.tls} does not speak Kafka in plain text.*security_protocol"
    ):
        KafkaClient(settings).__enter__()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_log_line_holds_the_password(
    secured: Secured, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        # Ours set it higher where they run in this process: kafka-python's own story is long.
        caplog.at_level(logging.DEBUG, logger="kafka"),
        KafkaClient(secured.settings(mechanism)) as client,
    ):
        client.cluster_id()
    assert "kafka" in caplog.text
    assert PASSWORD not in caplog.text
