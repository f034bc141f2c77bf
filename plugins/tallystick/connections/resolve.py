"""Connections by name: a pipeline names them, each process resolves them from its own environment.

Order: the variable TALLYSTICK_<KIND>_<NAME>, then a file in the folder TALLYSTICK_SECRETS_DIR (a mounted secret):
<name>.json of a Kafka connection, <kind>.<name>.json of any other (postgres, http, smtp). Airflow's own connections are
resolved where Airflow is imported, and arrive here as a mapping of words. Nothing is cached: a rotated secret is seen by
the next resolution.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tallystick.connections.kafka import KafkaSettings, words_of_json
from tallystick.connections.postgres import PostgresSettings
from tallystick.errors import SettingsError

KAFKA_ENV_PREFIX = "TALLYSTICK_KAFKA_"
POSTGRES_ENV_PREFIX = "TALLYSTICK_POSTGRES_"
# What only outputs connect to: the Spark driver, which publishes nothing, is told none of it.
OUTPUT_ENV_PREFIXES = (POSTGRES_ENV_PREFIX, "TALLYSTICK_HTTP_", "TALLYSTICK_SMTP_")
SECRETS_DIR_ENV = "TALLYSTICK_SECRETS_DIR"
SECRET_BYTES_MAX = 64 << 10
ROOT_UID = 0
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def check_connection_name(name: str) -> str:
    """Return `name` if the one allow-list admits it; raises SettingsError naming the rule.

    Names become variable and file names, so nothing else may pass: no path, no dot, no upper case.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"{name!r} is not a connection name.",
            next_step="use 1 to 63 of a-z, 0-9, '_' and '-', beginning with a letter or digit.",
        )
    return name


def kafka_env_name(name: str) -> str:
    """The environment variable of a connection: upper case, '-' as '_' ("a-b" and "a_b" share one)."""
    return KAFKA_ENV_PREFIX + check_connection_name(name).upper().replace("-", "_")


def postgres_env_name(name: str) -> str:
    """The environment variable of a PostgreSQL connection, spelt as Kafka's is."""
    return POSTGRES_ENV_PREFIX + check_connection_name(name).upper().replace("-", "_")


def kafka_settings(
    name: str, *, environ: Mapping[str, str], otherwise: Mapping[str, object] | None = None
) -> KafkaSettings:
    """Resolve the Kafka connection `name`: environment, then secrets folder, then the mapping `otherwise`.

    Raises SettingsError naming every place that was looked at, or what is wrong with the first that was found; a
    place that holds something unusable is an error, never a reason to look further.
    """
    variable = kafka_env_name(name)
    found, looked = _look(variable, f"{name}.json", environ)
    if found is not None:
        return KafkaSettings.from_json(found.text, source=found.source)
    if otherwise is not None:
        return KafkaSettings.from_mapping(otherwise, source=f"connection {name!r}")
    raise SettingsError(
        f"Kafka connection {name!r} is not defined: {looked}.",
        next_step=f'set {variable} to JSON such as {{"bootstrap_servers": "host:port"}}, or mount {name}.json.',
    )


def postgres_settings(
    name: str, *, environ: Mapping[str, str], otherwise: Mapping[str, object] | None = None
) -> PostgresSettings:
    """Resolve the PostgreSQL connection `name`, as `kafka_settings` does; its file is postgres.<name>.json."""
    variable = postgres_env_name(name)
    file = f"postgres.{name}.json"
    found, looked = _look(variable, file, environ)
    if found is not None:
        return PostgresSettings.from_json(found.text, source=found.source)
    if otherwise is not None:
        return PostgresSettings.from_mapping(otherwise, source=f"connection {name!r}")
    raise SettingsError(
        f"PostgreSQL connection {name!r} is not defined: {looked}.",
        next_step=f'set {variable} to JSON such as {{"host": "db", "dbname": "flights", "user": "replay"}}, or mount '
        f"{file}.",
    )


def call_env_name(kind: Literal["http", "smtp"], name: str) -> str:
    """The environment variable of a connection to a receiver of calls."""
    return f"TALLYSTICK_{kind}_{check_connection_name(name)}".upper().replace("-", "_")


def call_words(
    kind: Literal["http", "smtp"], name: str, *, environ: Mapping[str, str]
) -> tuple[Mapping[str, Any], str] | None:
    """The words of a connection to a receiver of calls, and where they stand; None where they stand nowhere.

    Raises SettingsError for a place that holds something unusable: it is never a reason to look further.
    """
    form = '{"base_url": "https://host", ...}' if kind == "http" else '{"host": "name", ...}'
    found, _ = _look(call_env_name(kind, name), f"{kind}.{name}.json", environ)
    if found is None:
        return None
    return words_of_json(found.text, source=found.source, form=form), found.source


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    text: str = field(repr=False)
    source: str


def _look(variable: str, file: str, environ: Mapping[str, str]) -> tuple[_Found | None, str]:
    """What the environment or the secrets folder says, and in words where it says nothing.

    No connection's name has a dot: a file of one kind is never taken for another's.
    """
    if text := environ.get(variable):
        return _Found(text=text, source=f"environment variable {variable}"), ""
    looked = f"the environment variable {variable} is not set and "
    if folder := environ.get(SECRETS_DIR_ENV):
        path = Path(folder) / file
        secret = _read_secret(path)
        if secret is not None:
            return _Found(text=secret, source=f"secret file {path}"), ""
        return None, f"{looked}there is no file {path}"
    return None, f"{looked}{SECRETS_DIR_ENV} is not set"


def _read_secret(path: Path) -> str | None:
    try:
        # Opened before it is looked at, so that what is checked is what is read. Links are followed: Kubernetes
        # mounts secrets as links. O_NONBLOCK: a fifo must not hang us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(
            f"secret file {path} cannot be opened: {error.strerror}.",
            next_step="make it readable for the user who runs this process, and for nobody else.",
        ) from None
    try:
        _check_private(path, os.fstat(descriptor))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            body = file.read(SECRET_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(body) > SECRET_BYTES_MAX:
        raise SettingsError(
            f"secret file {path} is larger than {SECRET_BYTES_MAX} bytes.",
            next_step="check what was mounted there.",
        )
    try:
        return body.decode()
    except UnicodeDecodeError:
        pass  # told outside the handler: that error holds the whole body
    raise SettingsError(f"secret file {path} is not UTF-8.", next_step="write it as UTF-8 JSON.")


def _check_private(path: Path, status: os.stat_result) -> None:
    """Raise SettingsError where others may read or change the file, or another user may have written it.

    The rule is that of PostgreSQL's client for key files: 0600 of our own, or 0640 of root's. The second is how
    Kubernetes gives a secret to a process that is not root: root's file, mode 0440, group fsGroup.
    """
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(
            f"secret file {path} is not a file.", next_step="check what was mounted there."
        )
    mode = stat.S_IMODE(status.st_mode)
    of_root = status.st_uid == ROOT_UID
    if mode & (0o037 if of_root else 0o077):
        raise SettingsError(
            f"secret file {path} has mode {mode:04o}: others can read or change it.",
            next_step=f"chmod {'0640' if of_root else '0600'} {path} (a Kubernetes secret: defaultMode 0400, fsGroup).",
        )
    if status.st_uid not in (os.geteuid(), ROOT_UID):
        raise SettingsError(
            f"secret file {path} belongs to user {status.st_uid}, we are {os.geteuid()}.",
            next_step="let it belong to the user who runs this process, or to root.",
        )
