"""Connections by name: a pipeline names them, and each process resolves them from its own environment.

Order: the variable TALLYSTICK_<KIND>_<NAME>, then a file in the folder TALLYSTICK_SECRETS_DIR (a mounted secret):
<name>.json for a Kafka connection, <kind>.<name>.json for any other (registry, postgres, http, smtp). The `airflow`
layer resolves Airflow's own connections and passes them in as a mapping of options. Nothing is cached: the next
resolution reads a rotated secret.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.connections.http import HttpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.settings import S, Settings
from tallystick.errors import SettingsError

SECRETS_DIR_ENV = "TALLYSTICK_SECRETS_DIR"
SECRET_BYTES_MAX = 64 << 10
ROOT_UID = 0
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def check_connection_name(name: str) -> str:
    """Return `name` if it is a valid connection name. Raises SettingsError with the rule if it is not.

    Names become names of variables and files, so paths, dots and upper case are refused.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"connection name {name!r} is not allowed.",
            hint="use 1 to 63 of a-z, 0-9, '_' and '-', beginning with a letter or digit.",
        )
    return name


def env_name(kind: type[Settings], name: str) -> str:
    """Return the environment variable of a connection: upper case, '-' as '_' ("a-b" and "a_b" share a variable)."""
    return f"{env_prefix(kind)}{check_connection_name(name).upper().replace('-', '_')}"


def env_prefix(kind: type[Settings]) -> str:
    """Return the prefix of the environment variables of all connections of a kind."""
    return f"TALLYSTICK_{kind.KIND.upper()}_"


def resolve(
    kind: type[S],
    name: str,
    *,
    environ: Mapping[str, str],
    fallback: Mapping[str, Any] | None = None,
) -> S:
    """Return the settings of a connection: from the environment, the secrets folder, or the mapping `fallback`.

    Raises SettingsError that names every place it searched if none has settings. Raises SettingsError with the reason if
    the settings of the first place that has any are unusable; later places are not searched then.
    """
    variable = env_name(kind, name)
    # No connection's name contains a dot, so a file of one kind is never read as another's.
    file = f"{name}.json" if kind is KafkaSettings else f"{kind.KIND}.{name}.json"
    found, missing = _search(variable, file, environ)
    if found is not None:
        return kind.from_json(found.text, source=found.source)
    if fallback is not None:
        return kind.from_mapping(fallback, source=f"connection {name!r}")
    if kind is HttpSettings and name == "default":
        return kind.from_mapping({}, source=f"connection {name!r}")  # calls without headers
    raise SettingsError(
        f"{kind.TITLE} connection {name!r} is not defined: {missing}.",
        hint=f"set {variable} to JSON such as {kind.EXAMPLE}, or mount {file}.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SettingsText:
    text: str = field(repr=False)
    source: str


def _search(
    variable: str, file: str, environ: Mapping[str, str]
) -> tuple[_SettingsText | None, str]:
    """Return the text in the environment or the secrets folder; if there is none, None and the searched places."""
    if text := environ.get(variable):
        return _SettingsText(text=text, source=f"environment variable {variable}"), ""
    missing = f"the environment variable {variable} is not set and "
    if folder := environ.get(SECRETS_DIR_ENV):
        path = Path(folder) / file
        secret = _read_secret(path)
        if secret is not None:
            return _SettingsText(text=secret, source=f"secret file {path}"), ""
        return None, f"{missing}there is no file {path}"
    return None, f"{missing}{SECRETS_DIR_ENV} is not set"


def _read_secret(path: Path) -> str | None:
    try:
        # Open the file before checking it, so that the checked file is the one that is read. Follow links: Kubernetes
        # mounts secrets as links. O_NONBLOCK: opening a fifo must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(
            f"secret file {path} cannot be opened: {error.strerror}.",
            hint="make it readable only for the user who runs this process.",
        ) from None
    try:
        _check_private(path, os.fstat(descriptor))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            body = file.read(SECRET_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(body) > SECRET_BYTES_MAX:
        raise SettingsError(
            f"secret file {path}: expected at most {SECRET_BYTES_MAX} bytes, found more.",
            hint="check what is mounted there.",
        )
    try:
        return body.decode()
    except UnicodeDecodeError:
        pass  # raise outside the handler: the UnicodeDecodeError contains the whole body
    raise SettingsError(f"secret file {path} is not UTF-8.", hint="write it as UTF-8 JSON.")


def _check_private(path: Path, status: os.stat_result) -> None:
    """Raise SettingsError if others may read or change the file, or another user may have written it.

    The rule is that of PostgreSQL's client for key files: mode 0600 if this user owns the file, 0640 if root owns it.
    Kubernetes uses the second to give a secret to a process that is not root: owner root, mode 0440, group fsGroup.
    """
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(
            f"secret file {path} is not a file.", hint="check what is mounted there."
        )
    mode = stat.S_IMODE(status.st_mode)
    of_root = status.st_uid == ROOT_UID
    if mode & (0o037 if of_root else 0o077):
        raise SettingsError(
            f"secret file {path} has mode {mode:04o}: others can read or change it.",
            hint=f"chmod {'0640' if of_root else '0600'} {path} (a Kubernetes secret: defaultMode 0400, fsGroup).",
        )
    if status.st_uid not in (os.geteuid(), ROOT_UID):
        raise SettingsError(
            f"secret file {path}: expected owner {os.geteuid()} (the user of this process) or root, found "
            f"{status.st_uid}.",
            hint="change its owner to the user who runs this process, or to root.",
        )
