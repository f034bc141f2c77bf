"""SQL on one snapshot of a lake: a DuckDB connection with one view per table, each on a metadata file of that root.

The connection can read the snapshot's tables on S3 and nothing else: no local files and no other keys. It cannot change
settings or load extensions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import duckdb
from botocore.exceptions import BotoCoreError

from tallystick.errors import (
    Corrupt,
    InvalidRequest,
    SettingsError,
    StoreUnavailable,
    TallystickError,
)

EXTENSIONS = ("httpfs", "avro", "iceberg")
"""In loading order; all three are needed for iceberg_scan on s3://."""

REGION = "us-east-1"
_TRIES = 3
_METADATA_URI = re.compile(r"(s3://([^/]+)/.*?tables/[^/]+/)metadata/[^/]+")


def duckdb_connection(
    tables: Mapping[str, str],
    *,
    environ: Mapping[str, str],
    answers_within_s: float | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB with one view per table name over its metadata file's URI (`s3://...`).

    Credentials, region and endpoint come from `environ` (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL_S3, ...). If it has no
    credentials, they come from boto3's credential chain. `answers_within_s`: the seconds that one request to S3 may take,
    over all its tries; None means DuckDB's default, two minutes. The caller must check statements of users with
    `reading_only` first. Raises SettingsError (no credentials or refused ones, no extension, no s3 URI), StoreUnavailable
    if S3 does not respond, and Corrupt if metadata is gone or unreadable.
    """
    places = {name: _place(name, uri) for name, uri in tables.items()}
    connection = duckdb.connect(
        ":memory:",
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False},
    )
    try:
        for extension in EXTENSIONS:
            connection.execute(f"LOAD {_quoted(str(_extension_file(extension)))}")
        _create_secret(
            connection, buckets=sorted({bucket for _, bucket in places.values()}), environ=environ
        )
        connection.execute("SET TimeZone = 'UTC'")
        if answers_within_s is not None:
            connection.execute(f"SET http_retries = {_TRIES - 1}")
            connection.execute(f"SET http_timeout = {max(1, int(answers_within_s / _TRIES))}")
        folders = ", ".join(_quoted(folder) for folder, _ in sorted(places.values()))
        connection.execute(f"SET allowed_directories = [{folders}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        for name, uri in tables.items():
            _create_view(connection, name, uri, environ=environ)
    except BaseException:  # also on Ctrl-C: the caller does not have the connection yet
        connection.close()
        raise
    return connection


def reading_only(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return a user's statement if it only reads. Raises InvalidRequest for any other and for more than one.

    DuckDB has no setting that allows reads from S3 and forbids writes: `COPY ... TO` would write a file among the table's
    own files.
    """
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise InvalidRequest(
            f"DuckDB cannot parse the statement:\n{whole_message(error)}",
            hint="correct the statement.",
        ) from error
    kinds = [statement.type for statement in statements]
    # EXPLAIN is refused too: EXPLAIN ANALYZE runs its statement, and the type does not show which statement that is.
    if kinds != [duckdb.StatementType.SELECT]:
        raise InvalidRequest(
            f"expected one SELECT, found {' and '.join(kind.name for kind in kinds) or 'nothing'}.",
            hint="write one SELECT (or WITH, FROM, VALUES, DESCRIBE, SUMMARIZE): only commits change tables.",
        )
    return statements[0].query


def _place(name: str, uri: str) -> tuple[str, str]:
    """Return (the table's folder, its bucket)."""
    found = _METADATA_URI.fullmatch(uri)
    if not found:
        raise SettingsError(
            f"table {name}: expected a table of a lake on S3, found {uri!r}.",
            hint="use a pipeline with a warehouse on s3://: SQL reads no other store.",
        )
    return found[1], found[2]


def _extension_file(name: str) -> Path:
    """Return the extension file from PyPI, signed and of DuckDB's own version. Nothing is downloaded at run time."""
    package = f"duckdb_extension_{name}"
    spec = find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        file = Path(folder) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        if file.is_file():
            return file
    raise SettingsError(
        f"DuckDB {duckdb.__version__}: expected the extension {name} of this version, found none.",
        hint=f"install duckdb-extension-{name}=={duckdb.__version__}.",
    )


def _create_secret(
    connection: duckdb.DuckDBPyConnection, *, buckets: list[str], environ: Mapping[str, str]
) -> None:
    key_id, secret, token, region = _credentials(environ)
    options = {"KEY_ID": key_id, "SECRET": secret, "SESSION_TOKEN": token, "REGION": region}
    parts = [
        "TYPE s3",
        "PROVIDER config",
        *(f"{name} {_quoted(value)}" for name, value in options.items() if value),
    ]
    parts.append(f"SCOPE [{', '.join(_quoted(f's3://{bucket}/') for bucket in buckets)}]")
    endpoint = _endpoint(environ)
    if endpoint:
        host, plain = endpoint
        parts += [
            f"ENDPOINT {_quoted(host)}",
            "URL_STYLE 'path'",
            f"USE_SSL {str(not plain).lower()}",
        ]
    try:
        connection.execute(f"CREATE SECRET lake ({', '.join(parts)})")
        return
    except duckdb.Error:
        pass  # raised outside the handler: DuckDB's error quotes the statement, which contains the secret
    raise SettingsError(
        "DuckDB refused the S3 settings.",
        hint="check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL_S3.",
    )


def _credentials(environ: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Return (key id, secret, session token or empty, region). The environment takes precedence, as in boto3."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
    key_id, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if key_id and secret:
        return key_id, secret, environ.get("AWS_SESSION_TOKEN", ""), region or REGION
    frozen, why = None, ""
    try:
        session = boto3.Session(profile_name=environ.get("AWS_PROFILE") or None)
        found = session.get_credentials()
        frozen = found.get_frozen_credentials() if found else None
    except BotoCoreError as error:
        why = type(error).__name__
    if why:  # outside the handler: botocore's error quotes a credential process's output
        raise SettingsError(
            f"AWS credentials could not be loaded ({why}).",
            hint="check AWS_PROFILE and the files in ~/.aws.",
        )
    if frozen is None or not frozen.access_key or not frozen.secret_key:
        raise SettingsError(
            "no AWS credentials were found.",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.",
        )
    return (
        frozen.access_key,
        frozen.secret_key,
        frozen.token or "",
        region or session.region_name or REGION,
    )


def _endpoint(environ: Mapping[str, str]) -> tuple[str, bool] | None:
    """Return (host and port, True if it is plain http) of a server other than AWS; None if none is set."""
    url = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    if not url:
        return None
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme not in ("http", "https") or not host:
        raise SettingsError(
            "AWS_ENDPOINT_URL_S3: expected an http or https URL.",
            hint="set it to e.g. http://127.0.0.1:4566.",
        )
    return host, parts.scheme == "http"


def _create_view(
    connection: duckdb.DuckDBPyConnection, name: str, uri: str, *, environ: Mapping[str, str]
) -> None:
    try:
        connection.execute(
            f"CREATE VIEW {_identifier(name)} AS SELECT * FROM iceberg_scan({_quoted(uri)})"
        )
    except duckdb.Error as error:
        raise unreadable(error, uri, environ) from error


def whole_message(error: duckdb.Error) -> str:
    """Return DuckDB's message in all its lines: with its suggestion, and the statement with a mark below the mistake."""
    return "\n".join(line for line in str(error).splitlines() if line.strip())


def unreadable(error: duckdb.Error, what: str, environ: Mapping[str, str]) -> TallystickError:
    """Return the error by what the caller must do next: look for the object, correct the settings, or wait."""
    endpoint = _endpoint(environ)
    message = f"DuckDB could not read {what} at {endpoint[0] if endpoint else 'AWS'} ({str(error).splitlines()[0]})."
    if not isinstance(error, duckdb.IOException):
        return Corrupt(
            message, hint="run `tally verify`, which checks every object that the root reaches."
        )
    status = getattr(error, "status_code", 0)  # only an HTTPException has one
    if status == 404:
        return Corrupt(
            message,
            hint="find out who deleted it, and restore it from a bucket version.",
        )
    if status in (401, 403):
        return SettingsError(
            message, hint="check that the AWS credentials allow reading this bucket."
        )
    return StoreUnavailable(
        message, hint="check that the endpoint answers (AWS_ENDPOINT_URL_S3), and try again."
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
