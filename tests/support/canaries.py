"""Secrets planted in a running stack, and everything that it leaves behind where somebody could find one.

Looked at: the arguments of every process, every file of the stack's and the project's folders (logs, Spark's event logs,
result files), every row of Airflow's database (XCom, rendered templates, serialized DAGs), every object on S3 (plans,
reports, ledger, records). The few files whose purpose is to keep a secret are named, and must be private.
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

# Where the embedded stack keeps secrets, for its owner alone.
KEEPERS = frozenset({"secrets.json", "passwords.json", "stack.json", "broker.properties"})
# Another user's binary files: their rows are asked for by SQL.
LEFT_OUT = frozenset({"postgres"})

# What a worker's environment holds that no job has any business with.
SURROUNDINGS = {
    "TALLYSTICK_KAFKA_OTHER": '{"bootstrap_servers": "b:1", "sasl_plain_password": "canary-of-another-pipeline"}',
    "AIRFLOW_CONN_OTHER": '{"conn_type": "generic", "password": "canary-of-a-connection"}',
    "AIRFLOW_VAR_API_TOKEN": "canary-of-a-variable",
    "AIRFLOW__SMTP__SMTP_PASSWORD": "canary-of-a-setting",
    "DATABASE_URL": "postgresql://me:canary-of-a-database@db/x",
    "GITHUB_TOKEN": "canary-of-a-token",
    "VAULT_TOKEN": "canary-of-a-vault",
}


def words_of(surroundings: Mapping[str, str]) -> dict[str, str]:
    """The canary inside each variable, by the variable's name."""
    found = {}
    for name, text in surroundings.items():
        start = text.index("canary-")
        found[name] = text[start:].split('"')[0].split("@")[0]
    return found


def told_by(error: BaseException) -> str:
    """All that an error says and that those say which it keeps, whether a trace would show them or not."""
    told = traceback.format_exception(error)
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        # The fields too: a JSONDecodeError holds its whole document, a botocore error what it was made of.
        told += [str(one), repr(one), repr(one.args), repr(vars(one))]
        left += [one.__cause__, one.__context__]
    return "\n".join(told)


def sightings(canaries: Mapping[str, str], places: Iterator[tuple[str, bytes]]) -> list[str]:
    """Where which canary was seen."""
    wanted = {name: value.encode() for name, value in canaries.items()}
    return [
        f"{name} in {place}"
        for place, body in places
        for name, value in wanted.items()
        if value in body
    ]


def everything(
    folder: Path, *, database: str, s3: Any, submits: Sequence[Sequence[str]]
) -> Iterator[tuple[str, bytes]]:
    """Every place of a stack by name, with what stands there."""
    for argv in submits:
        yield "argv of a spark-submit", " ".join(argv).encode()
    for process in psutil.process_iter(["cmdline"]):
        yield f"argv of process {process.pid}", " ".join(process.info["cmdline"] or ()).encode()
    yield from _files(folder)
    yield from _rows(database)
    for bucket in s3.list_buckets()["Buckets"]:
        name = bucket["Name"]
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=name):
            for one in page.get("Contents", ()):
                body = s3.get_object(Bucket=name, Key=one["Key"])["Body"].read()
                yield f"s3://{name}/{one['Key']}", body


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if one not in LEFT_OUT]
        for name in names:
            path = Path(parent) / name
            if not path.is_file() or path.is_symlink():
                continue
            if name in KEEPERS:
                mode = stat.S_IMODE(path.stat().st_mode)
                assert mode & 0o077 == 0, f"{path} has mode {mode:04o}"
                continue
            body = path.read_bytes()
            # Spark packs its event logs.
            yield (
                str(path),
                bytes(cramjam.zstd.decompress(body)) if name.endswith(".zstd") else body,
            )


def _rows(database: str) -> Iterator[tuple[str, bytes]]:
    engine = sqlalchemy.create_engine(database)
    with engine.connect() as connection:
        for table in sqlalchemy.inspect(engine).get_table_names():
            # The name comes from the database's own list.
            for row in connection.execute(sqlalchemy.text(f'SELECT * FROM "{table}"')):
                yield f"table {table}", repr(tuple(map(_plain, row))).encode()
    engine.dispose()


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def s3_client(endpoint: str, environ: Mapping[str, str]) -> Any:
    """A client with the stack's own key."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
