"""Secrets planted in a running stack (canaries), and a search for them in everything that the stack writes.

The search reads the arguments of every process, every file of the stack's and the project's folders (logs, Spark's event
logs, result files), every row of Airflow's database (XCom, rendered templates, serialized DAGs), every object on S3
(plans, reports, ledger, records). The few files that must contain a secret are listed here, and must be private.
"""

from __future__ import annotations

import os
import stat
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import cramjam
import psutil
import sqlalchemy

# The files in which the embedded stack stores secrets, readable by their owner only.
SECRET_FILES = frozenset({"secrets.json", "passwords.json", "stack.json", "broker.properties"})
# Binary files of another user: their rows are read by SQL.
SKIPPED_FOLDERS = frozenset({"postgres"})

# Variables of a worker's environment that no job may get.
ENVIRONMENT = {
    "TALLYSTICK_KAFKA_OTHER": '{"bootstrap_servers": "b:1", "sasl_plain_password": "canary-of-another-pipeline"}',
    "AIRFLOW_CONN_OTHER": '{"conn_type": "generic", "password": "canary-of-a-connection"}',
    "AIRFLOW_VAR_API_TOKEN": "canary-of-a-variable",
    "AIRFLOW__SMTP__SMTP_PASSWORD": "canary-of-a-setting",
    "DATABASE_URL": "postgresql://me:canary-of-a-database@db/x",
    "GITHUB_TOKEN": "canary-of-a-token",
    "VAULT_TOKEN": "canary-of-a-vault",
}


def canaries_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the canary in each variable, by the variable's name."""
    canaries = {}
    for name, text in environment.items():
        start = text.index("canary-")
        canaries[name] = text[start:].split('"')[0].split("@")[0]
    return canaries


def error_text(error: BaseException) -> str:
    """Return all text of an error and of its causes and contexts, even what a trace does not show."""
    texts = traceback.format_exception(error)
    remaining: list[BaseException | None] = [error]
    seen: set[int] = set()
    while remaining:
        current = remaining.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        # The fields too: a JSONDecodeError contains its whole document, a botocore error its parameters.
        texts += [str(current), repr(current), repr(current.args), repr(vars(current))]
        remaining += [current.__cause__, current.__context__]
    return "\n".join(texts)


def find_canaries(canaries: Mapping[str, str], places: Iterator[tuple[str, bytes]]) -> list[str]:
    """Return which canary was found in which place."""
    values = {name: value.encode() for name, value in canaries.items()}
    return [
        f"{name} in {place}"
        for place, body in places
        for name, value in values.items()
        if value in body
    ]


def all_places(
    folder: Path, *, database: str, s3: Any, submits: Sequence[Sequence[str]]
) -> Iterator[tuple[str, bytes]]:
    """Yield every place of a stack: its name and its contents."""
    for argv in submits:
        yield "argv of a spark-submit", " ".join(argv).encode()
    for process in psutil.process_iter(["cmdline"]):
        yield f"argv of process {process.pid}", " ".join(process.info["cmdline"] or ()).encode()
    yield from _files(folder)
    yield from _rows(database)
    for bucket in s3.list_buckets()["Buckets"]:
        name = bucket["Name"]
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=name):
            for listed in page.get("Contents", ()):
                body = s3.get_object(Bucket=name, Key=listed["Key"])["Body"].read()
                yield f"s3://{name}/{listed['Key']}", body


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [folder for folder in folders if folder not in SKIPPED_FOLDERS]
        for name in names:
            path = Path(parent) / name
            if not path.is_file() or path.is_symlink():
                continue
            if name in SECRET_FILES:
                mode = stat.S_IMODE(path.stat().st_mode)
                assert mode & 0o077 == 0, f"{path} has mode {mode:04o}"
                continue
            body = path.read_bytes()
            # Spark compresses its event logs.
            yield (
                str(path),
                bytes(cramjam.zstd.decompress(body)) if name.endswith(".zstd") else body,
            )


def _rows(database: str) -> Iterator[tuple[str, bytes]]:
    engine = sqlalchemy.create_engine(database)
    with engine.connect() as connection:
        for table in sqlalchemy.inspect(engine).get_table_names():
            # The name comes from the database's list of tables.
            for row in connection.execute(sqlalchemy.text(f'SELECT * FROM "{table}"')):
                yield f"table {table}", repr(tuple(map(_plain, row))).encode()
    engine.dispose()


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def s3_client(endpoint: str, environ: Mapping[str, str]) -> Any:
    """Return a client with the stack's key."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
