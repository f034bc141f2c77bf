"""The keys and passwords of a stack's servers, created once and kept in its state folder, readable only by the owner."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from tallystick_devstack.kafka_login import KafkaLogin
from tallystick_devstack.private_file import write_private

FILE = "secrets.json"
_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Logins:
    """The secrets with which clients log in to Kafka and S3."""

    s3_secret_key: str = field(repr=False)
    kafka_password: str = field(repr=False)
    kafka_broker_password: str = field(repr=False)

    @property
    def kafka(self) -> KafkaLogin:
        """The users of Kafka."""
        return KafkaLogin(password=self.kafka_password, broker_password=self.kafka_broker_password)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """The user and the password with which clients log in to the schema registry."""

    password: str = field(repr=False)
    user: str = "tallystick"


def keep_registry_login(registry_dir: Path) -> RegistryLogin:
    """Return the login of a schema registry's own folder, created at the first call.

    It is not in the file of the other logins, because a stack may get its registry later. Safe to repeat: an existing
    file is only read.
    """
    path = registry_dir / FILE
    if not path.exists():
        registry_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, json.dumps({"password": secrets.token_hex(_BYTES)}))
    return RegistryLogin(password=json.loads(path.read_text())["password"])


def keep_logins(state_dir: Path) -> Logins:
    """Return the logins of a state folder, created at the first call. Safe to repeat: an existing file is only read."""
    path = state_dir / FILE
    if not path.exists():
        names = ("s3_secret_key", "kafka_password", "kafka_broker_password")
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, json.dumps({name: secrets.token_hex(_BYTES) for name in names}))
    return Logins(**json.loads(path.read_text()))
