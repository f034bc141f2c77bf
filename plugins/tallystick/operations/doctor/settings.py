"""Checks the environment: names and values of TALLYSTICK_* variables, connections, and the folder of secrets."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tallystick.connections.resolve import ROOT_UID, SECRETS_DIR_ENV, env_prefix
from tallystick.errors import TallystickError
from tallystick.operations.doctor.check import Area, DoctorCheck
from tallystick.operations.doctor.connections import (
    KINDS,
    connection_check,
    defined_connections,
)
from tallystick.store.address import check_no_key, parse_memory_uri, parse_s3_uri

AREA = Area("settings")
PREFIX = "TALLYSTICK_"
LAKE, RUN_NOTES, SAMPLES, AIRFLOW_URL = (
    f"{PREFIX}{name}" for name in ("LAKE", "RUN_NOTES", "PAGES_SAMPLES", "AIRFLOW_URL")
)
S3_NAMES = tuple(
    f"{PREFIX}S3_{name}" for name in ("BUCKET_OWNER", "ENCRYPTION", "KMS_KEY_ID", "CHECKSUMS")
)
# A stage task sets RESULT_FILE for its driver; STATE_DIR names the state folder of the embedded stack.
NAMES = (
    *(LAKE, SECRETS_DIR_ENV, f"{PREFIX}TIMEOUT", f"{PREFIX}STATE_DIR", f"{PREFIX}RESULT_FILE"),
    *(RUN_NOTES, SAMPLES, AIRFLOW_URL, *S3_NAMES),
)
# Variables of the demo, the examples and the tests: only their own code reads them.
OTHERS = tuple(f"{PREFIX}{name}_" for name in ("DEMO", "EXAMPLES", "ONTIME", "TEST"))


# ---------------------------------------------------------------- variables


def settings_checks(environ: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Yield the checks of all settings of the environment. No text contains a value that may be a secret."""
    yield from name_checks(environ)
    yield from value_checks(environ)
    if folder := environ.get(SECRETS_DIR_ENV):
        yield from folder_checks(Path(folder))
    defined, unusable = defined_connections(environ)
    yield from unusable
    for connection in defined:
        yield connection_check(connection, environ)


def name_checks(environ: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Yield a warning for each variable that tallystick does not read, with the nearest name that it reads."""
    prefixes = tuple(map(env_prefix, KINDS))
    unread = [
        name
        for name in sorted(environ)
        if name.startswith(PREFIX)
        and name not in NAMES
        and not name.startswith((*prefixes, *OTHERS))
    ]
    for name in unread:
        own = name.removeprefix(PREFIX).upper()
        rest = own.partition("_")[2]
        known = [*NAMES, *(f"{prefix}{rest}" for prefix in prefixes if rest)]
        # Without the prefix, which makes all names alike.
        near = difflib.get_close_matches(own, [one.removeprefix(PREFIX) for one in known], 1)
        fix = f"rename it to {PREFIX}{near[0]}, or remove it." if near else "remove it."
        yield AREA.warning(name, "it is set, and tallystick reads no variable of this name", fix)
    if not unread:
        count = sum(name.startswith(PREFIX) for name in environ)
        yield AREA.ok("names", f"{count} TALLYSTICK_* variables, all known")


def value_checks(environ: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Yield a check for each variable that is set and has a form: lake URI, S3 settings, switches, address."""
    if uri := environ.get(LAKE):
        yield _parsed(LAKE, uri, _parse_lake)
    if any(environ.get(name) for name in environ if name.startswith(f"{PREFIX}S3_")):
        yield _parsed("TALLYSTICK_S3_*", "", lambda _: _parse_s3(environ))
    for name in (RUN_NOTES, SAMPLES):
        if (value := environ.get(name)) is None:
            continue
        if value in ("0", "1"):
            yield AREA.ok(name, value)
        else:
            yield AREA.warning(
                name,
                f"{name}: expected 0 or 1, found {value!r}, which switches nothing off",
                "set it to 0 to switch it off; otherwise remove it.",
            )
    if url := environ.get(AIRFLOW_URL):
        if _is_address(url):
            yield AREA.ok(AIRFLOW_URL, url)
        else:
            yield AREA.warning(
                AIRFLOW_URL,
                f"{AIRFLOW_URL}: expected http(s)://host without a user, found another text",
                "set it to Airflow's address: links to runs need it.",
            )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in url


def _parsed(name: str, value: str, parse: Callable[[str], object]) -> DoctorCheck:
    try:
        parse(value)
    except TallystickError as error:
        return AREA.of_error(name, error)
    return AREA.ok(name, value or "can be used")


def _parse_lake(uri: str) -> None:
    check_no_key(uri)
    parse_memory_uri(uri) if uri.startswith("memory://") else parse_s3_uri(uri)


def _parse_s3(environ: Mapping[str, str]) -> None:
    # The import of boto3 takes a quarter of a second.
    from tallystick.store.s3 import S3Settings

    S3Settings.from_environ(environ)


# ---------------------------------------------------------------- the folder of secrets


def folder_checks(
    folder: Path, *, uid: int | None = None, access: Callable[..., bool] = os.access
) -> Iterator[DoctorCheck]:
    """Yield the check of the folder of secrets: it exists, and no other user can list or change it.

    Kubernetes mounts a folder of root that every user can list, and that no process can change: then the modes of the
    files decide, which are checked with their connections.
    """
    own = os.geteuid() if uid is None else uid
    try:
        status = folder.stat()
    except OSError as error:
        yield AREA.error(
            SECRETS_DIR_ENV,
            f"{SECRETS_DIR_ENV} {folder} cannot be read: {error.strerror}",
            "create the folder, or mount the secrets there.",
        )
        return
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode):
        yield AREA.error(
            SECRETS_DIR_ENV, f"{SECRETS_DIR_ENV} {folder} is no folder", "name a folder."
        )
    elif not access(folder, os.R_OK | os.X_OK):
        yield AREA.error(
            SECRETS_DIR_ENV,
            f"{SECRETS_DIR_ENV} {folder} is not readable for user {own}",
            "make it readable for the user who runs this process.",
        )
    elif status.st_uid == own and mode & 0o077 and access(folder, os.W_OK):
        yield AREA.warning(
            SECRETS_DIR_ENV,
            f"{SECRETS_DIR_ENV} {folder} has mode {mode:04o}: other users can list or change it",
            f"chmod 0700 {folder}",
        )
    elif status.st_uid not in (own, ROOT_UID) or (own != ROOT_UID and access(folder, os.W_OK)):
        yield AREA.warning(
            SECRETS_DIR_ENV,
            f"{SECRETS_DIR_ENV} {folder} belongs to user {status.st_uid}, mode {mode:04o}: another user can change it",
            "make it belong to the user who runs this process, with mode 0700; or mount it read-only.",
        )
    else:
        yield AREA.ok(SECRETS_DIR_ENV, str(folder))
