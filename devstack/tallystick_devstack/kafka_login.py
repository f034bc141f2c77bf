"""The users of the embedded Kafka: one for clients and one for the broker itself, with SASL PLAIN on loopback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CLIENTS = "CLIENTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLogin:
    """The users and passwords. Clients log in as `user`, the broker to itself and to its controller as `broker`."""

    password: str = field(repr=False)
    broker_password: str = field(repr=False)
    user: str = "tallystick"
    broker: str = "broker"

    def settings(self, bootstrap: str) -> dict[str, str]:
        """Return the connection settings of a client, with the names of KafkaSettings."""
        return {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def properties(self) -> dict[str, str]:
        """Return the broker's properties for the listeners CLIENTS and CONTROLLER. They contain both passwords."""
        broker = {self.broker: self.broker_password}
        own = {"username": self.broker, "password": self.broker_password}
        return {
            "listener.security.protocol.map": f"{CLIENTS}:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": CLIENTS,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": jaas(
                broker | {self.user: self.password}, **own
            ),
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": jaas(broker, **own),
        }


def jaas(users: Mapping[str, str], **own: str) -> str:
    """Return the JAAS configuration for PLAIN: the allowed `users`, and in `own` the login of the broker itself."""
    options = own | {f"user_{name}": password for name, password in users.items()}
    text = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {text};"


def confluent_words(settings: Mapping[str, Any] | str) -> dict[str, str]:
    """Translate settings of a Kafka connection (or their JSON, as in TALLYSTICK_KAFKA_*) to librdkafka's names."""
    parsed: Mapping[str, Any] = json.loads(settings) if isinstance(settings, str) else settings
    names = {
        "bootstrap_servers": "bootstrap.servers",
        "security_protocol": "security.protocol",
        "sasl_mechanism": "sasl.mechanisms",
        "sasl_plain_username": "sasl.username",
        "sasl_plain_password": "sasl.password",
    }
    return {names[name]: str(value) for name, value in parsed.items() if name in names}
