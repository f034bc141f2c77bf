"""Finds the connections that this machine defines, and checks that their settings can be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tallystick.connections.http import HttpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import (
    SECRETS_DIR_ENV,
    check_connection_name,
    env_name,
    env_prefix,
    resolve,
)
from tallystick.connections.settings import Settings
from tallystick.connections.smtp import SmtpSettings
from tallystick.errors import TallystickError
from tallystick.operations.doctor.check import Area, DoctorCheck

AREA = Area("settings")
KINDS: tuple[type[Settings], ...] = (
    KafkaSettings,
    RegistrySettings,
    PostgresSettings,
    HttpSettings,
    SmtpSettings,
)
_NAME = re.compile(r"[A-Z0-9][A-Z0-9_]{0,62}")
_SECRET = re.compile(r"SECRET|PASSWORD|TOKEN|FERNET|PRIVATE_KEY|_CONN_|SQL_ALCHEMY_CONN")
# Variables of such names have a place or a program as their value.
_PLACES = ("_DIR", "_FILE", "_PATH", "_CMD")


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedConnection:
    """A connection that this machine defines: its kind, the name that a pipeline uses, and where it is defined."""

    kind: type[Settings]
    name: str
    place: str


def defined_connections(
    environ: Mapping[str, str],
) -> tuple[tuple[DefinedConnection, ...], tuple[DoctorCheck, ...]]:
    """Return the connections in the environment and in the folder of secrets, and warnings of names that are never read.

    The name of a variable does not show if its connection has a hyphen or an underscore: it is returned with underscores.
    """
    found: dict[tuple[str, str], DefinedConnection] = {}
    unusable: list[DoctorCheck] = []
    for name in sorted(environ):
        kind = next((k for k in KINDS if name.startswith(env_prefix(k))), None)
        if kind is None or not environ[name]:
            continue
        rest = name.removeprefix(env_prefix(kind))
        if not _NAME.fullmatch(rest):
            unusable.append(
                _never_read(name, "a variable", "capitals, digits and '_' after the kind")
            )
            continue
        one = DefinedConnection(kind=kind, name=rest.lower(), place=name)
        found[kind.KIND, rest.lower()] = one
    folder = environ.get(SECRETS_DIR_ENV)
    files = sorted(Path(folder).glob("*.json")) if folder and Path(folder).is_dir() else []
    for file in files:
        named = _of_file(file.name)
        if named is None:
            expected = "NAME.json for Kafka, otherwise KIND.NAME.json"
            unusable.append(_never_read(file.name, "a file", expected))
            continue
        kind, name = named
        key = kind.KIND, name.replace("-", "_")
        if key in found:
            unusable.append(
                AREA.info(
                    f"{kind.KIND} {name}",
                    f"{found[key].place} is used, and the file {file.name} is not",
                    "remove one of the two.",
                )
            )
        else:
            found[key] = DefinedConnection(kind=kind, name=name, place=str(file))
    return tuple(found.values()), tuple(unusable)


def _of_file(name: str) -> tuple[type[Settings], str] | None:
    """Return kind and connection of a secret file's name; None if tallystick never reads a file of that name."""
    first, dot, rest = name.removesuffix(".json").partition(".")
    kinds = {k.KIND: k for k in KINDS[1:]}
    kind = kinds.get(first) if dot else KafkaSettings
    connection = rest if dot else first
    if kind is None:
        return None
    try:
        return kind, check_connection_name(connection)
    except TallystickError:
        return None


def _never_read(name: str, what: str, expected: str) -> DoctorCheck:
    return AREA.warning(
        name,
        f"{name} is {what} that no connection reads: expected {expected}",
        "rename or remove it.",
    )


def connection_check(connection: DefinedConnection, environ: Mapping[str, str]) -> DoctorCheck:
    """Check that a connection's settings can be used; for a file, that only this user can read it."""
    name = f"{connection.kind.KIND} {connection.name}"
    try:
        resolve(connection.kind, connection.name, environ=environ)
    except TallystickError as error:
        return AREA.of_error(name, error)
    return AREA.ok(name, f"defined in {connection.place}")


def is_defined(kind: type[Settings], name: str, environ: Mapping[str, str]) -> bool:
    """Return True if the environment or the folder of secrets defines a connection, whether it can be used or not."""
    if environ.get(env_name(kind, name)):
        return True
    folder = environ.get(SECRETS_DIR_ENV)
    file = f"{name}.json" if kind is KafkaSettings else f"{kind.KIND}.{name}.json"
    return bool(folder) and Path(folder or "", file).exists()


def secrets_of(environ: Mapping[str, str]) -> set[str]:
    """Return the secrets of all connections that this machine defines, and the values of variables that hold secrets."""
    found = {
        value
        for name, value in environ.items()
        if value and _SECRET.search(name) and not name.endswith(_PLACES)
    }
    for connection in defined_connections(environ)[0]:
        try:
            found |= {*resolve(connection.kind, connection.name, environ=environ).secrets()}
        except TallystickError:
            continue
    return found
